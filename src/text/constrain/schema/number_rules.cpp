#include "text/constrain/schema/number_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

namespace moracle {

namespace {

constexpr long double kBeyond = 1e15L;  // the least whole number of more than kBoundedDigits

// A bound of numbers without a sign: its digits before the point, without leading zeros, and behind it, without
// trailing ones.
struct Limit {
  std::string whole;
  std::string fraction;
  bool exclusive = false;
};

// The double of kBoundedDigits that is nearest on the inner side: at least `value` of a low bound, else at most.
Limit limit_of(const NumberBound& bound, bool low) {
  const auto value = static_cast<double>(bound.value);
  std::string text = fmt::format("{:.{}e}", value, kBoundedDigits - 1);
  const double rounded = std::strtod(text.c_str(), nullptr);
  std::int64_t digits = 0;
  int exponent = 0;
  const std::size_t e = text.find('e');
  const std::string mantissa = text.substr(0, 1) + text.substr(2, e - 2);
  std::from_chars(mantissa.data(), mantissa.data() + mantissa.size(), digits);
  exponent = std::atoi(text.c_str() + e + 1);
  const bool outside = low ? rounded < value : rounded > value;
  if (outside) digits += low ? 1 : -1;
  text = std::to_string(digits);
  exponent += static_cast<int>(text.size()) - kBoundedDigits;  // of the first digit, also where rounding made one more
  Limit limit{.whole = {}, .fraction = {}, .exclusive = bound.exclusive && rounded == value};
  if (exponent < 0) {
    limit.whole = "0";
    limit.fraction = std::string(static_cast<std::size_t>(-exponent - 1), '0') + text;
  } else {
    const auto places = static_cast<std::size_t>(exponent) + 1;
    if (text.size() < places) text.append(places - text.size(), '0');
    limit.whole = text.substr(0, places);
    limit.fraction = text.substr(places);
  }
  limit.fraction.erase(limit.fraction.find_last_not_of('0') + 1);
  return limit;
}

using Expression = std::optional<std::string>;

std::string digit_class(char first, char last) {
  return first == last ? fmt::format("\"{}\"", first) : fmt::format("[{}-{}]", first, last);
}

// Numbers without a sign from `low` to `high`; a bound that is not tight no longer matters.
class RangeWriter {
 public:
  RangeWriter(Limit low, std::optional<Limit> high, std::optional<int> places)
      : low_(std::move(low)), high_(std::move(high)), places_(places) {}

  Expression write() {
    std::vector<std::string> bodies;
    const std::size_t most = high_ ? high_->whole.size() : kBoundedDigits;
    for (std::size_t length = low_.whole.size(); length <= most; ++length) {
      length_ = length;
      add(bodies, {}, whole(0, length == low_.whole.size(), high_ && length == high_->whole.size()));
    }
    return joined(std::move(bodies));
  }

 private:
  static void add(std::vector<std::string>& bodies, const std::string& head, Expression rest) {
    if (!rest) return;
    bodies.push_back(head.empty() ? *rest : rest->empty() ? head : head + " " + *rest);
  }
  static Expression joined(std::vector<std::string> bodies) {
    if (bodies.empty()) return std::nullopt;
    return ebnf_either(bodies);
  }

  // Digits before the point, from `at` on.
  Expression whole(std::size_t at, bool tight_low, bool tight_high) {
    if (at == length_) return fraction(tight_low, tight_high);
    const char least = at == 0 && length_ > 1 ? '1' : '0';
    const char low = tight_low ? low_.whole[at] : least;
    const char high = tight_high ? high_->whole[at] : '9';
    return branch(low, high, tight_low, tight_high,
                  [&](bool next_low, bool next_high) { return whole(at + 1, next_low, next_high); });
  }

  // One digit from `low` to `high`, and what follows it.
  template <class Rest>
  static Expression branch(char low, char high, bool tight_low, bool tight_high, const Rest& rest) {
    std::vector<std::string> bodies;
    if (low > high) return std::nullopt;
    if (low == high) {
      add(bodies, digit_class(low, low), rest(tight_low, tight_high));
      return joined(std::move(bodies));
    }
    if (tight_low) add(bodies, digit_class(low, low), rest(true, false));
    const char first = static_cast<char>(tight_low ? low + 1 : low);
    const char last = static_cast<char>(tight_high ? high - 1 : high);
    if (first <= last) add(bodies, digit_class(first, last), rest(false, false));
    if (tight_high) add(bodies, digit_class(high, high), rest(false, true));
    return joined(std::move(bodies));
  }

  [[nodiscard]] int most_places() const {
    const int room = std::max(kBoundedDigits - static_cast<int>(length_), 0);
    return places_ ? std::min(*places_, room) : room;
  }

  Expression fraction(bool tight_low, bool tight_high) {
    const Expression digits = places(0, tight_low, tight_high);
    const bool ends = can_end(0, tight_low, tight_high);
    if (!digits) return ends ? Expression("") : std::nullopt;
    return ends ? "(\".\" " + *digits + ")?" : "\".\" " + *digits;
  }

