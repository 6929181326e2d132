// + - * / // % ** with Python's types and signs. Integers have 64 bits; what does not fit is an error, not a wrap.
#include <cmath>
#include <limits>
#include <utility>

#include "text/template/interpreter.h"

namespace moracle::jinja {
namespace {

std::size_t escaped_size(std::string_view text) {
  std::size_t size = text.size();
  for (const char unit : text) {
    if (unit == '&' || unit == '"' || unit == '\'') size += 4;
    if (unit == '<' || unit == '>') size += 3;
  }
  return size;
}

void append_escaped(std::string* out, std::string_view text) {
  for (const char unit : text) {
    switch (unit) {
      case '&':
        out->append("&amp;");
        break;
      case '<':
        out->append("&lt;");
        break;
      case '>':
        out->append("&gt;");
        break;
      case '"':
        out->append("&#34;");
        break;
      case '\'':
        out->append("&#39;");
        break;
      default:
        out->push_back(unit);
    }
  }
}

}  // namespace

Maybe Interpreter::binary(std::string_view op, const Value& a, const Value& b) {
  if (op == "%" && a.text()) return format_percent(*this, a.text()->bytes, b);
  if (a.is_undefined()) return undefined_error(a);
  if (b.is_undefined()) return undefined_error(b);
  if (op == "+") return add(a, b);
  if (op == "*") return multiply(a, b);
  if (const auto* view = a.sequence(); op == "-" && view && view->kind > SequenceKind::range)
    return fail("template.unsupported", "a difference of " + std::string(a.type_name()) + ": a set has no order");
  if (!a.is_number() || !b.is_number())
    return type_error("unsupported operand type(s) for " + std::string(op) + ": '" + std::string(a.type_name()) +
                      "' and '" + std::string(b.type_name()) + "'");
  if (op == "**") return power(a, b);
  return arithmetic(op == "//" ? 'f' : op[0], a, b);
}

Maybe Interpreter::add(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return arithmetic('+', a, b);
  if (const auto *left = a.text(), *right = b.text(); left && right) {
    const bool escapes_left = right->markup && !left->markup, escapes_right = left->markup && !right->markup;
    if ((escapes_left || escapes_right) && !charge_text(TextCost::walk, left->bytes.size() + right->bytes.size()))
      return std::nullopt;
    const std::size_t size = (escapes_left ? escaped_size(left->bytes) : left->bytes.size()) +
                             (escapes_right ? escaped_size(right->bytes) : right->bytes.size());
    if (!room(size)) return std::nullopt;
    std::string out;
    out.reserve(size);
    for (const auto& [text, escapes] : {std::pair(left, escapes_left), std::pair(right, escapes_right)}) {
      if (escapes) {
        append_escaped(&out, text->bytes);
      } else {
        out += text->bytes;
      }
    }
    return Value::text(std::move(out), left->markup || right->markup);
  }
  const auto *left = a.sequence(), *right = b.sequence();
  if (left && right && left->kind == right->kind && left->kind <= SequenceKind::tuple) {
    if (!room_for(left->items.size() + right->items.size())) return std::nullopt;
    std::vector<Value> items;
    items.reserve(left->items.size() + right->items.size());
    items.insert(items.end(), left->items.begin(), left->items.end());
    items.insert(items.end(), right->items.begin(), right->items.end());
    return made_sequence(std::move(items), left->kind);
  }
  return type_error("unsupported operand type(s) for +: '" + std::string(a.type_name()) + "' and '" +
                    std::string(b.type_name()) + "'");
}

Maybe Interpreter::multiply(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return arithmetic('*', a, b);
  if (const auto times = b.index()) return repeat(a, *times);
  if (const auto times = a.index()) return repeat(b, *times);
  return type_error("can't multiply '" + std::string(a.type_name()) + "' by '" + std::string(b.type_name()) + "'");
}

Maybe Interpreter::repeat(const Value& value, std::int64_t times) {
  const auto* list = value.sequence();
  const bool repeats = list && list->kind <= SequenceKind::tuple;
  if (!value.text() && !repeats)
    return type_error("can't multiply sequence by '" + std::string(value.type_name()) + "'");
  const std::size_t size = list ? list->items.size() : value.text()->bytes.size();
  const std::size_t count = times > 0 && size > 0 ? static_cast<std::size_t>(times) : 0;
  const std::size_t most = list ? limits_.steps : limits_.output_bytes;
  if (count > 0 && count > most / size) return limit("a repetition that is too long");
  if (!(list ? room_for(size * count) : room(size * count))) return std::nullopt;
  if (list) {
    std::vector<Value> items;
    items.reserve(size * count);
    for (std::size_t i = 0; i < count; ++i) items.insert(items.end(), list->items.begin(), list->items.end());
    return made_sequence(std::move(items), list->kind);
  }
  std::string out;
  out.reserve(size * count);
  if (size == 1) out.append(count, value.text()->bytes[0]);
  for (std::size_t i = size == 1 ? count : 0; i < count; ++i) out += value.text()->bytes;
  return Value::text(std::move(out), value.text()->markup);
}

Maybe Interpreter::integer_arithmetic(char op, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  bool overflow = false;
  switch (op) {
    case '+':
      overflow = __builtin_add_overflow(a, b, &out);
      break;
    case '-':
      overflow = __builtin_sub_overflow(a, b, &out);
      break;
    case '*':
      overflow = __builtin_mul_overflow(a, b, &out);
      break;
    default:
      if (b == 0) return type_error("division by zero");
      if (b == -1) {
        overflow = op == 'f' && __builtin_sub_overflow(std::int64_t{0}, a, &out);
        break;
      }
      out = op == 'f' ? a / b : a % b;
      if (a % b != 0 && (a % b < 0) != (b < 0)) out += op == 'f' ? -1 : b;
  }
  if (overflow) return limit("an integer of more than 64 bits");
  return Value::integer(out);
}

Maybe Interpreter::arithmetic(char op, const Value& a, const Value& b) {
  if (op != '/' && !a.as<double>() && !b.as<double>()) return integer_arithmetic(op, *a.index(), *b.index());
  const double left = a.number(), right = b.number();
  if (op == '+') return Value::real(left + right);
  if (op == '-') return Value::real(left - right);
  if (op == '*') return Value::real(left * right);
  if (right == 0.0) return type_error("division by zero");
  if (op == '/') return Value::real(left / right);
  double rest = std::fmod(left, right);
  double quotient = (left - rest) / right;
  if (rest != 0.0 && (rest < 0.0) != (right < 0.0)) {
    rest += right;
    quotient -= 1.0;
  }
  if (rest == 0.0) rest = std::copysign(0.0, right);
  if (op == '%') return Value::real(rest);
  double whole = std::floor(quotient);
  if (quotient - whole > 0.5) whole += 1.0;
  return Value::real(quotient == 0.0 ? std::copysign(0.0, left / right) : whole);
}

Maybe Interpreter::power(const Value& a, const Value& b) {
  const bool real = a.as<double>() || b.as<double>() || *b.index() < 0;
  if (real) {
    const double base = a.number(), exponent = b.number();
    if (base == 0.0 && exponent < 0.0) return type_error("0.0 cannot be raised to a negative power");
    const double out = std::pow(base, exponent);
    if (std::isnan(out) && !std::isnan(base) && !std::isnan(exponent)) return type_error("a complex number");
    if (std::isinf(out) && std::isfinite(base) && std::isfinite(exponent)) return type_error("a result out of range");
    return Value::real(out);
  }
  std::int64_t base = *a.index(), exponent = *b.index(), out = 1;
  if (base == 0 || base == 1) return Value::integer(exponent == 0 ? 1 : base);
  if (base == -1) return Value::integer(exponent % 2 == 0 ? 1 : -1);
  if (exponent > 63) return limit("an integer of more than 64 bits");
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(out, base, &out)) return limit("an integer of more than 64 bits");
  }
  return Value::integer(out);
}

}  // namespace moracle::jinja
