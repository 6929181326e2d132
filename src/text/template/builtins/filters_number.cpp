#include "text/template/builtins/filters_number.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

#include "text/template/python_text.h"

namespace moracle::jinja {
namespace {

// Python allows single underscores between digits.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.push_back(text[i]);
      continue;
    }
    const auto word = [](char unit) {
      return (unit >= '0' && unit <= '9') || ((unit | 0x20) >= 'a' && (unit | 0x20) <= 'z');
    };
    if (i == 0 || i + 1 == text.size() || !word(text[i - 1]) || !word(text[i + 1])) return std::nullopt;
  }
  return out;
}

// float(text); nullopt: Python raises ValueError.
std::optional<double> parse_real(std::string_view text) {
  const auto clean = without_underscores(strip(text, Side::both));
  if (!clean || clean->empty()) return std::nullopt;
  std::string_view body = *clean;
  const bool negative = body[0] == '-';
  if (negative || body[0] == '+') body.remove_prefix(1);
  const std::string lower = to_lower(body);
  if (lower == "inf" || lower == "infinity") return negative ? -HUGE_VAL : HUGE_VAL;
  if (lower == "nan") return std::nan("");
  if (body.empty() || (body[0] != '.' && (body[0] < '0' || body[0] > '9'))) return std::nullopt;
  double value = 0;
  const auto parsed = std::from_chars(body.data(), body.data() + body.size(), value);
  if (parsed.ptr != body.data() + body.size()) return std::nullopt;
  if (parsed.ec == std::errc::result_out_of_range) {
    // from_chars does not say which side it fell off.
    const std::size_t exponent = lower.find('e');
    value = exponent != std::string::npos && exponent + 1 < lower.size() && lower[exponent + 1] == '-' ? 0.0 : HUGE_VAL;
  } else if (parsed.ec != std::errc{}) {
    return std::nullopt;
  }
  return negative ? -value : value;
}

enum class Parse { ok, wrong, too_large };

Parse parse_integer(std::string_view text, std::int64_t base, std::int64_t* out) {
  const auto clean = without_underscores(strip(text, Side::both));
  if (!clean || clean->empty()) return Parse::wrong;
  std::string_view body = *clean;
  const bool negative = body[0] == '-';
  if (negative || body[0] == '+') body.remove_prefix(1);
  if (body.size() > 2 && body[0] == '0') {
    const char mark = static_cast<char>(body[1] | 0x20);
    const int named = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (named != 0 && (base == named || base == 0)) {
      base = named;
      body.remove_prefix(2);
    }
  }
  if (base == 0) base = 10;
  std::string digits(negative ? "-" : "");
  digits += body;
  if (body.empty() || body[0] == '-' || body[0] == '+') return Parse::wrong;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), *out, static_cast<int>(base));
  if (parsed.ptr != digits.data() + digits.size()) return Parse::wrong;
  return parsed.ec == std::errc::result_out_of_range ? Parse::too_large
         : parsed.ec == std::errc{}                  ? Parse::ok
                                                     : Parse::wrong;
}

Maybe whole(Interpreter& in, double value) {
  if (std::isinf(value)) return in.type_error("cannot convert float infinity to integer");
  if (std::fabs(value) >= 9.2e18) return in.limit("an integer of more than 64 bits");
  return Value::integer(static_cast<std::int64_t>(value));
}

}  // namespace

Maybe filter_int(Interpreter& in, const Value& value, Arguments& arguments) {
  const auto bound = bind(in, "int", arguments, {"default", "base"});
  if (!bound) return std::nullopt;
  if (value.is_undefined()) return in.undefined_error(value);
  const Value otherwise = (*bound)[0].value_or(Value::integer(0));
  if (value.index()) return Value::integer(*value.index());
  if (const auto* real = value.as<double>()) return std::isnan(*real) ? otherwise : whole(in, *real);
  if (!value.text()) return otherwise;
  const auto base = (*bound)[1] ? (*bound)[1]->index() : 10;
  if (!base || *base < 0 || *base == 1 || *base > 36) return otherwise;
  std::int64_t integer = 0;
  const Parse parsed = parse_integer(value.text()->bytes, *base, &integer);
  if (parsed == Parse::ok) return Value::integer(integer);
  if (parsed == Parse::too_large) return in.limit("an integer of more than 64 bits");
  const auto real = parse_real(value.text()->bytes);
  return real && std::isfinite(*real) ? whole(in, *real) : otherwise;
}

Maybe filter_float(Interpreter& in, const Value& value, Arguments& arguments) {
  const auto bound = bind(in, "float", arguments, {"default"});
  if (!bound) return std::nullopt;
  if (value.is_undefined()) return in.undefined_error(value);
  if (value.is_number()) return Value::real(value.number());
  const auto real = value.text() ? parse_real(value.text()->bytes) : std::nullopt;
  return real ? Value::real(*real) : (*bound)[0].value_or(Value::real(0.0));
}

Maybe filter_round(Interpreter& in, const Value& value, Arguments& arguments) {
  const auto bound = bind(in, "round", arguments, {"precision", "method"});
  if (!bound) return std::nullopt;
  if (value.is_undefined()) return in.undefined_error(value);
  if (!value.is_number())
    return in.type_error("type " + std::string(value.type_name()) + " doesn't define __round__ method");
  const auto precision = (*bound)[0] ? (*bound)[0]->index() : 0;
  const std::string_view method = word((*bound)[1], "common");
  if (!precision) return in.type_error("the precision of round is no integer");
  if (*precision < -300 || *precision > 300) return in.limit("the precision of round");
  if (method == "ceil" || method == "floor") {
    const double scale = std::pow(10.0, static_cast<double>(*precision));
    const double scaled = value.number() * scale;
    return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
  }
  if (method != "common") return in.type_error("method must be common, ceil or floor");
  if (value.index() && *precision >= 0) return Value::integer(*value.index());
  if (value.index() || *precision < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-*precision));
    const double rounded = std::nearbyint(value.number() / scale) * scale;
    return value.index() ? whole(in, rounded) : Value::real(rounded);
  }
  if (!std::isfinite(value.number())) return value;
  // The shortest way to a correctly rounded decimal is to print it.
  std::array<char, 720> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*f", static_cast<int>(*precision), value.number());
  return Value::real(std::strtod(buffer.data(), nullptr));
}

Maybe filter_abs(Interpreter& in, const Value& value, Arguments& arguments) {
  if (!bind(in, "abs", arguments, {})) return std::nullopt;
  if (value.is_undefined()) return in.undefined_error(value);
  if (!value.is_number()) return in.type_error("bad operand type for abs(): '" + std::string(value.type_name()) + "'");
  if (value.as<double>()) return Value::real(std::fabs(value.number()));
  return *value.index() < 0 ? in.binary("-", Value::integer(0), value) : Value::integer(*value.index());
}

}  // namespace moracle::jinja
