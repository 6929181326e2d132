// The "added_tokens" of a tokenizer.json: texts that become one id wherever they occur.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/vocabulary.h"

namespace moracle {

// Finds the longest of a set of texts at the leftmost place.
class TextMatcher {
 public:
  void add(std::string_view text, std::int32_t value);  // of equal texts the smallest value stays
  struct Match {
    std::size_t begin, end;
    std::int32_t value;
  };
  // The first match at or after `at`.
  [[nodiscard]] std::optional<Match> find(std::string_view text, std::size_t at) const;
  [[nodiscard]] bool empty() const { return nodes_.size() == 1; }

 private:
  struct Node {
    std::vector<std::pair<unsigned char, std::uint32_t>> children;  // few but at the root
    std::int32_t value = -1;
  };
  [[nodiscard]] std::uint32_t child(std::uint32_t node, unsigned char byte) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::vector<std::uint32_t> roots_ = std::vector<std::uint32_t>(256, 0);
};

class AddedTokens {
 public:
  // Reads the array at `pointer`. As in the library, a token that the model knows keeps the model's id, and the others
  // get the ids from the model's size upwards, in file order, whatever id the file writes. Errors: "config.*",
  // "tokenizer.id", "tokenizer.unsupported" (a text of more than 4096 bytes), "tokenizer.regex_limit" (of the
  // normalizer).
  static Result<AddedTokens> from_json(const Json& json, const std::string& file, const std::string& pointer,
                                       const Vocabulary& model, const Normalizer& normalizer);

  // A stretch of text, or an added token in it (id >= 0).
  struct Section {
    std::size_t begin, end;
    std::int32_t id;
  };
  // Covers the text. `normalized` picks which tokens are looked for: those that match the raw text or those that match
  // the normalized text. No section is empty but those of tokens.
  void split(std::string_view text, bool normalized, std::vector<Section>& sections) const;

  [[nodiscard]] std::optional<std::int32_t> id(std::string_view text) const;
  // The token's text for decoding, which for normalized tokens is the normalized text.
  [[nodiscard]] std::optional<std::string_view> text(std::int32_t id) const;
  [[nodiscard]] bool is_special(std::string_view text) const { return specials_.contains(text); }
  [[nodiscard]] std::int32_t largest_id() const { return largest_; }  // -1 when empty

 private:
  struct Token {
    std::string text;  // normalized, where the token is
    bool single_word = false;
    bool lstrip = false;
    bool rstrip = false;
    bool normalized = false;
  };
  Result<> add(const Json& json, const std::string& file, const std::string& pointer, const Vocabulary& model,
               const Normalizer& normalizer);

  IdByText ids_;
  std::unordered_map<std::int32_t, Token> tokens_;
  std::unordered_set<std::string, TextHash, std::equal_to<>> specials_;
  TextMatcher raw_, normalized_;
  std::int32_t largest_ = -1;
  std::size_t unknown_ = 0;  // tokens so far that the model does not know
};

}  // namespace moracle
