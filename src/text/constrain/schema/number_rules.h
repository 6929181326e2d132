// Numbers of a range, as texts that a grammar spells.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "text/constrain/grammar/grammar_text.h"

namespace moracle {

// Digits of a bounded number at most: with so many, numbers that differ stay different as doubles.
inline constexpr int kBoundedDigits = 15;
// Of an unbounded one, before the point and behind it.
inline constexpr int kFreeDigits = 30;

// A bound of a range.
struct NumberBound {
  long double value = 0;
  bool exclusive = false;
};

// What a number is held to.
struct NumberShape {
  std::optional<NumberBound> low{};
  std::optional<NumberBound> high{};
  bool whole = false;
  std::optional<int> places{};  // behind the point at most
};

// An expression of JSON numbers within; empty: none can be written in kBoundedDigits.
[[nodiscard]] std::optional<std::string> number_expression(const NumberShape& shape);
// Of whole numbers that `divisor` (2 to 64) divides.
[[nodiscard]] std::string multiples_expression(int divisor, GrammarText& grammar);

}  // namespace moracle
