#include "serve/api/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <variant>

#include "generate/request.h"
#include "serve/api/api_error.h"
#include "serve/api/chat/messages.h"

namespace moracle::serve {

namespace {

Error over(std::string where, std::size_t most, std::size_t found, std::string_view what) {
  return wrong("request.limit", std::move(where), fmt::format("at most {} {}", most, what), std::to_string(found));
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
  if (request.kind == GenerationApi::completions) {
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
  MORACLE_TRY(read_stop(body, request));
  MORACLE_TRY(read_stop_ids(body, request));
  MORACLE_TRY(read_biases(body, request));
  MORACLE_TRY(read_logprobs(body, request));
  return read_stream(body, request);
}

// Where end tokens end nothing, a reply would go on behind what it is held to.
Result<> check_output(const ApiRequest& request) {
  const bool held = request.output || request.tools.must_call;
  if (!held || !request.ignore_eos) return Ok{};
  return Error{.code = "request.unsupported",
               .where = "ignore_eos",
               .wanted = "none beside " + (request.output ? request.output->place : "tool_choice"),
               .found = "true"};
}

// --- chat ---

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

Result<> read_chat(RequestBody parsed, ApiRequest& request) {
  const Json& body = parsed.fields;
  const OrderedJson choice = has_field(body, "tool_choice") ? OrderedJson(body["tool_choice"]) : OrderedJson();
  MORACLE_ASSIGN(request.tools, read_tool_use(parsed.tools, choice));
  bool parallel = true;
  read_flag(body, "parallel_tool_calls", parallel);
  if (!parallel) request.tools.max_calls = 1;
  request.chat.tools = request.tools.tools;
  MORACLE_ASSIGN(request.chat.messages, read_messages(std::move(parsed.messages), request.changed));
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
    request.inputs.emplace_back(prompt.get<std::string>());
    return Ok{};
  }
  if (!prompt.is_array()) return wrong("request.type", "prompt", "a text or a list", prompt.type_name());
  if (prompt.empty()) return wrong("request.value", "prompt", "at least one prompt", "an empty list");
  if (prompt[0].is_number()) {
    MORACLE_ASSIGN(auto ids, token_ids(prompt, "prompt"));
    request.inputs.emplace_back(std::move(ids));
    return Ok{};
  }
  if (prompt.size() > kMostPrompts) return over("prompt", kMostPrompts, prompt.size(), "prompts");
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    const std::string where = fmt::format("prompt[{}]", i);
    if (prompt[i].is_string()) {
      request.inputs.emplace_back(prompt[i].get<std::string>());
    } else if (prompt[i].is_array() && !prompt[i].empty()) {
      MORACLE_ASSIGN(auto ids, token_ids(prompt[i], where));
      request.inputs.emplace_back(std::move(ids));
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

Result<ApiRequest> read_request(GenerationApi api, RequestBody body, bool strict) {
  ApiRequest request;
  request.kind = api;
  if (api == GenerationApi::chat) request.prompt_field = "messages";
  // Where messages are no field, what is refused is shown.
  if (api != GenerationApi::chat && !body.messages.is_null()) body.fields["messages"] = Json(body.messages);
  MORACLE_TRY(check_fields(body.fields, api, request.ignored));
  MORACLE_TRY(read_common(body.fields, request));
  MORACLE_ASSIGN(request.output, read_output_field(body));
  if (api == GenerationApi::chat) {
    MORACLE_TRY(read_chat(std::move(body), request));
  } else {
    MORACLE_TRY(read_completion(body.fields, request));
  }
  MORACLE_TRY(check_output(request));
  if (strict && !request.ignored.empty()) {
    return Error{.code = "request.unknown",
                 .where = request.ignored.front().substr(0, kNameBytes),
                 .wanted = "a field that is known",
                 .found = "one that is not",
                 .advice = "leave it out: this server runs with --strict"};
  }
  if (strict && !request.changed.empty()) {
    return Error{.code = "request.value",
                 .where = request.changed.front(),
                 .wanted = "a conversation as the model had it: results of calls that were made, arguments in JSON",
                 .found = "another",
                 .advice = "this server runs with --strict, and mends no conversation"};
  }
  return request;
}

}  // namespace moracle::serve
