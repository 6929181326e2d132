#include "serve/api/prepare.h"

#include <algorithm>
#include <optional>
#include <span>

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

// A conversation with special tokens around it, or one whose last message goes on.
Result<PreparedPrompt> encode_special(const ChatRequest& chat, const ApiRequest& api, const ModelText& text) {
  MORACLE_ASSIGN(const GuardedChat guarded, text.guarded_chat(chat));
  MORACLE_ASSIGN(const std::string rendered, api.continue_final_message ? render_open(guarded.chat, text.templates())
                                                                        : text.templates().render(guarded.chat));
  PreparedPrompt prompt{.text = guarded.shown(rendered), .ids = {}};
  const bool special = api.add_special_tokens.value_or(false);
  MORACLE_ASSIGN(prompt.ids, text.tokenizer().encode(rendered, {.add_special_tokens = special, .mark = guarded.mark}));
  return prompt;
}

Result<> check_tools(const ApiRequest& api, const ModelText& text) {
  if (!api.tools.may_call()) return Ok{};
  auto known = text.check_calls("tools", "the server's --tool-format");
  if (known.ok()) return known;
  Error error = std::move(known).error();
  error.code = "request.tools_unsupported";
  return error;
}

Result<PreparedPrompt> prepare_chat(const ApiRequest& api, const ModelText& text) {
  MORACLE_TRY(check_tools(api, text));
  if (api.continue_final_message || api.add_special_tokens.value_or(false))
    return text.fitted(api.chat, [&](const ChatRequest& chat) { return encode_special(chat, api, text); });
  MORACLE_ASSIGN(ChatPrompt prompt, text.encode_chat(api.chat));
  return PreparedPrompt{.text = std::move(prompt.text), .ids = std::move(prompt.ids)};
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

std::int64_t longest_prompt(const ApiRequest& api) {
  std::int64_t longest = 0;
  for (const PreparedPrompt& prompt : api.prompts) longest = std::max(longest, std::ssize(prompt.ids));
  return longest;
}

// The engine gets the request's choices, and the publisher's where it has none.
Result<> resolve_settings(ApiRequest& api, const ModelText& text) {
  MORACLE_ASSIGN(const GenerationSettings settings, text.generation().settle(choice_of(api)));
  const std::int64_t vocabulary = text.info() ? text.info()->vocab_size : INT32_MAX;
  MORACLE_TRY(check_known("stop_token_ids", api.stop_token_ids, vocabulary));
  for (const auto& [id, bias] : api.logit_bias) MORACLE_TRY(check_known("logit_bias", {&id, 1}, vocabulary));
  Request& engine = api.engine;
  engine.sampling = settings.sampling;
  engine.min_tokens = api.min_tokens;
  engine.end_ids = settings.stop_ids;
  engine.ignore_eos = api.ignore_eos;
  engine.stop_ids = api.stop_token_ids;
  api.stop_texts = settings.stop_texts;
  api.stop_tokens = text.stop_tokens(api.stop_texts);
  for (const StopToken& stop : api.stop_tokens) engine.stop_ids.push_back(stop.id);
  for (const auto& [id, bias] : api.logit_bias) engine.logit_bias.push_back({.id = id, .bias = bias});
  engine.logprobs = api.logprobs;
  engine.echo = api.echo;
  engine.priority = api.priority;
  engine.salt = api.cache_salt;
  engine.count_routing = true;
  engine.max_tokens = settings.max_tokens;
  if (settings.max_length) engine.max_tokens = std::max<std::int64_t>(*settings.max_length - longest_prompt(api), 1);
  return Ok{};
}

// Publishers' limits are lowered to what there is room for; a request's own are not.
Result<> check_room(ApiRequest& api, std::int64_t context) {
  const bool chosen = api.max_tokens.has_value();
  const std::int64_t longest = longest_prompt(api);
  const std::int64_t room = context - longest;
  const std::int64_t least = chosen ? *api.max_tokens : 1;
  if (room < least) return context_error(context, longest, least, api.prompt_field);
  if (!chosen) api.engine.max_tokens = std::min(api.engine.max_tokens.value_or(room), room);
  if (api.engine.min_tokens > *api.engine.max_tokens) {
    return Error{.code = "request.value",
                 .where = "min_tokens",
                 .wanted = "at most max_tokens, " + std::to_string(*api.engine.max_tokens),
                 .found = std::to_string(api.engine.min_tokens)};
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

Result<> complete(ApiRequest& request, const ModelText& text, const PrepareOptions& options) {
  if (options.known) MORACLE_TRY(options.known(request.model));
  MORACLE_TRY(check_replies(request, options.max_replies));
  request.seed = request.seed.value_or(options.seed);
  if (request.kind == GenerationApi::chat) {
    MORACLE_ASSIGN(PreparedPrompt prompt, prepare_chat(request, text));
    MORACLE_TRY(text.check_ids(prompt.ids));
    request.prompts.push_back(std::move(prompt));
  }
  for (const PromptInput& input : request.inputs) {
    MORACLE_ASSIGN(PreparedPrompt prompt, prepare_prompt(input, request, text));
    request.prompts.push_back(std::move(prompt));
  }
  MORACLE_TRY(resolve_settings(request, text));
  return check_room(request, options.context);
}

// A member of /tokenize that the table of fields has for another endpoint, or not at all.
Result<std::optional<bool>> flag_of(const Json& body, const char* name) {
  if (!has_field(body, name)) return std::optional<bool>();
  if (!body[name].is_boolean())
    return Error{.code = "request.type", .where = name, .wanted = "true or false", .found = body[name].type_name()};
  return std::optional(body[name].get<bool>());
}

// The tokens of "messages" as a chat would have them, else of "prompt" as a completion would.
Result<std::vector<std::int32_t>> tokens_of(RequestBody body, const ModelText& text, const ModelCheck& known) {
  const bool chats = !body.messages.is_null();
  const auto prompt = body.fields.find("prompt");
  if (!chats && (prompt == body.fields.end() || !prompt->is_string()))
    return Error{.code = "request.missing", .where = "prompt", .wanted = "a text, or messages", .found = "none"};
  MORACLE_ASSIGN(const ApiRequest api,
                 read_request(chats ? GenerationApi::chat : GenerationApi::completions, std::move(body), false));
  MORACLE_TRY(known(api.model));
  if (!chats) {
    return text.tokenizer().encode(std::get<std::string>(api.inputs.front()),
                                   {.add_special_tokens = api.add_special_tokens.value_or(true)});
  }
  MORACLE_ASSIGN(PreparedPrompt rendered, prepare_chat(api, text));
  return std::move(rendered.ids);
}

}  // namespace

Request ApiRequest::engine_request(std::size_t index) const {
  Request result = engine;
  const auto count = static_cast<std::size_t>(n);
  result.prompt = prompts[index / count].ids;
  const std::uint64_t choice = index % count;
  result.sampling.seed = choice == 0 ? *seed : mix64(*seed + choice * kGoldenRatio64);
  return result;
}

Result<> prepare_request(ApiRequest& request, const ModelText& text, const PrepareOptions& options) {
  auto completed = complete(request, text, options);
  if (!completed.ok()) return request.places.named(std::move(completed).error());
  return Ok{};
}

bool is_held(const ApiRequest& request) {
  return request.output.has_value() || request.tools.may_call();
}

// All replies of the request share what they are held to.
Result<> hold_request(ApiRequest& request, const PrepareOptions& options) {
  const bool chats = request.kind == GenerationApi::chat;
  ModelOutputs* const outputs = request.engine.end_ids.empty() ? nullptr : options.outputs;
  auto held = hold_rules(request, outputs,
                         chats ? std::optional<std::string_view>(request.prompts.front().text) : std::nullopt);
  if (!held.ok()) return request.places.named(request_error(std::move(held).error()));
  request.engine.output = std::move(*held);
  return Ok{};
}

Result<std::int64_t> count_chat_tokens(const ApiRequest& request, const ModelText& text, const ModelCheck& known) {
  MORACLE_TRY(known(request.model));
  MORACLE_ASSIGN(const PreparedPrompt prompt, prepare_chat(request, text));
  return std::ssize(prompt.ids);
}

Result<Json> tokenize_reply(RequestBody body, const ModelText& text, std::int64_t context, const ModelCheck& known) {
  MORACLE_ASSIGN(const auto with_texts, flag_of(body.fields, "return_token_strs"));
  MORACLE_ASSIGN(const std::vector<std::int32_t> ids, tokens_of(std::move(body), text, known));
  Json reply = {{"tokens", ids}, {"count", ids.size()}, {"max_model_len", context}};
  if (with_texts.value_or(false)) {
    Json texts = Json::array();
    for (const std::int32_t id : ids) texts.push_back(text.tokenizer().id_to_token(id).value_or(""));
    reply["token_strs"] = std::move(texts);
  }
  return reply;
}

Result<Json> detokenize_reply(const Json& fields, const ModelText& text, const ModelCheck& known) {
  if (has_field(fields, "model")) {
    if (!fields["model"].is_string())
      return Error{.code = "request.type", .where = "model", .wanted = "a text", .found = fields["model"].type_name()};
    MORACLE_TRY(known(fields["model"].get<std::string>()));
  }
  if (!has_field(fields, "tokens") || !fields["tokens"].is_array())
    return Error{.code = "request.missing", .where = "tokens", .wanted = "a list of token ids", .found = "none"};
  std::vector<std::int32_t> ids;
  for (const Json& value : fields["tokens"]) {
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
}

}  // namespace moracle::serve
