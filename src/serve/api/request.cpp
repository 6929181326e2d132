#include "serve/api/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <variant>

#include "generate/request.h"
#include "text/unicode.h"

namespace moracle::serve {

namespace {

Error wrong(const char* code, std::string where, std::string wanted, std::string found) {
  return Error{.code = code, .where = std::move(where), .wanted = std::move(wanted), .found = std::move(found)};
}

Error over(std::string where, std::size_t most, std::size_t found, std::string_view what) {
  return wrong("request.limit", std::move(where), fmt::format("at most {} {}", most, what), std::to_string(found));
}

// The byte of the first "\u0000" that a string holds; a model's text has no use for NUL, and much software ends there.
std::optional<std::size_t> find_nul(std::string_view body) {
  for (std::size_t at = body.find("\\u0000"); at != std::string_view::npos; at = body.find("\\u0000", at + 1)) {
    std::size_t slashes = 0;
    while (slashes < at && body[at - 1 - slashes] == '\\') ++slashes;
    if (slashes % 2 == 0) return at;
  }
  return std::nullopt;
}

// The byte of the first number that is none: the parser takes the words that Python writes, which JSON has not.
std::optional<std::size_t> find_not_finite(std::string_view body) {
  bool in_text = false;
  for (std::size_t at = 0; at < body.size(); ++at) {
    if (body[at] == '"') in_text = !in_text;
    if (in_text && body[at] == '\\') ++at;
    if (!in_text && (body[at] == 'N' || body[at] == 'I')) return at;
  }
  return std::nullopt;
}

bool is_finite(const Json& value) {
  if (value.is_structured()) return std::all_of(value.begin(), value.end(), is_finite);
  return !value.is_number_float() || std::isfinite(value.get<double>());
}

Error invalid_utf8(std::string found) {
  return wrong("request.invalid_utf8", "", "Unicode text in UTF-8 without NUL", std::move(found));
}

template <class Value>
void read(const Json& body, const char* name, std::optional<Value>& target) {
  if (has_field(body, name)) target = body[name].get<Value>();
}

template <class Number>
void read_sampling(const Json& body, const SamplingField& field, Number SamplingOptions::* member,
                   SamplingChoice& target) {
  const auto found = body.find(field.name);
  if (found == body.end() || found->is_null()) return;
  const bool off = field.request_low == -1 && *found == -1;
  target.set(member, off ? SamplingOptions{}.*member : found->get<Number>());
}

void read_flag(const Json& body, const char* name, bool& target) {
  if (has_field(body, name)) target = body[name].get<bool>();
}

void read_text(const Json& body, const char* name, std::string& target) {
  if (has_field(body, name)) target = body[name].get<std::string>();
}

Result<std::int32_t> token_id(const Json& value, const std::string& where) {
  if (!value.is_number_integer() || value.is_number_float())
    return wrong("request.type", where, "token ids, whole numbers", value.type_name());
  const bool fits =
      value.is_number_unsigned() ? value.get<std::uint64_t>() <= INT32_MAX : value.get<std::int64_t>() >= 0;
  if (!fits) return wrong("request.value", where, "token ids from 0 to 2147483647", value.dump());
  return static_cast<std::int32_t>(value.get<std::int64_t>());
}

Result<std::vector<std::int32_t>> token_ids(const Json& list, const std::string& where) {
  std::vector<std::int32_t> ids;
  ids.reserve(list.size());
  for (const Json& value : list) {
    MORACLE_ASSIGN(const std::int32_t id, token_id(value, where));
    ids.push_back(id);
  }
  return ids;
}

Result<> read_stop(const Json& body, ApiRequest& request) {
  if (!has_field(body, "stop")) return Ok{};
  const Json& stop = body["stop"];
  const Json list = stop.is_array() ? stop : Json::array({stop});
  if (list.size() > kMostStops) return over("stop", kMostStops, list.size(), "texts");
  for (const Json& text : list) {
    if (!text.is_string()) return wrong("request.type", "stop", "a text or a list of texts", text.type_name());
    const auto& words = text.get_ref<const std::string&>();
    if (words.size() > kStopBytes) return over("stop", kStopBytes, words.size(), "bytes in a text");
    if (!words.empty()) request.stop.push_back(words);
  }
  return Ok{};
}

Result<> read_stop_ids(const Json& body, ApiRequest& request) {
  if (!has_field(body, "stop_token_ids")) return Ok{};
  const Json& list = body["stop_token_ids"];
  if (!list.is_array()) return wrong("request.type", "stop_token_ids", "a list of token ids", list.type_name());
  if (list.size() > kMostStopIds) return over("stop_token_ids", kMostStopIds, list.size(), "ids");
  MORACLE_ASSIGN(request.stop_token_ids, token_ids(list, "stop_token_ids"));
  return Ok{};
}

Result<> read_biases(const Json& body, ApiRequest& request) {
  if (!has_field(body, "logit_bias")) return Ok{};
  const Json& biases = body["logit_bias"];
  if (!biases.is_object()) return wrong("request.type", "logit_bias", "an object by token id", biases.type_name());
  if (biases.size() > kMostBiases) return over("logit_bias", kMostBiases, biases.size(), "tokens");
  for (const auto& [name, value] : biases.items()) {
    std::int32_t id = -1;
    const char* const end = name.data() + name.size();
    const auto [stop, failed] = std::from_chars(name.data(), end, id);
    if (failed != std::errc{} || stop != end || id < 0)
      return wrong("request.value", "logit_bias", "token ids as keys", "'" + name.substr(0, 40) + "'");
    if (!value.is_number() || !(std::abs(value.get<double>()) <= kMostBias))
      return wrong("request.value", "logit_bias", fmt::format("numbers from {} to {}", -kMostBias, kMostBias),
                   value.dump());
    request.logit_bias.emplace_back(id, value.get<float>());
  }
  return Ok{};
}

Result<> read_logprobs(const Json& body, ApiRequest& request) {
  if (request.endpoint == Endpoint::completions) {
    read(body, "logprobs", request.logprobs);
    return Ok{};
  }
  const bool wanted = has_field(body, "logprobs") && body["logprobs"].get<bool>();
  const std::int64_t top = has_field(body, "top_logprobs") ? body["top_logprobs"].get<std::int64_t>() : 0;
  if (wanted) request.logprobs = top;
  if (wanted || top == 0) return Ok{};
  return wrong("request.value", "top_logprobs", "logprobs: true beside it", "none");
}

Result<> read_stream(const Json& body, ApiRequest& request) {
  read_flag(body, "stream", request.stream);
  if (!has_field(body, "stream_options")) return Ok{};
  const Json& options = body["stream_options"];
  if (!options.is_object()) return wrong("request.type", "stream_options", "an object", options.type_name());
  for (const auto& [name, value] : options.items()) {
    bool* const target = name == "include_usage"            ? &request.include_usage
                         : name == "continuous_usage_stats" ? &request.continuous_usage
                                                            : nullptr;
    if (target == nullptr) {
      request.ignored.push_back("stream_options." + name);
      continue;
    }
    if (value.is_null()) continue;
    if (!value.is_boolean()) return wrong("request.type", "stream_options." + name, "true or false", value.type_name());
    *target = value.get<bool>();
  }
  return Ok{};
}

Result<> read_common(const Json& body, ApiRequest& request) {
  read_text(body, "model", request.model);
  for (const SamplingField& field : kSamplingFields) {
    std::visit([&](auto member) { read_sampling(body, field, member, request.sampling); }, field.member);
  }
  read(body, "max_tokens", request.max_tokens);
  if (has_field(body, "max_completion_tokens")) {
    const auto most = body["max_completion_tokens"].get<std::int64_t>();
    if (request.max_tokens.value_or(most) != most)
      return wrong("request.value", "max_completion_tokens", "the same as max_tokens", std::to_string(most));
    request.max_tokens = most;
  }
  read(body, "add_special_tokens", request.add_special_tokens);
  if (has_field(body, "min_tokens")) request.min_tokens = body["min_tokens"].get<std::int64_t>();
  if (has_field(body, "seed")) request.seed = static_cast<std::uint64_t>(body["seed"].get<std::int64_t>());
  if (has_field(body, "n")) request.n = body["n"].get<std::int64_t>();
  if (has_field(body, "best_of") && body["best_of"].get<std::int64_t>() > request.n) {
    return Error{.code = "request.unsupported",
                 .where = "best_of",
                 .wanted = fmt::format("at most n, {}", request.n),
                 .found = body["best_of"].dump(),
                 .advice = "all replies that are made are returned: ask for n"};
  }
  read_flag(body, "include_stop_str_in_output", request.include_stop);
  read_flag(body, "ignore_eos", request.ignore_eos);
  read_flag(body, "skip_special_tokens", request.skip_special_tokens);
  read_flag(body, "return_token_ids", request.return_token_ids);
  read_text(body, "cache_salt", request.cache_salt);
  read_text(body, "request_id", request.request_id);
  if (has_field(body, "priority")) request.priority = body["priority"].get<std::int64_t>();
  if (has_field(body, "response_format") &&
      !(body["response_format"].is_object() && body["response_format"].value("type", Json()) == Json("text"))) {
    return Error{.code = "request.unsupported",
                 .where = "response_format",
                 .wanted = "a response_format of type text",
                 .found = "another",
                 .advice = "the output cannot be held to a schema yet: ask in words and check it"};
  }
  MORACLE_TRY(read_stop(body, request));
  MORACLE_TRY(read_stop_ids(body, request));
  MORACLE_TRY(read_biases(body, request));
  MORACLE_TRY(read_logprobs(body, request));
  return read_stream(body, request);
}

// --- chat ---

Result<> check_tools(const Json& body) {
  if (has_field(body, "tools") && !(body["tools"].is_array() && body["tools"].empty())) {
    return Error{.code = "request.unsupported",
                 .where = "tools",
                 .wanted = "a request without tools",
                 .found = body["tools"].is_array() ? fmt::format("{} tools", body["tools"].size()) : "no list",
                 .advice = "calls of tools are not served yet"};
  }
  if (!has_field(body, "tool_choice")) return Ok{};
  const Json& choice = body["tool_choice"];
  if (choice == Json("none") || choice == Json("auto")) return Ok{};
  return Error{.code = "request.unsupported",
               .where = "tool_choice",
               .wanted = "none or auto",
               .found = choice.is_string() ? "another" : choice.type_name(),
               .advice = "calls of tools are not served yet"};
}

// Texts of a message's content in one.
Result<> join_content(OrderedJson& message, const std::string& where) {
  const auto content = message.find("content");
  if (content == message.end()) {
    message["content"] = nullptr;
    return Ok{};
  }
  if (content->is_null() || content->is_string()) return Ok{};
  if (!content->is_array())
    return wrong("request.type", where, "a text, null or a list of text parts", content->type_name());
  std::string text;
  for (std::size_t i = 0; i < content->size(); ++i) {
    const OrderedJson& part = (*content)[i];
    const std::string place = fmt::format("{}[{}]", where, i);
    if (part.is_string()) {
      text += part.get_ref<const std::string&>();
      continue;
    }
    if (!part.is_object())
      return wrong("request.type", place, "a part {\"type\": \"text\", \"text\"}", part.type_name());
    const auto type = part.find("type");
    if (type == part.end() || (*type != "text" && *type != "refusal")) {
      return Error{.code = "request.unsupported",
                   .where = place + ".type",
                   .wanted = "text",
                   .found = type != part.end() && type->is_string()
                                ? "'" + type->get_ref<const std::string&>().substr(0, 40) + "'"
                                : "another",
                   .advice = "prompts are text; no image, sound, file or address is read"};
    }
    const auto words = part.find(type->get_ref<const std::string&>());
    if (words == part.end() || !words->is_string()) return wrong("request.type", place + ".text", "a text", "none");
    text += words->get_ref<const std::string&>();
  }
  message["content"] = std::move(text);
  return Ok{};
}

// Arguments of calls that earlier turns made: templates expect objects, clients send JSON as text.
Result<> open_arguments(OrderedJson& message, const std::string& where) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || calls->is_null()) return Ok{};
  if (!calls->is_array()) return wrong("request.type", where, "a list of calls", calls->type_name());
  for (std::size_t i = 0; i < calls->size(); ++i) {
    OrderedJson& call = (*calls)[i];
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object())
      return wrong("request.type", fmt::format("{}[{}].function", where, i), "an object", "none");
    OrderedJson& function = call["function"];
    if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
    const std::string text = function["arguments"].get<std::string>();
    const std::string place = fmt::format("{}[{}].function.arguments", where, i);
    const auto checked =
        parse_json(text.empty() ? "{}" : text, "", {.bytes = kBodyBytes, .depth = kBodyDepth, .values = kBodyValues});
    if (!checked.ok()) {
      const Error& error = checked.error();
      return wrong("request.value", place, "JSON, " + error.wanted, error.found + " at " + error.where);
    }
    function["arguments"] = OrderedJson::parse(text.empty() ? "{}" : text, nullptr, false);
  }
  return Ok{};
}

