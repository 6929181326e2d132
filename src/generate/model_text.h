// The small files of a model folder: what text becomes for the model, and what its publisher says about generating.
// Nothing here reads a weight, so what a user may have wrong is told before one is read. They are read once before a
// load, and constant from then on: every thread may use them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/json/json_fwd.h"
#include "base/result.h"
#include "generate/generation_config.h"
#include "model/model.h"
#include "text/reply/learn_reply.h"
#include "text/reply/reply_format.h"
#include "text/template/chat_fit.h"
#include "text/template/chat_templates.h"
#include "text/template/content_guard.h"
#include "text/tokenizer/tokenizer.h"

namespace moracle {

// Text of a user: well-formed UTF-8, else "text.utf8" of `from`.
Result<> check_text(std::string_view text, const std::string& from);

// What a conversation becomes for the model.
struct ChatPrompt {
  std::string text;
  std::vector<std::int32_t> ids;
};

// A text that ends an answer and is one token of the model.
struct StopToken {
  std::int32_t id = 0;
  std::string text;
};

class ModelText {
 public:
  // `config` is config.json. Without `needs_text` neither tokenizer nor templates are read. Errors: those of
  // Tokenizer::load, and of Tokenizer::check_added_ids.
  static Result<ModelText> open(const std::filesystem::path& folder, const Json& config, bool needs_text);

  // Only with `needs_text`.
  [[nodiscard]] const Tokenizer& tokenizer() const { return *tokenizer_; }
  [[nodiscard]] const ChatTemplates& templates() const { return templates_; }
  [[nodiscard]] const GenerationConfig& generation() const { return generation_; }
  // What config.json tells; empty where only the checkpoint's own errors can say why it does not.
  [[nodiscard]] const std::optional<ModelInfo>& info() const { return info_; }
  [[nodiscard]] std::vector<std::string> warnings() const;
  // How the model marks the parts of its replies.
  [[nodiscard]] ReplyFormat reply_format() const { return ReplyFormat::of(*tokenizer_, templates_.sources()); }
  // The same, with calls of tools, where the model has a syntax for them.
  [[nodiscard]] ReplyFormat call_format() const;
  // What the chat template tells of calls.
  [[nodiscard]] const LearnedReply& learned() const { return learned_; }
  // Whether calls can be told from text. `option`: what names a syntax, for the advice. Error: "tools.unsupported".
  [[nodiscard]] Result<> check_calls(std::string where, const std::string& option) const;
  // Calls are written so, whatever the template tells.
  void set_call_syntax(const CallSyntax& syntax) { learned_.calls = &syntax; }

  // Token ids of a prompt, with the tokenizer's own post-processor. An empty result becomes the begin-of-sequence token
  // where the model has one. Errors: "prompt.empty", those of Tokenizer::encode.
  [[nodiscard]] Result<std::vector<std::int32_t>> encode_prompt(std::string_view text) const;
  // Of a conversation, whose special tokens its template writes, fitted to it. Errors: also those of
  // ChatTemplates::render.
  [[nodiscard]] Result<ChatPrompt> encode_chat(const ChatRequest& request) const;
  // encode(chat), the conversation as the template takes it: arguments of calls as texts where it wants those; where it
  // misses a message's content or a tool's description, once more with empty ones.
  template <class Encode>
  [[nodiscard]] std::invoke_result_t<Encode, const ChatRequest&> fitted(ChatRequest chat, const Encode& encode) const {
    if (learned_.text_arguments) close_arguments(chat.messages);
    auto made = encode(chat);
    if (made.ok() || made.error().code != "template.undefined" || !fill_texts(chat)) return made;
    return encode(chat);
  }
  // From now on texts of conversations spell no control tokens.
  void guard_content() { guard_.emplace(*tokenizer_); }
  // A conversation as templates may have it: of guarded content. Errors: those of ContentGuard::apply.
  [[nodiscard]] Result<GuardedChat> guarded_chat(const ChatRequest& request) const;
  // The stop texts that an answer's text never shows, so that their ids end it: special tokens, and marks of parts.
  [[nodiscard]] std::vector<StopToken> stop_tokens(std::span<const std::string> stop_texts) const;
  // Whether the model knows all ids. Error: "model.token".
  [[nodiscard]] Result<> check_ids(std::span<const std::int32_t> ids) const;
  // The same, and that they and so many tokens of an answer are no more than `context` (0: what the model can hold).
  // Errors: "model.token", "model.context".
  [[nodiscard]] Result<> check_prompt(std::span<const std::int32_t> ids, std::int64_t context,
                                      std::int64_t answer = 1) const;

 private:
  ModelText() = default;
  [[nodiscard]] Result<std::vector<std::int32_t>> encode(std::string_view text, const EncodeOptions& options) const;
  [[nodiscard]] Result<ChatPrompt> encode_fitted(const ChatRequest& request) const;

  std::optional<Tokenizer> tokenizer_;
  std::optional<ContentGuard> guard_;
  ChatTemplates templates_;
  LearnedReply learned_;
  GenerationConfig generation_;
  std::optional<ModelInfo> info_;
};

}  // namespace moracle
