#include "generate/model_text.h"

#include <algorithm>

#include "base/guarded.h"
#include "generate/generate.h"
#include "text/unicode.h"

namespace moracle {

namespace {

// Of all texts in a request.
std::size_t written_bytes(const OrderedJson& json) {
  if (json.is_string()) return json.get_ref<const std::string&>().size();
  std::size_t bytes = 0;
  if (json.is_structured()) {
    for (const OrderedJson& part : json) bytes += written_bytes(part);
  }
  return bytes;
}

}  // namespace

Result<> check_text(std::string_view text, const std::string& from) {
  auto checked = unicode::check_utf8(text);
  if (checked.ok()) return Ok{};
  Error error = std::move(checked).error();
  error.file = from;
  return error;
}

Result<ModelText> ModelText::open(const std::filesystem::path& folder, const Json& config, bool needs_text) {
  ModelText result;
  if (auto info = describe_model(folder, config); info.ok()) result.info_ = *std::move(info);
  const std::int64_t vocabulary = result.info_ ? result.info_->vocab_size : INT32_MAX;
  result.generation_ = load_generation_config(folder, config, vocabulary);
  if (!needs_text) return result;
  MORACLE_ASSIGN(result.tokenizer_, Tokenizer::load(folder));
  MORACLE_TRY(result.tokenizer_->check_added_ids(vocabulary));
  result.templates_ = ChatTemplates::load(folder, result.tokenizer_->config());
  result.learned_ = learn_reply(result.templates_);
  const std::string end = result.tokenizer_->config().token("eos_token");
  const auto id = end.empty() ? std::nullopt : result.tokenizer_->token_to_id(end);
  if (id && *id < vocabulary) result.generation_.add_end(*id);
  return result;
}

ReplyFormat ModelText::call_format() const {
  ReplyFormat format = reply_format();
  if (learned_.reasoning) format.read_reasoning(*learned_.reasoning, &*tokenizer_);
  if (learned_.calls != nullptr) format.read_calls(*learned_.calls, &*tokenizer_);
  return format;
}

Result<> ModelText::check_calls(std::string where, const std::string& option) const {
  if (learned_.calls != nullptr) return Ok{};
  return Error{.code = "tools.unsupported",
               .where = std::move(where),
               .wanted = "a model whose chat template writes calls of tools in a syntax that is known",
               .found = "another",
               .advice = "where you know the syntax, name it with " + option + ": " + call_syntax_names()};
}

std::vector<std::string> ModelText::warnings() const {
  return tokenizer_ ? tokenizer_->config().warnings : std::vector<std::string>();
}

Result<std::vector<std::int32_t>> ModelText::encode_prompt(std::string_view text) const {
  return encode(text, {.add_special_tokens = true});
}

Result<ChatPrompt> ModelText::encode_chat(const ChatRequest& request) const {
  return fitted(request, [&](const ChatRequest& chat) { return encode_fitted(chat); });
}

Result<ChatPrompt> ModelText::encode_fitted(const ChatRequest& request) const {
  MORACLE_ASSIGN(const GuardedChat chat, guarded_chat(request));
  MORACLE_ASSIGN(const std::string rendered, templates_.render(chat.chat));
  ChatPrompt prompt{.text = chat.shown(rendered), .ids = {}};
  std::size_t own = 0;
  for (const OrderedJson* part : {&request.messages, &request.tools, &request.variables}) own += written_bytes(*part);
  MORACLE_ASSIGN(prompt.ids, encode(rendered, {.add_special_tokens = false, .own_bytes = own, .mark = chat.mark}));
  return prompt;
}

Result<GuardedChat> ModelText::guarded_chat(const ChatRequest& request) const {
  return guard_ ? guard_->apply(request) : GuardedChat{.chat = request};
}

Result<std::vector<std::int32_t>> ModelText::encode(std::string_view text, const EncodeOptions& options) const {
  MORACLE_ASSIGN(auto ids, guarded("encode the prompt", [&] { return tokenizer_->encode(text, options); }));
  if (ids.empty() && generation_.bos_id) ids.push_back(*generation_.bos_id);
  if (ids.empty()) {
    return Error{.code = "prompt.empty",
                 .wanted = "a prompt of at least one token",
                 .found = "an empty prompt",
                 .advice = "this model has no begin-of-sequence token to start from"};
  }
  return ids;
}

std::vector<StopToken> ModelText::stop_tokens(std::span<const std::string> stop_texts) const {
  std::vector<StopToken> found;
  for (const std::string& text : stop_texts) {
    const auto id = tokenizer_->token_to_id(text);
    if (!id || (info_ && *id >= info_->vocab_size)) continue;
    const auto shown = tokenizer_->decode({&*id, 1});
    const bool hidden = shown.ok() && shown->empty();
    if (hidden || !reply_format().mark_of(*id).empty()) found.push_back({.id = *id, .text = text});
  }
  return found;
}

Result<> ModelText::check_ids(std::span<const std::int32_t> ids) const {
  if (!info_) return Ok{};
  const auto beyond =
      std::find_if_not(ids.begin(), ids.end(), [&](std::int32_t id) { return id >= 0 && id < info_->vocab_size; });
  if (beyond == ids.end()) return Ok{};
  const auto text = tokenizer_ ? tokenizer_->id_to_token(*beyond) : std::nullopt;
  return Error{.code = "model.token",
               .where = text ? "token " + std::string(*text) : "",
               .wanted = "ids from 0 to " + std::to_string(info_->vocab_size - 1),
               .found = std::to_string(*beyond),
               .advice = text ? "the tokenizer has tokens that the model lacks: leave them out of the prompt" : ""};
}

Result<> ModelText::check_prompt(std::span<const std::int32_t> ids, std::int64_t context, std::int64_t answer) const {
  MORACLE_TRY(check_ids(ids));
  if (!info_) return Ok{};
  return check_prompt_length(std::ssize(ids), context > 0 ? context : info_->max_context, answer);
}

}  // namespace moracle