// Members of a message that ask for what is done in another way, or not at all.
Result<> check_members(const OrderedJson& message, const std::string& where) {
  constexpr std::array<std::pair<const char*, const char*>, 5> kRefused = {
      {{"function_call", "it is spelled tool_calls"},
       {"audio", "prompts are text"},
       {"images", "prompts are text"},
       {"prefix", "ask for continue_final_message"},
       {"partial", "ask for continue_final_message"}}};
  for (const auto& [name, advice] : kRefused) {
    const auto found = message.find(name);
    if (found == message.end() || says_nothing(*found)) continue;
    return Error{.code = "request.unsupported",
                 .where = where + "." + name,
                 .wanted = "a message without it",
                 .found = found->type_name(),
                 .advice = advice};
  }
  return Ok{};
}

Result<> check_message(OrderedJson& message, const std::string& where) {
  if (!message.is_object()) return wrong("request.type", where, "an object", message.type_name());
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) return wrong("request.missing", where + ".role", "a role", "none");
  constexpr std::array kRoles = {"system", "developer", "user", "assistant", "tool"};
  if (std::find(kRoles.begin(), kRoles.end(), role->get_ref<const std::string&>()) == kRoles.end()) {
    return wrong("request.value", where + ".role", "system, developer, user, assistant or tool",
                 "'" + role->get_ref<const std::string&>().substr(0, 40) + "'");
  }
  MORACLE_TRY(check_members(message, where));
  MORACLE_TRY(join_content(message, where + ".content"));
  for (const char* const name : {"reasoning", "reasoning_content", "name", "tool_call_id"}) {
    const auto text = message.find(name);
    if (text != message.end() && !text->is_null() && !text->is_string())
      return wrong("request.type", where + "." + name, "a text", text->type_name());
  }
  if (message.contains("reasoning") && !message.contains("reasoning_content"))
    message["reasoning_content"] = message["reasoning"];
  return open_arguments(message, where + ".tool_calls");
}

