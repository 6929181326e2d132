#include "serve/api/prepare.h"

#include <algorithm>
#include <optional>
#include <span>

#include "base/guarded.h"
#include "base/random/mix64.h"
#include "serve/api/api_error.h"

namespace moracle::serve {

namespace {

GenerationChoice choice_of(const ApiRequest& api) {
  GenerationChoice choice;
  choice.samples = true;
  choice.sampling = api.sampling;
  choice.max_tokens = api.max_tokens;
  choice.stop_texts = api.stop;
  return choice;
}

// The rendered conversation up to the end of the assistant's last words: a mark that stands behind them tells where
// that is. Where the template takes white space off the mark, it does so off the words.
Result<std::string> render_open(ChatRequest chat, const ChatTemplates& templates) {
  constexpr std::string_view kMark = "(the reply goes on from here)";
  OrderedJson& words = chat.messages.back()["content"];
  words = words.get<std::string>() + std::string(kMark) + " ";
  MORACLE_ASSIGN(std::string text, templates.render(chat));
  const std::size_t at = text.rfind(kMark);
  if (at == std::string::npos) {
    return Error{.code = "request.value",
                 .where = "continue_final_message",
                 .wanted = "a chat template that shows the last message as it is",
                 .found = "one that does not"};
  }
  const bool trims = text.compare(at + kMark.size(), 1, " ") != 0;
  text.resize(at);
  if (trims) text.resize(text.find_last_not_of(" \t\r\n") + 1);
  return text;
}

Result<PreparedPrompt> encode_chat(const ChatRequest& chat, const ApiRequest& api, const ModelText& text) {
  const bool special = api.add_special_tokens.value_or(false);
  if (!api.continue_final_message && !special) {
    MORACLE_ASSIGN(ChatPrompt prompt, text.encode_chat(chat));
    return PreparedPrompt{.text = std::move(prompt.text), .ids = std::move(prompt.ids)};
  }
  PreparedPrompt prompt;
  MORACLE_ASSIGN(prompt.text,
                 api.continue_final_message ? render_open(chat, text.templates()) : text.templates().render(chat));
  MORACLE_ASSIGN(prompt.ids, text.tokenizer().encode(prompt.text, {.add_special_tokens = special}));
  return prompt;
}

// A message without content is rendered as the template says, or, where that knows texts alone, as one with an empty
// text.
Result<PreparedPrompt> prepare_chat(const ApiRequest& api, const ModelText& text) {
  const ChatRequest& chat = api.chat;
  auto prompt = encode_chat(chat, api, text);
  const auto is_empty = [](const OrderedJson& message) { return message.at("content").is_null(); };
  const bool has_empty = std::any_of(chat.messages.begin(), chat.messages.end(), is_empty);
  if (prompt.ok() || prompt.error().code != "template.undefined" || !has_empty) return prompt;
  ChatRequest filled = chat;
  for (OrderedJson& message : filled.messages) {
    if (is_empty(message)) message["content"] = "";
  }
  return encode_chat(filled, api, text);
}

Result<PreparedPrompt> prepare_prompt(const PromptInput& input, const ApiRequest& api, const ModelText& text) {
  PreparedPrompt prompt;
  if (const auto* const words = std::get_if<std::string>(&input)) {
    prompt.text = *words;
    if (api.add_special_tokens.value_or(true)) {
      MORACLE_ASSIGN(prompt.ids, text.encode_prompt(*words));
    } else {
      MORACLE_ASSIGN(prompt.ids, text.tokenizer().encode(*words, {.add_special_tokens = false}));
    }
  } else {
    prompt.ids = std::get<std::vector<std::int32_t>>(input);
  }
  if (prompt.ids.empty()) {
    return Error{.code = "request.value", .where = "prompt", .wanted = "at least one token", .found = "none"};
  }
  MORACLE_TRY(text.check_ids(prompt.ids));
  if (api.echo && prompt.text.empty()) {
    MORACLE_ASSIGN(prompt.text, text.tokenizer().decode(prompt.ids, api.skip_special_tokens));
  }
  return prompt;
}

Result<> check_known(const char* where, std::span<const std::int32_t> ids, std::int64_t vocabulary) {
  const auto beyond = std::find_if(ids.begin(), ids.end(), [&](std::int32_t id) { return id >= vocabulary; });
  if (beyond == ids.end()) return Ok{};
  return Error{.code = "request.value",
               .where = where,
               .wanted = "token ids from 0 to " + std::to_string(vocabulary - 1),
               .found = std::to_string(*beyond)};
}

std::int64_t longest_prompt(const PreparedRequest& prepared) {
  std::int64_t longest = 0;
  for (const PreparedPrompt& prompt : prepared.prompts) longest = std::max(longest, std::ssize(prompt.ids));
  return longest;
}

Result<> fill_request(PreparedRequest& prepared, const ModelText& text) {
  const ApiRequest& api = prepared.api;
  MORACLE_ASSIGN(const GenerationSettings settings, text.generation().settle(choice_of(api)));
  const std::int64_t vocabulary = text.info() ? text.info()->vocab_size : INT32_MAX;
  MORACLE_TRY(check_known("stop_token_ids", api.stop_token_ids, vocabulary));
  for (const auto& [id, bias] : api.logit_bias) MORACLE_TRY(check_known("logit_bias", {&id, 1}, vocabulary));
  Request& request = prepared.request;
  request.sampling = settings.sampling;
  request.min_tokens = api.min_tokens;
  request.end_ids = settings.stop_ids;
  request.ignore_eos = api.ignore_eos;
  request.stop_ids = api.stop_token_ids;
  prepared.stop_texts = settings.stop_texts;
  prepared.stop_tokens = text.stop_tokens(prepared.stop_texts);
  for (const StopToken& stop : prepared.stop_tokens) request.stop_ids.push_back(stop.id);
  for (const auto& [id, bias] : api.logit_bias) request.logit_bias.push_back({.id = id, .bias = bias});
  request.logprobs = api.logprobs;
  request.echo = api.echo;
  request.priority = api.priority;
  request.max_tokens = settings.max_tokens;
  if (settings.max_length)
    request.max_tokens = std::max<std::int64_t>(*settings.max_length - longest_prompt(prepared), 1);
  return Ok{};
}

// Publishers' limits are lowered to what there is room for; a request's own are not.
Result<> check_room(PreparedRequest& prepared, std::int64_t context) {
  const bool chosen = prepared.api.max_tokens.has_value();
  const char* const param = prepared.api.endpoint == Endpoint::chat ? "messages" : "prompt";
  const std::int64_t longest = longest_prompt(prepared);
  const std::int64_t room = context - longest;
  const std::int64_t least = chosen ? *prepared.api.max_tokens : 1;
  if (room < least) return context_error(context, longest, least, param);
  if (!chosen) prepared.request.max_tokens = std::min(prepared.request.max_tokens.value_or(room), room);
  if (prepared.request.min_tokens > *prepared.request.max_tokens) {
    return Error{.code = "request.value",
                 .where = "min_tokens",
                 .wanted = "at most max_tokens, " + std::to_string(*prepared.request.max_tokens),
                 .found = std::to_string(prepared.request.min_tokens)};
  }
  return Ok{};
}

// More replies than may wait never all get a place, however often the client tries.
Result<> check_replies(const ApiRequest& api, std::int64_t most) {
  if (most == 0 || std::cmp_less_equal(api.replies(), most)) return Ok{};
  return Error{.code = "request.limit",
               .where = api.n > 1 ? "n" : "prompt",
               .wanted = "at most " + std::to_string(most) + " replies, which this server's queue holds",
               .found = std::to_string(api.replies())};
}

// A member of /tokenize that the table of fields has for another endpoint, or not at all.
Result<std::optional<bool>> flag_of(const Json& body, const char* name) {
  if (!has_field(body, name)) return std::optional<bool>();
  if (!body[name].is_boolean())
    return Error{.code = "request.type", .where = name, .wanted = "true or false", .found = body[name].type_name()};
  return std::optional(body[name].get<bool>());
}

// The tokens of "messages" as a chat would have them, else of "prompt" as a completion would.
Result<std::vector<std::int32_t>> tokens_of(const Json& json, std::string_view body, const ModelText& text,
                                            const ModelCheck& known) {
  const bool chats = has_field(json, "messages");
  if (!chats && (!has_field(json, "prompt") || !json["prompt"].is_string()))
    return Error{.code = "request.missing", .where = "prompt", .wanted = "a text, or messages", .found = "none"};
  MORACLE_ASSIGN(ApiRequest api, parse_request(chats ? Endpoint::chat : Endpoint::completions, body, false));
  MORACLE_TRY(known(api.model));
  if (!chats) {
    return text.tokenizer().encode(json["prompt"].get_ref<const std::string&>(),
                                   {.add_special_tokens = api.add_special_tokens.value_or(true)});
  }
  MORACLE_ASSIGN(PreparedPrompt prompt, prepare_chat(api, text));
  return std::move(prompt.ids);
}

}  // namespace

Request PreparedRequest::engine_request(std::size_t index) const {
  Request result = request;
  const auto n = static_cast<std::size_t>(api.n);
  result.prompt = prompts[index / n].ids;
  const std::uint64_t choice = index % n;
  result.sampling.seed = choice == 0 ? seed : mix64(seed + choice * kGoldenRatio64);
  return result;
}

Result<PreparedRequest> prepare_request(Endpoint endpoint, std::string_view body, const ModelText& text,
                                        const PrepareOptions& options) {
  return guarded("prepare the request", [&]() -> Result<PreparedRequest> {
    PreparedRequest prepared;
    MORACLE_ASSIGN(prepared.api, parse_request(endpoint, body, options.strict));
    const ApiRequest& api = prepared.api;
    MORACLE_TRY(check_replies(api, options.max_replies));
    prepared.seed = api.seed.value_or(options.seed);
    if (endpoint == Endpoint::chat) {
      MORACLE_ASSIGN(PreparedPrompt prompt, prepare_chat(api, text));
      MORACLE_TRY(text.check_ids(prompt.ids));
      prepared.prompts.push_back(std::move(prompt));
    } else {
      for (const PromptInput& input : api.prompts) {
        MORACLE_ASSIGN(PreparedPrompt prompt, prepare_prompt(input, api, text));
        prepared.prompts.push_back(std::move(prompt));
      }
    }
    MORACLE_TRY(fill_request(prepared, text));
    MORACLE_TRY(check_room(prepared, options.context));
    return prepared;
  });
}

Result<Json> tokenize_reply(std::string_view body, const ModelText& text, std::int64_t context,
                            const ModelCheck& known) {
  return guarded("tokenize", [&]() -> Result<Json> {
    MORACLE_ASSIGN(const Json json, parse_body(body));
    MORACLE_ASSIGN(const auto with_texts, flag_of(json, "return_token_strs"));
    MORACLE_ASSIGN(const std::vector<std::int32_t> ids, tokens_of(json, body, text, known));
    Json reply = {{"tokens", ids}, {"count", ids.size()}, {"max_model_len", context}};
    if (with_texts.value_or(false)) {
      Json texts = Json::array();
      for (const std::int32_t id : ids) texts.push_back(text.tokenizer().id_to_token(id).value_or(""));
      reply["token_strs"] = std::move(texts);
    }
    return reply;
  });
}

Result<Json> detokenize_reply(std::string_view body, const ModelText& text, const ModelCheck& known) {
  return guarded("detokenize", [&]() -> Result<Json> {
    MORACLE_ASSIGN(const Json json, parse_body(body));
    if (has_field(json, "model")) {
      if (!json["model"].is_string())
        return Error{.code = "request.type", .where = "model", .wanted = "a text", .found = json["model"].type_name()};
      MORACLE_TRY(known(json["model"].get<std::string>()));
    }
    if (!has_field(json, "tokens") || !json["tokens"].is_array())
      return Error{.code = "request.missing", .where = "tokens", .wanted = "a list of token ids", .found = "none"};
    std::vector<std::int32_t> ids;
    for (const Json& value : json["tokens"]) {
      const bool fits = value.is_number_unsigned() && value.get<std::uint64_t>() <= INT32_MAX;
      if (!fits) return Error{.code = "request.value", .where = "tokens", .wanted = "token ids", .found = value.dump()};
      ids.push_back(value.get<std::int32_t>());
    }
    if (const auto known_ids = text.check_ids(ids); !known_ids.ok()) {
      Error error = known_ids.error();
      error.code = "request.value";
      error.where = "tokens";
      return error;
    }
    MORACLE_ASSIGN(std::string words, text.tokenizer().decode(ids, false));
    return Json{{"prompt", std::move(words)}};
  });
}

}  // namespace moracle::serve
