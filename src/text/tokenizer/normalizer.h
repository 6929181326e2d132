// The "normalizer" of a tokenizer.json: rewrites the text between added tokens. It is constant once made, for every
// thread; a call brings its Searcher.
#pragma once

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/tokenizer/component.h"
#include "text/tokenizer/pieces.h"
#include "text/tokenizer/search/regex.h"
#include "text/unicode.h"

namespace moracle {

class Normalizer {
 public:
  // Reads the value at `pointer` (null: nothing to do). Types: NFC, NFD, NFKC, NFKD, Prepend, Replace, Lowercase,
  // Strip, StripAccents, ByteLevel, Sequence; any other is "tokenizer.unsupported". Too many are "tokenizer.limit".
  static Result<Normalizer> from_json(const Json& json, const std::string& file, const std::string& pointer,
                                      Budget& budget);

  // Errors: "tokenizer.limit", "tokenizer.regex_limit".
  Result<> apply(NormalizedText& text, Searcher& searcher) const;

  [[nodiscard]] bool empty() const { return steps_.empty(); }
  // Whether the text becomes one of byte-level characters.
  [[nodiscard]] bool writes_bytes() const {
    return std::any_of(steps_.begin(), steps_.end(),
                       [](const Step& s) { return std::holds_alternative<ByteLevel>(s); });
  }

 private:
  struct Prepend {
    std::string text;
  };
  struct Replace {
    TextPattern pattern;
    std::string content;
  };
  struct Lowercase {};
  struct Strip {
    bool left, right;
  };
  struct StripAccents {};
  struct ByteLevel {};
  using Step = std::variant<unicode::NormalForm, Prepend, Replace, Lowercase, Strip, StripAccents, ByteLevel>;

  Result<> append(const Json& json, const std::string& type, const std::string& file, const std::string& pointer);
  static Result<> apply_step(unicode::NormalForm form, NormalizedText& text, Searcher& searcher);
  static Result<> apply_step(const Prepend& step, NormalizedText& text, Searcher& searcher);
  static Result<> apply_step(const Replace& step, NormalizedText& text, Searcher& searcher);
  static Result<> apply_step(const Lowercase& step, NormalizedText& text, Searcher& searcher);
  static Result<> apply_step(const Strip& step, NormalizedText& text, Searcher& searcher);
  static Result<> apply_step(const StripAccents& step, NormalizedText& text, Searcher& searcher);
  static Result<> apply_step(const ByteLevel& step, NormalizedText& text, Searcher& searcher);

  std::vector<Step> steps_;
  std::vector<std::string> places_;  // of the steps in the file
};

}  // namespace moracle