// A member of "reasoning", as several providers have it.
Result<> read_reasoning(const std::string& name, const Json& value, ApiRequest& request) {
  const std::string where = "reasoning." + name.substr(0, kNameBytes);
  if (name == "effort") {
    if (!value.is_string()) return wrong("request.type", where, "a text", value.type_name());
    request.chat.variables["reasoning_effort"] = value.get<std::string>();
    return Ok{};
  }
  if ((name == "enabled" && value == true) || (name == "exclude" && value == false)) return Ok{};
  if (name == "max_tokens" || name == "enabled" || name == "exclude") {
    return Error{.code = "request.unsupported",
                 .where = where,
                 .wanted = "effort alone",
                 .found = value.dump().substr(0, kNameBytes),
                 .advice = "use include_reasoning, or chat_template_kwargs where the chat template has a variable"};
  }
  request.ignored.push_back(where);
  return Ok{};
}

Result<> read_template_arguments(const Json& body, ApiRequest& request) {
  OrderedJson& variables = request.chat.variables;
  if (has_field(body, "reasoning")) {
    const Json& reasoning = body["reasoning"];
    if (!reasoning.is_object()) return wrong("request.type", "reasoning", "an object", reasoning.type_name());
    for (const auto& [name, value] : reasoning.items()) {
      if (!value.is_null()) MORACLE_TRY(read_reasoning(name, value, request));
    }
  }
  if (has_field(body, "reasoning_effort")) variables["reasoning_effort"] = body["reasoning_effort"].get<std::string>();
  if (!has_field(body, "chat_template_kwargs")) return Ok{};
  const Json& arguments = body["chat_template_kwargs"];
  if (!arguments.is_object()) return wrong("request.type", "chat_template_kwargs", "an object", arguments.type_name());
  if (arguments.size() > kMostTemplateArguments)
    return over("chat_template_kwargs", kMostTemplateArguments, arguments.size(), "variables");
  for (const auto& [name, value] : arguments.items()) {
    const std::string where = "chat_template_kwargs." + name.substr(0, kNameBytes);
    if (name == "messages" || name == "tools" || name == "chat_template")
      return wrong("request.value", where, "a variable of the template", "a field of the request");
    if (value.is_structured() || name.size() > kNameBytes ||
        (value.is_number_float() && !std::isfinite(value.get<double>())))
      return wrong("request.type", where, "a text, a finite number, true, false or null", value.type_name());
    variables[name] = OrderedJson(value);
  }
  return Ok{};
}

