// What one thread needs for the searches of one call: PCRE2's working memory, and the budget they are charged to.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/budget.h"

namespace moracle {

struct MatchSpan {
  std::size_t begin = 0;
  std::size_t end = 0;
};

class Searcher {
 public:
  explicit Searcher(Budget& budget);
  ~Searcher();
  Searcher(const Searcher&) = delete;
  Searcher& operator=(const Searcher&) = delete;

  [[nodiscard]] Budget& budget() { return budget_; }
  // Asked before a pass over text that makes so many bytes; false: the budget is spent.
  bool pass(std::size_t read, std::size_t made) { return budget_.steps(1 + read / 16) && budget_.bytes(made); }
  // Adds a match where the budget has one more.
  bool found(std::vector<MatchSpan>& matches, MatchSpan match) {
    if (!budget_.matches(1) || !budget_.bytes(sizeof match)) return false;
    matches.push_back(match);
    return true;
  }
  [[nodiscard]] Error limit() const { return budget_.error("tokenizer.limit"); }

 private:
  friend class TextPattern;
  struct Memory;

  Budget& budget_;
  std::unique_ptr<Memory> memory_;  // from the first regular expression on
};

}  // namespace moracle
