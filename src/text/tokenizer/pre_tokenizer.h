// The "pre_tokenizer" of a tokenizer.json: cuts normalized text into pieces that are merged separately. It is constant
// once made, for every thread; a call brings its Searcher.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/tokenizer/component.h"
#include "text/tokenizer/pieces.h"
#include "text/tokenizer/search/regex.h"

namespace moracle {

// What becomes of the delimiters that a pattern finds.
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

class PreTokenizer {
 public:
  // Reads the value at `pointer` (null: nothing to do). Types: Split, ByteLevel, Metaspace, Digits, Punctuation,
  // Whitespace, WhitespaceSplit, Sequence; any other is "tokenizer.unsupported". Too many are "tokenizer.limit".
  static Result<PreTokenizer> from_json(const Json& json, const std::string& file, const std::string& pointer,
                                        Budget& budget);

  // Errors: "tokenizer.limit", "tokenizer.regex_limit".
  Result<> apply(PieceList& list, Searcher& searcher) const;

  // Whether a space is put before a text, as ByteLevel and Metaspace may; empty: no such step.
  [[nodiscard]] std::optional<bool> prefix_space() const;
  // Decides it for the ByteLevel steps.
  void set_byte_level_prefix_space(bool on);

 private:
  struct Split {
    TextPattern pattern;
    SplitBehavior behavior;
    bool invert;
  };
  struct ByteLevel {
    std::optional<TextPattern> pattern;
    bool add_prefix_space;
  };
  using Metaspace = MetaspaceSettings;
  struct Characters {  // one delimiter a character
    bool (*is_delimiter)(char32_t);
    SplitBehavior behavior;
  };
  struct Whitespace {};  // keeps runs of word characters and runs of other visible characters
  using Step = std::variant<Split, ByteLevel, Metaspace, Characters, Whitespace>;

  Result<> add(const Json& json, const std::string& type, const std::string& file, const std::string& pointer);
  Result<> add_split(const Json& json, const JsonReader& reader, const std::string& pointer);
  Result<> add_byte_level(const JsonReader& reader);
  static Result<> apply_step(const Split& step, PieceList& list, Searcher& searcher);
  static Result<> apply_step(const ByteLevel& step, PieceList& list, Searcher& searcher);
  static Result<> apply_step(const Metaspace& step, PieceList& list, Searcher& searcher);
  static Result<> apply_step(const Characters& step, PieceList& list, Searcher& searcher);
  static Result<> apply_step(const Whitespace& step, PieceList& list, Searcher& searcher);

  std::vector<Step> steps_;
  std::vector<std::string> places_;  // of the steps in the file
};

}  // namespace moracle