Result<> read_chat(const Json& body, std::string_view text, ApiRequest& request) {
  MORACLE_TRY(check_tools(body));
  MORACLE_ASSIGN(request.chat.messages, parse_messages(text));
  if (request.max_tokens == 0) return wrong("request.value", "max_tokens", "a whole number of at least 1", "0");
  read_flag(body, "include_reasoning", request.include_reasoning);
  read_flag(body, "continue_final_message", request.continue_final_message);
  request.chat.add_generation_prompt = !request.continue_final_message;
  read_flag(body, "add_generation_prompt", request.chat.add_generation_prompt);
  if (request.continue_final_message) {
    const bool possible =
        request.chat.messages.back()["role"] == "assistant" && request.chat.messages.back()["content"].is_string();
    if (!possible || request.chat.add_generation_prompt) {
      return wrong("request.value", "continue_final_message",
                   "a last message of the assistant, and add_generation_prompt: false", "another");
    }
  }
  return read_template_arguments(body, request);
}

// --- completions ---

Result<> read_prompts(const Json& body, ApiRequest& request) {
  if (!has_field(body, "prompt")) return wrong("request.missing", "prompt", "a prompt", "none");
  const Json& prompt = body["prompt"];
  if (prompt.is_string()) {
    request.prompts.emplace_back(prompt.get<std::string>());
    return Ok{};
  }
  if (!prompt.is_array()) return wrong("request.type", "prompt", "a text or a list", prompt.type_name());
  if (prompt.empty()) return wrong("request.value", "prompt", "at least one prompt", "an empty list");
  if (prompt[0].is_number()) {
    MORACLE_ASSIGN(auto ids, token_ids(prompt, "prompt"));
    request.prompts.emplace_back(std::move(ids));
    return Ok{};
  }
  if (prompt.size() > kMostPrompts) return over("prompt", kMostPrompts, prompt.size(), "prompts");
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    const std::string where = fmt::format("prompt[{}]", i);
    if (prompt[i].is_string()) {
      request.prompts.emplace_back(prompt[i].get<std::string>());
    } else if (prompt[i].is_array() && !prompt[i].empty()) {
      MORACLE_ASSIGN(auto ids, token_ids(prompt[i], where));
      request.prompts.emplace_back(std::move(ids));
    } else {
      return wrong("request.type", where, "a text or a list of token ids",
                   prompt[i].is_array() ? "an empty list" : prompt[i].type_name());
    }
  }
  return Ok{};
}

