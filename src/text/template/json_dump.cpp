// json.dumps as transformers calls it from tojson: no HTML escaping, non-ASCII kept by default.
#include <algorithm>
#include <cmath>
#include <utility>

#include "text/template/interpreter.h"
#include "text/template/order.h"
#include "text/template/unicode.h"

namespace moracle::jinja {
namespace {

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
  void quoted(std::string_view text);
  std::optional<std::string> key(const Value& key);
  void line(int level) {
    if (!indent) return;
    out.push_back('\n');
    for (int i = 0; i < level; ++i) out += *indent;
  }
  bool list(const std::vector<Value>& items, int level);
  bool dict(const Dict& dict, int level);

  Interpreter& in_;
};

void append_unit(std::string* out, std::uint32_t unit) {
  static constexpr char kDigits[] = "0123456789abcdef";
  out->append("\\u");
  for (unsigned shift = 16; shift > 0; shift -= 4) out->push_back(kDigits[(unit >> (shift - 4)) & 15U]);
}

void Dumper::quoted(std::string_view text) {
  out.push_back('"');
  for (std::size_t at = 0; at < text.size();) {
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
  out.push_back('"');
}

std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return format_float(value);
}

std::optional<std::string> Dumper::key(const Value& key) {
  if (key.text()) return key.text()->bytes;
  if (key.is_none()) return "null";
  if (const auto* boolean = key.as<bool>()) return *boolean ? "true" : "false";
  if (const auto* real = key.as<double>()) return json_number(*real);
  if (const auto integer = key.index()) return std::to_string(*integer);
  return in_.type_error("keys must be str, int, float, bool or None, not " + std::string(key.type_name()));
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

bool Dumper::dict(const Dict& dict, int level) {
  const std::vector<std::size_t> order = stable_order(dict.size(), [&](std::size_t a, std::size_t b) {
    return sort && in_.less(dict.items()[a].first, dict.items()[b].first).value_or(false);
  });
  if (in_.failed()) return false;
  out.push_back('{');
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto& [name, item] = dict.items()[order[i]];
    if (i > 0) out += item_separator;
    line(level + 1);
    const auto text = key(name);
    if (!text) return false;
    quoted(*text);
    out += key_separator;
    if (!value(item, level + 1)) return false;
  }
  if (!order.empty()) line(level);
  out.push_back('}');
  return true;
}

bool Dumper::value(const Value& value, int level) {
  if (out.size() > in_.limits().output_bytes) {
    in_.limit("JSON of more than " + std::to_string(in_.limits().output_bytes) + " bytes");
    return false;
  }
  if (!in_.charge(1)) return false;
  if (value.is_none()) {
    out += "null";
  } else if (const auto* boolean = value.as<bool>()) {
    out += *boolean ? "true" : "false";
  } else if (const auto* integer = value.as<std::int64_t>()) {
    out += std::to_string(*integer);
  } else if (const auto* real = value.as<double>()) {
    out += json_number(*real);
  } else if (const auto* string = value.text()) {
    if (!in_.charge(string->bytes.size() / 64)) return false;
    quoted(string->bytes);
  } else if (const auto* items = value.sequence(); items && items->flavour <= Flavour::tuple) {
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
      dumper.indent = indent->text()->bytes;
    } else if (const auto width = indent->index()) {
      if (*width > 64) return in.limit("an indentation of more than 64");
      dumper.indent = std::string(static_cast<std::size_t>(std::max<std::int64_t>(0, *width)), ' ');
    } else {
      return in.type_error("indent must be an integer or a string");
    }
    if (dumper.indent->size() > 64) return in.limit("an indentation of more than 64");
    dumper.item_separator = ",";
  }
  if (separators && !separators->is_none()) {
    const auto parts = in.iterate(*separators);
    if (!parts) return std::nullopt;
    if (parts->size() != 2 || !(*parts)[0].text() || !(*parts)[1].text())
      return in.type_error("separators must be two strings");
    dumper.item_separator = (*parts)[0].text()->bytes;
    dumper.key_separator = (*parts)[1].text()->bytes;
    if (dumper.item_separator.size() > 64 || dumper.key_separator.size() > 64)
      return in.limit("a separator of more than 64 bytes");
  }
  if (!dumper.value(value, 0)) return std::nullopt;
  return in.text(std::move(dumper.out));
}

}  // namespace moracle::jinja