  [[nodiscard]] bool can_end(std::size_t at, bool tight_low, bool tight_high) const {
    const bool reached = !tight_low || (at >= low_.fraction.size() && !low_.exclusive);
    return reached && (!tight_high || at < high_->fraction.size() || !high_->exclusive);
  }

  // Digits behind the point, at least one more, from `at` on.
  Expression places(std::size_t at, bool tight_low, bool tight_high) {
    const int room = most_places() - static_cast<int>(at);
    if (room <= 0) return std::nullopt;
    if (tight_low && at >= low_.fraction.size() && !low_.exclusive) tight_low = false;
    if (!tight_low && !tight_high) return fmt::format("[0-9]{{1,{}}}", room);
    if (tight_high && at >= high_->fraction.size()) return std::nullopt;  // zeros, which a bound needs not
    const char low = tight_low && at < low_.fraction.size() ? low_.fraction[at] : '0';
    const char high = tight_high ? high_->fraction[at] : '9';
    return branch(low, high, tight_low, tight_high, [&](bool next_low, bool next_high) -> Expression {
      const Expression rest = places(at + 1, next_low, next_high);
      const bool ends = can_end(at + 1, next_low, next_high);
      if (!rest) return ends ? Expression("") : std::nullopt;
      return ends ? "(" + *rest + ")?" : *rest;
    });
  }

  Limit low_;
  std::optional<Limit> high_;
  std::optional<int> places_;
  std::size_t length_ = 0;
};

// Numbers from `low`, which is not negative, to `high`.
Expression magnitudes(const NumberBound& low, const std::optional<NumberBound>& high, std::optional<int> places) {
  if (low.value >= kBeyond) return std::nullopt;
  if (high && (high->value < low.value || (high->value == low.value && (high->exclusive || low.exclusive))))
    return std::nullopt;
  const bool bounded = high && high->value < kBeyond;
  return RangeWriter(limit_of(low, true), bounded ? std::optional(limit_of(*high, false)) : std::nullopt, places)
      .write();
}

// Whole bounds of whole numbers.
NumberShape whole_bounds(NumberShape shape) {
  if (shape.low) {
    const long double up = std::ceil(shape.low->value);
    shape.low = NumberBound{.value = shape.low->exclusive && up == shape.low->value ? up + 1 : up};
  }
  if (shape.high) {
    const long double down = std::floor(shape.high->value);
    shape.high = NumberBound{.value = shape.high->exclusive && down == shape.high->value ? down - 1 : down};
  }
  shape.places = 0;
  return shape;
}

std::string free_number(const NumberShape& shape) {
  std::string text = fmt::format("\"-\"? (\"0\" | [1-9] [0-9]{{0,{}}})", kFreeDigits - 1);
  if (shape.whole || shape.places == 0) return "(" + text + ")";
  text += fmt::format(" (\".\" [0-9]{{1,{}}})?", shape.places.value_or(kFreeDigits));
  if (!shape.places) text += " ([eE] [+\\-]? [0-9]{1,2})?";
  return "(" + text + ")";
}

}  // namespace

std::optional<std::string> number_expression(const NumberShape& given) {
  if (!given.low && !given.high) return free_number(given);
  const NumberShape shape = given.whole ? whole_bounds(given) : given;
  std::vector<std::string> bodies;
  const NumberBound zero{};
  if (!shape.high || shape.high->value >= 0) {
    const bool from_zero = !shape.low || shape.low->value < 0;
    if (const auto positive = magnitudes(from_zero ? zero : *shape.low, shape.high, shape.places))
      bodies.push_back(*positive);
  }
  if (!shape.low || shape.low->value < 0) {
    NumberBound least{.value = 0, .exclusive = true};
    if (shape.high && shape.high->value < 0) least = {.value = -shape.high->value, .exclusive = shape.high->exclusive};
    if (shape.whole && least.exclusive) least = {.value = 1};
    std::optional<NumberBound> most;
    if (shape.low) most = NumberBound{.value = -shape.low->value, .exclusive = shape.low->exclusive};
    if (const auto negative = magnitudes(least, most, shape.places)) bodies.push_back("\"-\" " + *negative);
  }
  if (bodies.empty()) return std::nullopt;
  return ebnf_either(bodies);
}

std::string multiples_expression(int divisor, GrammarText& grammar) {
  std::vector<std::string> names;  // of the digits behind each remainder
  for (int i = 0; i < divisor; ++i) names.push_back(grammar.reserve());
  const auto step = [&](int remainder, int first) {
    std::vector<std::string> bodies;
    for (int digit = first; digit <= 9; ++digit)
      bodies.push_back(
          fmt::format("\"{}\" {}", digit, names[static_cast<std::size_t>((remainder * 10 + digit) % divisor)]));
    return bodies;
  };
  for (int i = 0; i < divisor; ++i) {
    std::vector<std::string> bodies = step(i, 0);
    if (i == 0) bodies.emplace_back("\"\"");
    grammar.define(names[static_cast<std::size_t>(i)], ebnf_either(bodies));
  }
  return fmt::format("(\"0\" | \"-\"? {})", ebnf_either(step(0, 1)));
}

}  // namespace moracle
