// Texts that become one id wherever they occur. They are constant once made, for every thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/random/keyed_hash.h"
#include "base/result.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/search/text_matcher.h"
#include "text/tokenizer/tokenizer_config.h"
#include "text/tokenizer/vocabulary.h"

namespace moracle {

// The added tokens of a tokenizer.json, each with the id that the file writes. Errors: "config.*", "tokenizer.id",
// "tokenizer.unsupported" (a text of more than 4096 bytes), "tokenizer.limit" (more than kAddedTokens).
Result<std::vector<std::pair<std::int32_t, AddedToken>>> read_added_tokens(const Json& json, const std::string& file,
                                                                           const std::string& pointer);

class AddedTokens {
 public:
  // Adds tokens as the library does: one that the model knows keeps the model's id, one that was added before keeps its
  // id and gets the new flags, and the others are numbered in order behind the model's tokens and those added before.
  // An empty text is left out. Errors: "tokenizer.id", "tokenizer.unsupported" (too long a text), "tokenizer.limit",
  // "tokenizer.regex_limit" (of the normalizer).
  Result<> add(std::span<const AddedToken> tokens, const Vocabulary& model, const Normalizer& normalizer,
               Searcher& searcher);
  // The same with ids of the caller's choice. Errors: "tokenizer.id" where an id or a text is taken.
  Result<> add_at(std::int32_t id, const AddedToken& token, const Vocabulary& model, Searcher& searcher);
  // After the last token: makes ready to look for them. `split_special`: special tokens in a text are text. Error:
  // "tokenizer.limit".
  Result<> finish(bool split_special, Searcher& searcher);

  // A stretch of text, or an added token in it (id >= 0).
  struct Section {
    std::size_t begin, end;
    std::int32_t id;
  };
  // Covers the text. `normalized` picks which tokens are looked for: those that match the raw text or those that match
  // the normalized text. No section is empty but those of tokens. Error: "tokenizer.limit".
  Result<> split(std::string_view text, bool normalized, Searcher& searcher, std::vector<Section>& sections) const;

  // Whether the token controls a model, so that a client's text must not spell it: it has several characters, not all
  // of them white space. `only_special`: and it is special.
  [[nodiscard]] bool is_control(std::int32_t id, bool only_special) const;
  // The places in a text as it is written where such tokens begin, ascending, also inside of others. Error:
  // "tokenizer.limit".
  Result<> find_controls(std::string_view text, bool only_special, Searcher& searcher,
                         std::vector<std::size_t>& places) const;
  // The spellings of such tokens.
  [[nodiscard]] std::vector<std::string> controls() const;

  [[nodiscard]] std::optional<std::int32_t> id(std::string_view text) const;
  // The token's text for decoding, which for normalized tokens is the normalized text.
  [[nodiscard]] std::optional<std::string_view> text(std::int32_t id) const;
  [[nodiscard]] bool is_special(std::string_view text) const { return specials_.contains(text); }
  [[nodiscard]] std::int32_t largest_id() const { return largest_; }  // -1 when empty

 private:
  Result<> place(std::int32_t id, const AddedToken& token, const Normalizer* normalizer, Searcher& searcher);

  struct Token {
    AddedToken as_written;
    std::string text;  // normalized, where the token is
  };
  IdByText ids_;
  std::unordered_map<std::int32_t, Token, KeyedHash> tokens_;
  std::unordered_set<std::string, KeyedHash, std::equal_to<>> specials_;
  TextMatcher raw_, normalized_;
  std::int32_t largest_ = -1;
  bool split_special_ = false;
};

}  // namespace moracle