Result<> read_completion(const Json& body, ApiRequest& request) {
  MORACLE_TRY(read_prompts(body, request));
  read_flag(body, "echo", request.echo);
  if (!request.max_tokens) request.max_tokens = 16;
  if (*request.max_tokens == 0 && !request.echo)
    return wrong("request.value", "max_tokens", "at least 1, or 0 with echo", "0");
  if (request.replies() > kMostSequences) return over("n", kMostSequences, request.replies(), "replies in all");
  return Ok{};
}

}  // namespace

Result<Json> parse_body(std::string_view body) {
  if (body.size() > kBodyBytes) {
    return wrong("request.too_large", "", fmt::format("a body of at most {} bytes", kBodyBytes),
                 fmt::format("{} bytes", body.size()));
  }
  if (const auto bad = unicode::find_invalid_utf8(body))
    return invalid_utf8(fmt::format("bytes that are none at byte {}", *bad));
  if (const auto nul = find_nul(body)) return invalid_utf8(fmt::format("NUL at byte {}", *nul));
  auto parsed = parse_json(body, "", {.bytes = kBodyBytes, .depth = kBodyDepth, .values = kBodyValues});
  if (!parsed.ok()) {
    Error error = std::move(parsed).error();
    const bool lone = error.wanted.find("surrogate") != std::string::npos;
    const bool limit = error.code == "json.depth" || error.code == "json.values";
    error.code = lone ? "request.invalid_utf8" : limit ? "request.limit" : "request.invalid_json";
    error.advice.clear();                                    // it is of files
    error.found += " at " + std::exchange(error.where, {});  // which is no field
    return error;
  }
  if (!parsed->is_object()) return wrong("request.type", "", "a JSON object", parsed->type_name());
  if (const auto word = find_not_finite(body)) {
    const auto& members = parsed->get_ref<const Json::object_t&>();
    const auto field =
        std::find_if(members.begin(), members.end(), [](const auto& member) { return !is_finite(member.second); });
    return wrong("request.value", field == members.end() ? "" : field->first.substr(0, kNameBytes), "finite numbers",
                 fmt::format("NaN or Infinity at byte {}", *word));
  }
  return parsed;
}

