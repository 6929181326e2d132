// Compiled search patterns over well-formed UTF-8.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/tokenizer/search/searcher.h"

namespace moracle {

// What Split and Replace search for: a literal string or a regular expression. Immutable; copies share the program.
class TextPattern {
 public:
  // Error: "tokenizer.unsupported" (see to_pcre2, and patterns that PCRE2 refuses).
  static Result<TextPattern> regex(std::string_view pattern);
  static Result<TextPattern> literal(std::string text);
  // {"Regex": "..."} or {"String": "..."}; `pointer` is its place in `file`. Error: "tokenizer.unsupported".
  static Result<TextPattern> from_json(const Json& json, const std::string& file, const std::string& pointer);

  // All matches from left to right, not overlapping; an empty match directly after a match is left out. Error:
  // "tokenizer.regex_limit": the searcher's budget is spent, or PCRE2 gave up.
  Result<> find_all(std::string_view text, Searcher& searcher, std::vector<MatchSpan>& matches) const;

  // The literal, empty for a regular expression (and for the empty literal).
  [[nodiscard]] const std::string& literal_text() const { return literal_; }

 private:
  struct Program;
  struct Search;

  std::string literal_;
  std::shared_ptr<const Program> program_;
};

}  // namespace moracle
