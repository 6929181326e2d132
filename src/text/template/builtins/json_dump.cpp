// json.dumps as transformers calls it from tojson: no HTML escaping, non-ASCII kept by default.
#include <algorithm>
#include <cmath>
#include <utility>

#include "text/template/interpreter.h"
#include "text/template/order.h"
#include "text/template/python_text.h"

namespace moracle::jinja {
namespace {

constexpr std::size_t kBeforeValue = 16;
constexpr std::uint8_t kMaxMargin = 64;  // bytes of an indentation or a separator

class Dumper {
 public:
  explicit Dumper(Interpreter& in) : in_(in) {}
  bool value(const Value& value, int level);

  bool ascii = false;
  bool sort = false;
  std::optional<std::string> indent;
  std::string item_separator = ", ", key_separator = ": ";
  std::string out;

 private:
  bool quoted(std::string_view text);
  bool key(const Value& key);
  bool entry(const Value& name, const Value& item, int level);
  void line(int level) {
    if (!indent) return;
    out.push_back('\n');
    for (int i = 0; i < level; ++i) out += *indent;
  }
  bool list(const std::vector<Value>& items, int level);
  bool dict(const Dict& dict, int level);
  bool grown(std::size_t bytes);

  Interpreter& in_;
};

void append_unit(std::string* out, std::uint32_t unit) {
  static constexpr char kDigits[] = "0123456789abcdef";
  out->append("\\u");
  for (unsigned shift = 16; shift > 0; shift -= 4) out->push_back(kDigits[(unit >> (shift - 4)) & 15U]);
}

// In parts, so that what control characters become is looked at before there is much of it.
bool Dumper::quoted(std::string_view text) {
  constexpr std::size_t kPart = 4096;
  if (!in_.charge(text.size() / 64)) return false;
  out.push_back('"');
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t before = out.size();
    for (const std::size_t end = std::min(at + kPart, text.size()); at < end;) {
      const std::size_t begin = at;
      const char32_t point = next_point(text, &at);
      static constexpr std::string_view kPlain = "\"\\\n\r\t\f\b";
      static constexpr std::string_view kNames = "\"\\nrtfb";
      const std::size_t named = point < 0x80 ? kPlain.find(static_cast<char>(point)) : std::string_view::npos;
      if (named != std::string_view::npos) {
        out.push_back('\\');
        out.push_back(kNames[named]);
      } else if (point < 0x20 || (ascii && point == 0x7F)) {
        append_unit(&out, point);
      } else if (!ascii || point <= 0x7F) {
        out.append(text.substr(begin, at - begin));
      } else if (point < 0x10000) {
        append_unit(&out, point);
      } else {
        append_unit(&out, 0xD800 + ((point - 0x10000) >> 10U));
        append_unit(&out, 0xDC00 + ((point - 0x10000) & 0x3FFU));
      }
    }
    if (!grown(out.size() - before)) return false;
  }
  out.push_back('"');
  return true;
}

// Takes what was added; false where the whole is too long.
bool Dumper::grown(std::size_t bytes) {
  if (out.size() <= in_.limits().output_bytes) return in_.makes(bytes);
  in_.limit("JSON of more than " + std::to_string(in_.limits().output_bytes) + " bytes");
  return false;
}

std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return format_float(value);
}

bool Dumper::key(const Value& key) {
  if (key.text()) return quoted(key.text()->bytes);
  if (key.is_none()) return quoted("null");
  if (const auto* boolean = key.as<bool>()) return quoted(*boolean ? "true" : "false");
  if (const auto* real = key.as<double>()) return quoted(json_number(*real));
  if (const auto integer = key.index()) return quoted(std::to_string(*integer));
  in_.type_error("keys must be str, int, float, bool or None, not " + std::string(key.type_name()));
  return false;
}

