// Text <-> token ids: reads a Hugging Face tokenizer.json and agrees with the `tokenizers` library id for id, or a
// vocabulary in tiktoken form.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/tokenizer/tokenizer_config.h"

namespace moracle {

struct EncodeOptions {
  bool add_special_tokens = true;  // whether the post-processor's tokens (e.g. a leading <s>) are added
  // Bytes of the text that the caller wrote, which kEncodingPerByte is given for; a template may have made the rest.
  // Unset: all.
  std::optional<std::size_t> own_bytes{};
  // A noncharacter that ContentGuard put into the text: it is left out, and no added token matches across it. 0: none.
  char32_t mark = 0;
};

// An immutable tokenizer; copies share their tables, and one object may be used by many threads.
class Tokenizer {
 public:
  // Reads tokenizer.json of a model folder, else tiktoken.model, and the files beside it (TokenizerConfig). Errors:
  // "tokenizer.missing" (none of both), those of read_json, from_json, read_tiktoken and TokenizerConfig::load.
  static Result<Tokenizer> load(const std::filesystem::path& folder);

  // Errors: "tokenizer.unsupported" (a component or pattern we do not implement; `where` is its JSON pointer),
  // "tokenizer.id" (token id negative, too large or taken twice), "tokenizer.merge" (merge of or into an unknown
  // token), "tokenizer.limit", "tokenizer.version", and those of JsonReader. `file` only labels the errors.
  static Result<Tokenizer> from_json(const Json& json, const std::string& file);

  // Whether a model of so many tokens knows all ids that are put around a text. Error: "tokenizer.id".
  [[nodiscard]] Result<> check_added_ids(std::int64_t vocabulary) const;

  // Token ids of a UTF-8 text. Added tokens inside the text become their ids. Errors: "text.utf8" (`where`: byte
  // offset), "tokenizer.limit" and "tokenizer.regex_limit" (the budget of text/budgets.h is spent),
  // "tokenizer.unknown_token" (an unknown character and an unk_token that is not in the vocabulary).
  Result<std::vector<std::int32_t>> encode(std::string_view utf8, EncodeOptions options = {}) const;

  // Added tokens that control a model: of several characters, not all of them white space.
  [[nodiscard]] std::vector<std::string> control_tokens() const;
  // Whether encode() would make such a token of the text; `only_special`: a special one. Errors: those of encode().
  Result<bool> has_control_token(std::string_view utf8, bool only_special) const;
  // Where the text spells one, ascending, also inside of others. Error: "tokenizer.limit".
  Result<std::vector<std::size_t>> find_control_tokens(std::string_view utf8, bool only_special) const;

  // The text of a sequence of ids; unknown ids are left out. Always well-formed UTF-8: bytes that are no character
  // become U+FFFD. Errors: "tokenizer.limit", "tokenizer.regex_limit".
  Result<std::string> decode(std::span<const std::int32_t> ids, bool skip_special_tokens = true) const;

  // The bytes that an id stands for, be they a part of a character. Empty: its text depends on the tokens around it, or
  // there is no such id.
  std::optional<std::string> bytes_of(std::int32_t id) const;

  // One more than the largest id.
  std::int32_t vocab_size() const;
  std::optional<std::int32_t> token_to_id(std::string_view token) const;
  // The token as the vocabulary spells it (e.g. "Ġthe"). The view lives as long as any copy of this tokenizer.
  std::optional<std::string_view> id_to_token(std::int32_t id) const;

  // What the files beside the vocabulary say, with warnings for people; empty after from_json().
  const TokenizerConfig& config() const;

 private:
  friend class DetokenizerStream;
  struct State;
  static Result<Tokenizer> load_tiktoken(const std::filesystem::path& folder);
  explicit Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  std::shared_ptr<const State> state_;
};

// Incremental decode: the concatenated results of push() and finish() equal decode() of all ids. Never emits half a
// UTF-8 character. Text is held back only while a later id could still change it.
class DetokenizerStream {
 public:
  explicit DetokenizerStream(const Tokenizer& tokenizer, bool skip_special_tokens = true);
  DetokenizerStream(DetokenizerStream&&) noexcept;
  DetokenizerStream& operator=(DetokenizerStream&&) noexcept;
  ~DetokenizerStream();

  // Errors: "tokenizer.limit", "tokenizer.regex_limit"; then nothing more is decoded.
  Result<std::string> push(std::int32_t id);
  Result<std::string> finish();  // what was held back; the stream then starts anew

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moracle
