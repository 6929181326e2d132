// The two formatting mini-languages of Python's strings.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include "text/template/interpreter.h"
#include "text/template/python_text.h"

namespace moracle::jinja {
namespace {

struct Spec {
  char fill = ' ';
  char align = 0;  // '<', '>', '^' or not given
  bool plus = false, space = false, alternate = false, zero = false, comma = false;
  std::int64_t width = 0;
  std::int64_t precision = -1;
  char type = 0;
};

constexpr std::int64_t kMaxPrecision = 64;

bool is_digit(char unit) {
  return unit >= '0' && unit <= '9';
}

// Up to seven digits; what is longer is past every limit.
std::int64_t read_count(std::string_view text, std::size_t* at) {
  std::int64_t value = 0;
  for (; *at < text.size() && is_digit(text[*at]); ++*at)
    value = std::min<std::int64_t>(value * 10 + (text[*at] - '0'), 1 << 30);
  return value;
}

std::optional<std::string> pad(Interpreter& in, std::string body, const Spec& spec, char fallback) {
  if (spec.width <= 0) return body;
  if (spec.width > static_cast<std::int64_t>(in.limits().output_bytes))
    return in.limit("a format width that is too large");
  const auto size = static_cast<std::int64_t>(count_points(body));
  if (spec.width <= size) return body;
  const auto missing = static_cast<std::size_t>(spec.width - size);
  if (!in.room(body.size() + missing)) return std::nullopt;
  const char align = spec.align ? spec.align : fallback;
  if (spec.zero && !spec.align) {
    const std::size_t sign = !body.empty() && (body[0] == '-' || body[0] == '+' || body[0] == ' ') ? 1 : 0;
    return body.insert(sign, missing, '0');
  }
  if (align == '<') return body.append(missing, spec.fill);
  if (align == '>') return body.insert(0, missing, spec.fill);
  return body.insert(0, missing / 2, spec.fill).append(missing - missing / 2, spec.fill);
}

std::string sign_of(bool negative, const Spec& spec) {
  if (negative) return "-";
  return spec.plus ? "+" : spec.space ? " " : "";
}

void group_thousands(std::string* digits) {
  const std::size_t whole = std::min(digits->find('.'), digits->size());
  for (std::size_t at = whole; at > 3; at -= 3) digits->insert(at - 3, 1, ',');
}

std::string format_real(double value, const Spec& spec) {
  if (!std::isfinite(value)) return sign_of(value < 0, spec) + (std::isnan(value) ? "nan" : "inf");
  const bool percent = spec.type == '%';
  const char type = percent ? 'f' : spec.type;
  const std::array<char, 5> format = {'%', '.', '*', type, '\0'};
  std::array<char, 512> buffer{};
  const int precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  std::snprintf(buffer.data(), buffer.size(), format.data(), precision, std::fabs(percent ? value * 100.0 : value));
#pragma GCC diagnostic pop
  std::string digits = buffer.data();
  if (spec.comma) group_thousands(&digits);
  return sign_of(std::signbit(value), spec) + digits + (percent ? "%" : "");
}

std::string format_integer(std::int64_t value, const Spec& spec) {
  const std::uint64_t magnitude =
      value < 0 ? std::uint64_t{0} - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  const unsigned base = spec.type == 'x' || spec.type == 'X' ? 16 : spec.type == 'o' ? 8 : spec.type == 'b' ? 2 : 10;
  std::string digits;
  for (std::uint64_t rest = magnitude; rest > 0 || digits.empty(); rest /= base) {
    digits.insert(digits.begin(), (spec.type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[rest % base]);
  }
  if (spec.comma) group_thousands(&digits);
  if (spec.precision > static_cast<std::int64_t>(digits.size()))
    digits.insert(0, static_cast<std::size_t>(spec.precision) - digits.size(), '0');
  const std::string prefix = !spec.alternate || base == 10 ? "" : std::string("0") + spec.type;
  return sign_of(value < 0, spec) + prefix + digits;
}

Maybe repr_of(Interpreter& in, const Value& value) {
  auto shown = in.repr(value);
  return shown ? in.made_text(std::move(*shown)) : std::nullopt;
}

// The first `precision` code points of a text, or all of it: a copy whose room is taken.
std::optional<std::string> truncated(Interpreter& in, std::string_view text, std::int64_t precision) {
  if (precision >= 0) {
    if (!in.charge_text(TextCost::scan, text.size())) return std::nullopt;
    text = text.substr(0, skip_points(text, 0, precision));
  }
  return in.room(text.size()) ? std::optional<std::string>(text) : std::nullopt;
}

// What is formatted so far, and what comes to it.
bool append_piece(Interpreter& in, const std::optional<std::string>& piece, std::string* out) {
  if (!piece || !in.charge(1)) return false;
  *out += *piece;
  if (out->size() <= in.limits().output_bytes) return true;
  in.limit("a formatted text that is too long");
  return false;
}

class PercentFormat {
 public:
  PercentFormat(Interpreter& in, std::string_view format, const Value& values)
      : in_(in), format_(format), values_(values) {
    if (const auto* list = values.sequence(); list && list->kind == SequenceKind::tuple) positional_ = &list->items;
  }

  Maybe run() {
    if (!in_.charge_text(TextCost::walk, format_.size()) || !in_.room(format_.size())) return std::nullopt;
    std::string out;
    for (std::size_t at = 0; at < format_.size();) {
      if (format_[at] != '%') {
        out.push_back(format_[at++]);
        continue;
      }
      ++at;
      if (!append_piece(in_, conversion(&at), &out)) return std::nullopt;
    }
    const bool leftover = positional_ ? next_ < positional_->size() : !used_ && !has_items();
    if (leftover) return in_.type_error("not all arguments converted during string formatting");
    return in_.made_text(std::move(out));
  }

 private:
  // Python takes whatever has __getitem__ for a mapping, of which some may be left over.
  [[nodiscard]] bool has_items() const { return values_.sequence() || values_.dict() || values_.is_undefined(); }

  std::optional<Value> take() {
    if (positional_) {
      if (next_ < positional_->size()) return (*positional_)[next_++];
    } else if (!std::exchange(used_, true)) {
      return values_;
    }
    return in_.type_error("not enough arguments for format string");
  }

  std::optional<std::int64_t> count(std::size_t* at) {
    if (*at >= format_.size() || format_[*at] != '*') return read_count(format_, at);
    ++*at;
    const auto value = take();
    if (!value) return std::nullopt;
    if (!value->index()) return in_.type_error("* wants int");
    const std::int64_t longest = std::int64_t{1} << 30;  // past every limit
    return std::clamp(*value->index(), -longest, longest);
  }

  std::optional<std::string> conversion(std::size_t* at) {
    std::optional<Value> named;
    if (*at < format_.size() && format_[*at] == '(') {
      const std::size_t end = format_.find(')', *at);
      if (end == std::string_view::npos) return in_.type_error("incomplete format key");
      if (!values_.dict()) return in_.type_error("format requires a mapping");
      const Value* found = in_.charge(1) ? values_.dict()->find(format_.substr(*at + 1, end - *at - 1)) : nullptr;
      if (!found) return in_.type_error("a format key that is not there");
      named = *found;
      *at = end + 1;
    }
    Spec spec;
    for (; *at < format_.size(); ++*at) {
      const char flag = format_[*at];
      if (flag == '-')
        spec.align = '<';
      else if (flag == '+')
        spec.plus = true;
      else if (flag == ' ')
        spec.space = true;
      else if (flag == '#')
        spec.alternate = true;
      else if (flag == '0')
        spec.zero = true;
      else
        break;
    }
    const auto width = count(at);
    if (!width) return std::nullopt;
    spec.width = *width < 0 ? -*width : *width;
    if (*width < 0) spec.align = '<';
    if (*at < format_.size() && format_[*at] == '.') {
      ++*at;
      const auto precision = count(at);
      if (!precision) return std::nullopt;
      spec.precision = std::max<std::int64_t>(0, *precision);
    }
    if (*at >= format_.size()) return in_.type_error("incomplete format");
    spec.type = format_[(*at)++];
    if (spec.type == '%') return std::string("%");
    const auto value = named ? std::move(named) : take();
    if (!value) return std::nullopt;
    return convert(*value, spec);
  }

  std::optional<std::string> convert(const Value& value, Spec spec) {
    static constexpr std::string_view kTypes = "diuxXofFeEgGsrac";
    if (kTypes.find(spec.type) == std::string_view::npos) return in_.type_error("unsupported format character");
    if (spec.type == 's' || spec.type == 'r' || spec.type == 'a') {
      const Maybe text = spec.type == 's' ? in_.as_text(value) : repr_of(in_, value);
      auto shown = text ? truncated(in_, text->text()->bytes, spec.precision) : std::nullopt;
      if (!shown) return std::nullopt;
      spec.zero = false;
      return pad(in_, std::move(*shown), spec, '>');
    }
    if (spec.type == 'c') {
      if (!value.text() || value.text()->bytes.size() > 4 || count_points(value.text()->bytes) != 1)
        return in_.type_error("%c requires a character");
      return pad(in_, value.text()->bytes, spec, '>');
    }
    if (value.is_undefined()) return in_.undefined_error(value);
    if (!value.is_number()) return in_.type_error("a number is required, not " + std::string(value.type_name()));
    if (spec.precision > kMaxPrecision) return in_.limit("a format precision that is too large");
    if (spec.type >= 'e' && spec.type <= 'g') return pad(in_, format_real(value.number(), spec), spec, '>');
    if (spec.type >= 'E' && spec.type <= 'G') return pad(in_, format_real(value.number(), spec), spec, '>');
    const bool hex = spec.type == 'x' || spec.type == 'X' || spec.type == 'o';
    if (hex && !value.index()) return in_.type_error("an integer is required");
    if (!hex) spec.type = 'd';
    if (value.index()) return pad(in_, format_integer(*value.index(), spec), spec, '>');
    const double whole = std::trunc(value.number());
    if (!(std::fabs(whole) < 9e18)) return in_.limit("an integer of more than 64 bits");
    return pad(in_, format_integer(static_cast<std::int64_t>(whole), spec), spec, '>');
  }

  Interpreter& in_;
  std::string_view format_;
  const Value& values_;
  const std::vector<Value>* positional_ = nullptr;
  std::size_t next_ = 0;
  bool used_ = false;
};

class BraceFormat {
 public:
  BraceFormat(Interpreter& in, std::string_view format, const Arguments& arguments)
      : in_(in), format_(format), arguments_(arguments) {}

  Maybe run() {
    if (!in_.charge_text(TextCost::walk, format_.size()) || !in_.room(format_.size())) return std::nullopt;
    std::string out;
    for (std::size_t at = 0; at < format_.size();) {
      const char unit = format_[at++];
      const bool doubled = at < format_.size() && format_[at] == unit;
      if ((unit != '{' && unit != '}') || doubled) {
        out.push_back(unit);
        if (unit == '{' || unit == '}') ++at;
        continue;
      }
      const std::size_t end = format_.find('}', at);
      if (unit == '}' || end == std::string_view::npos) return in_.type_error("a single brace in a format string");
      if (!append_piece(in_, field(format_.substr(at, end - at)), &out)) return std::nullopt;
      at = end + 1;
    }
    return in_.made_text(std::move(out));
  }

 private:
  std::optional<std::string> field(std::string_view body) {
    const std::size_t colon = body.find(':');
    const std::string_view spec = colon == std::string_view::npos ? "" : body.substr(colon + 1);
    std::string_view name = body.substr(0, colon);
    const std::size_t bang = name.find('!');
    const std::string_view conversion = bang == std::string_view::npos ? "" : name.substr(bang + 1);
    name = name.substr(0, bang);
    if (name.find_first_of(".[") != std::string_view::npos || spec.find('{') != std::string_view::npos)
      return in_.type_error("a format field with attributes, items or nested fields");
    auto value = lookup(name);
    if (!value) return std::nullopt;
    if (!conversion.empty()) {
      if (conversion != "r" && conversion != "s") return in_.type_error("an unknown conversion in a format string");
      value = conversion == "r" ? repr_of(in_, *value) : in_.as_text(*value);
      if (!value) return std::nullopt;
    }
    return apply(*value, spec);
  }

  Maybe lookup(std::string_view name) {
    if (name.empty() || is_digit(name[0])) {
      std::size_t at = 0, position = next_;
      if (name.empty()) {
        ++next_;
      } else {
        position = static_cast<std::size_t>(read_count(name, &at));
      }
      if (at == name.size() && position < arguments_.positional.size()) return arguments_.positional[position];
      return in_.type_error("Replacement index out of range for positional args tuple");
    }
    if (!in_.charge(1 + arguments_.named.size() / kNamesPerStep)) return std::nullopt;
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    return in_.type_error("a format field that is not given: '" + shortened(name, kNameBytes) + "'");
  }

  std::optional<std::string> apply(const Value& value, std::string_view text) {
    if (text.empty()) {
      const Maybe shown = in_.as_text(value);
      return shown ? truncated(in_, shown->text()->bytes, -1) : std::nullopt;
    }
    Spec spec;
    std::size_t at = 0;
    static constexpr std::string_view kAligns = "<>^";
    if (text.size() > 1 && kAligns.find(text[1]) != std::string_view::npos) {
      spec.fill = text[0];
      spec.align = text[1];
      at = 2;
    } else if (kAligns.find(text[0]) != std::string_view::npos) {
      spec.align = text[at++];
    }
    if (static_cast<unsigned char>(spec.fill) >= 0x80) return in_.type_error("a format fill that is not ASCII");
    if (at < text.size() && (text[at] == '+' || text[at] == ' ' || text[at] == '-')) {
      spec.plus = text[at] == '+';
      spec.space = text[at] == ' ';
      ++at;
    }
    if (at < text.size() && text[at] == '#') spec.alternate = ++at > 0;
    if (at < text.size() && text[at] == '0') spec.zero = ++at > 0;
    spec.width = read_count(text, &at);
    if (at < text.size() && text[at] == ',') spec.comma = ++at > 0;
    if (at < text.size() && text[at] == '.') spec.precision = read_count(text, &++at);
    if (at < text.size()) spec.type = text[at++];
    if (at != text.size()) return in_.type_error("an invalid format specifier");
    if (spec.precision > kMaxPrecision && !value.text()) return in_.limit("a format precision that is too large");
    return typed(value, spec);
  }

  std::optional<std::string> typed(const Value& value, Spec spec) {
    static constexpr std::string_view kReal = "fFeEgG%";
    if (value.text() && (spec.type == 0 || spec.type == 's')) {
      auto shown = truncated(in_, value.text()->bytes, spec.precision);
      return shown ? pad(in_, std::move(*shown), spec, '<') : std::nullopt;
    }
    const bool real = kReal.find(spec.type) != std::string_view::npos && spec.type != 0;
    if (value.is_number() && real) return pad(in_, format_real(value.number(), spec), spec, '>');
    if (value.index() && (spec.type == 0 || std::string_view("dxXob").find(spec.type) != std::string_view::npos))
      return pad(in_, format_integer(*value.index(), spec), spec, '>');
    if (value.as<double>() && spec.type == 0 && spec.precision < 0)
      return pad(in_, format_float(value.number()), spec, '>');
    return in_.type_error("an unsupported format specifier for '" + std::string(value.type_name()) + "'");
  }

  Interpreter& in_;
  std::string_view format_;
  const Arguments& arguments_;
  std::size_t next_ = 0;
};

}  // namespace

Maybe format_percent(Interpreter& in, std::string_view format, const Value& values) {
  return PercentFormat(in, format, values).run();
}

Maybe format_braces(Interpreter& in, std::string_view format, const Arguments& arguments) {
  return BraceFormat(in, format, arguments).run();
}

}  // namespace moracle::jinja