Result<OrderedJson> parse_messages(std::string_view body) {
  // Templates see keys in the order of the request.
  const OrderedJson ordered = OrderedJson::parse(body, nullptr, false);
  const auto found = ordered.is_object() ? ordered.find("messages") : ordered.end();
  if (found == ordered.end() || found->is_null())
    return wrong("request.missing", "messages", "a list of messages", "none");
  if (!found->is_array() || found->empty())
    return wrong("request.type", "messages", "a list of at least one message", found->type_name());
  if (found->size() > kMostMessages) return over("messages", kMostMessages, found->size(), "messages");
  OrderedJson messages = *found;
  for (std::size_t i = 0; i < messages.size(); ++i)
    MORACLE_TRY(check_message(messages[i], fmt::format("messages[{}]", i)));
  return messages;
}

Result<ApiRequest> parse_request(Endpoint endpoint, std::string_view body, bool strict) {
  ApiRequest request;
  request.endpoint = endpoint;
  MORACLE_ASSIGN(const Json json, parse_body(body));
  MORACLE_TRY(check_fields(json, endpoint, request.ignored));
  MORACLE_TRY(read_common(json, request));
  if (endpoint == Endpoint::chat) {
    MORACLE_TRY(read_chat(json, body, request));
  } else {
    MORACLE_TRY(read_completion(json, request));
  }
  if (strict && !request.ignored.empty()) {
    return Error{.code = "request.unknown",
                 .where = request.ignored.front().substr(0, kNameBytes),
                 .wanted = "a field that is known",
                 .found = "one that is not",
                 .advice = "leave it out: this server runs with --strict"};
  }
  return request;
}

}  // namespace moracle::serve
