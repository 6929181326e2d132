// Matches module names against the patterns of ignore lists, targets and override rules.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/budget.h"
#include "base/result.h"
#include "format/format.h"

namespace moracle {

// One compiled pattern.
class Pattern {
 public:
  enum class Kind : std::uint8_t {
    exact,
    regex,      // PCRE2, anchored at the start, not at the end
    component,  // substring that begins and ends at dot-separated component boundaries
    wildcard    // shell: * and ?, over dots too
  };
  // Errors: "config.pattern" for a regex that does not compile or is unreasonably long.
  static Result<Pattern> compile(Kind kind, std::string text);
  // Errors: "config.pattern" when a regex needs more steps than a module name deserves.
  [[nodiscard]] Result<bool> matches(std::string_view name) const;
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] Kind kind() const { return kind_; }
  // The text in the usual spelling of names; a regex has none, and may speak of names in another one.
  [[nodiscard]] const std::string& usual() const { return usual_; }
  [[nodiscard]] bool has_other_spelling() const { return other_spelling_; }

 private:
  struct Regex;
  Kind kind_ = Kind::exact;
  std::string text_;
  std::string usual_;
  bool other_spelling_ = false;
  std::shared_ptr<const Regex> regex_;
};

// The names under which a config may speak of a module: its own, those of the fused modules it is a shard of, and all
// of them in the usual spelling, bare and below "model." (spelling.h).
[[nodiscard]] std::vector<std::string> names_of(const ModuleRef& module);

// An ordered list of patterns that remembers which of them ever matched.
class PatternList {
 public:
  PatternList();
  // Errors: those of Pattern::compile; "config.range" for more patterns of a kind than any model needs.
  Result<> add(Pattern::Kind kind, std::string text);
  // The index of the first pattern that matches one of the names in any spelling, or -1. A pattern that names a fused
  // module matches its shards, since names_of lists the fused names; one that names a shard matches this shard only.
  // Errors: those of Pattern::matches; "config.pattern" where all calls together take longer than their modules
  // deserve.
  [[nodiscard]] Result<int> first_index(const std::vector<std::string>& names) const;
  // Patterns that matched nothing they were asked about and that match no stored module of the checkpoint either; the
  // first of them, where they are many or the search takes long.
  [[nodiscard]] std::vector<std::string> unmatched(const Checkpoint& checkpoint) const;
  [[nodiscard]] std::vector<std::size_t> unmatched_indices(const Checkpoint& checkpoint) const;
  [[nodiscard]] bool empty() const { return patterns_.empty(); }
  [[nodiscard]] std::size_t size() const { return patterns_.size(); }
  [[nodiscard]] const Pattern& at(std::size_t index) const { return patterns_[index]; }

 private:
  // Whether the pattern matches one of the names, or of `others`, which are made when a pattern needs them.
  [[nodiscard]] Result<bool> matches_any(const Pattern& pattern, const std::vector<std::string>& names,
                                         std::vector<std::string>& others) const;
  // pattern.matches(), paid from the budget.
  [[nodiscard]] Result<bool> matches(const Pattern& pattern, const std::string& name) const;
  [[nodiscard]] Result<int> search(const std::vector<std::string>& names) const;

  std::vector<Pattern> patterns_;
  std::vector<int> searched_;                    // those that need a search, in order
  std::set<std::pair<std::string, int>> exact_;  // as written and usual; looked up, since lists hold thousands
  mutable std::vector<char> hit_;                // modules are opened one after the other
  std::size_t regexes_ = 0;
  mutable Budget budget_;  // of all searches; paused between them
};

}  // namespace moracle