bool Dumper::list(const std::vector<Value>& items, int level) {
  out.push_back('[');
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += item_separator;
    line(level + 1);
    if (!value(items[i], level + 1)) return false;
  }
  if (!items.empty()) line(level);
  out.push_back(']');
  return true;
}

bool Dumper::entry(const Value& name, const Value& item, int level) {
  line(level + 1);
  if (!key(name)) return false;
  out += key_separator;
  return value(item, level + 1);
}

bool Dumper::dict(const Dict& dict, int level) {
  const auto& items = dict.items();
  std::vector<std::size_t> order;
  if (sort) {
    if (!in_.makes(2 * items.size() * sizeof(std::size_t))) return false;
    auto sorted = stable_order(items.size(),
                               [&](std::size_t a, std::size_t b) { return in_.less(items[a].first, items[b].first); });
    if (!sorted) return false;
    order = std::move(*sorted);
  }
  out.push_back('{');
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto& [name, item] = items[sort ? order[i] : i];
    if (i > 0) out += item_separator;
    if (!entry(name, item, level)) return false;
  }
  if (!items.empty()) line(level);
  out.push_back('}');
  return true;
}

bool Dumper::value(const Value& value, int level) {
  // What stands before it: separators, and the margin of its line.
  if (!in_.charge(1) || !grown(kBeforeValue + static_cast<std::size_t>(level) * (indent ? indent->size() : 0)))
    return false;
  if (value.is_none()) {
    out += "null";
  } else if (const auto* boolean = value.as<bool>()) {
    out += *boolean ? "true" : "false";
  } else if (const auto* integer = value.as<std::int64_t>()) {
    out += std::to_string(*integer);
  } else if (const auto* real = value.as<double>()) {
    out += json_number(*real);
  } else if (const auto* string = value.text()) {
    return quoted(string->bytes);
  } else if (const auto* items = value.sequence(); items && items->kind <= SequenceKind::tuple) {
    return list(items->items, level);
  } else if (const auto* map = value.dict()) {
    return dict(*map, level);
  } else {
    in_.type_error("Object of type " + std::string(value.type_name()) + " is not JSON serializable");
    return false;
  }
  return true;
}

}  // namespace

Maybe dump_json(Interpreter& in, const Value& value, Arguments& arguments) {
  auto bound = bind(in, "tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  if (!bound) return std::nullopt;
  Dumper dumper(in);
  const auto &ascii = (*bound)[0], &indent = (*bound)[1], &separators = (*bound)[2], &sort = (*bound)[3];
  dumper.ascii = ascii && ascii->truthy();
  dumper.sort = sort && sort->truthy();
  if (indent && !indent->is_none()) {
    if (indent->text()) {
      if (indent->text()->bytes.size() > kMaxMargin) return in.limit("an indentation of more than 64");
      dumper.indent = indent->text()->bytes;
    } else if (const auto width = indent->index()) {
      if (*width > std::int64_t{kMaxMargin}) return in.limit("an indentation of more than 64");
      dumper.indent = std::string(static_cast<std::size_t>(std::max<std::int64_t>(0, *width)), ' ');
    } else {
      return in.type_error("indent must be an integer or a string");
    }
    dumper.item_separator = ",";
  }
  if (separators && !separators->is_none()) {
    const auto parts = in.iterate(*separators);
    if (!parts) return std::nullopt;
    if (parts->size() != 2 || !(*parts)[0].text() || !(*parts)[1].text())
      return in.type_error("separators must be two strings");
    const std::string &between = (*parts)[0].text()->bytes, &behind_key = (*parts)[1].text()->bytes;
    if (between.size() > kMaxMargin || behind_key.size() > kMaxMargin)
      return in.limit("a separator of more than 64 bytes");
    dumper.item_separator = between;
    dumper.key_separator = behind_key;
  }
  if (!dumper.value(value, 0)) return std::nullopt;
  return in.made_text(std::move(dumper.out));
}

}  // namespace moracle::jinja
