// Sets of Unicode characters.
#pragma once

#include <compare>
#include <initializer_list>
#include <vector>

namespace moracle {

struct CodeRange {
  char32_t first = 0;
  char32_t last = 0;

  auto operator<=>(const CodeRange&) const = default;
};

// Surrogates are no characters and in no set. The ranges are sorted and apart.
class CodeSet {
 public:
  CodeSet() = default;
  CodeSet(std::initializer_list<CodeRange> ranges);
  static CodeSet all();

  void add(CodeRange range);
  void add(const CodeSet& other);
  [[nodiscard]] CodeSet complement() const;
  // The members that `other` lacks.
  [[nodiscard]] CodeSet without(const CodeSet& other) const;

  [[nodiscard]] bool contains(char32_t code) const;
  [[nodiscard]] bool empty() const { return ranges_.empty(); }
  [[nodiscard]] const std::vector<CodeRange>& ranges() const { return ranges_; }

  auto operator<=>(const CodeSet&) const = default;

 private:
  void normalize();

  std::vector<CodeRange> ranges_;
};

}  // namespace moracle
