// Python's repr of values.
#include <algorithm>
#include <utility>

#include "text/template/interpreter.h"
#include "text/template/python_text.h"

namespace moracle::jinja {
namespace {

// Text is read in parts of this size, and what it became is looked at between them.
constexpr std::size_t kPart = 4096;
// Of a value that only shows in a message.
constexpr std::size_t kBrief = 80;

void append_hex(std::string* out, char32_t point) {
  static constexpr char kDigits[] = "0123456789abcdef";
  const int width = point <= 0xFF ? 2 : point <= 0xFFFF ? 4 : 8;
  out->append(width == 2 ? "\\x" : width == 4 ? "\\u" : "\\U");
  for (int shift = (width - 1) * 4; shift >= 0; shift -= 4)
    out->push_back(kDigits[(point >> static_cast<unsigned>(shift)) & 15U]);
}

class Printer {
 public:
  Printer(Interpreter& in, bool brief) : in_(in), most_(brief ? kBrief : in.limits().output_bytes), brief_(brief) {}
  bool print(const Value& value, int depth);
  std::string take() { return std::move(out_); }

 private:
  // A brief text ends where it is long enough; a full one must not be longer.
  [[nodiscard]] bool is_full() const { return out_.size() > most_; }
  bool quote(std::string_view text);
  bool print(const Sequence& list, std::string_view name, int depth);
  bool print(const Dict& dict, int depth);
  bool print(const Namespace& space, int depth);

  Interpreter& in_;
  std::size_t most_;
  bool brief_;
  std::string out_;
};

bool Printer::quote(std::string_view text) {
  if (brief_) text = text.substr(0, std::min(text.size(), kBrief + 4));  // what is cut off a character does not show
  if (!in_.charge_text(TextCost::walk, text.size())) return false;
  const bool single = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = single ? '"' : '\'';
  out_.push_back(quote);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t before = out_.size();
    for (const std::size_t end = std::min(at + kPart, text.size()); at < end;) {
      const std::size_t begin = at;
      const char32_t point = next_point(text, &at);
      if (point == static_cast<char32_t>(quote) || point == '\\') {
        out_.push_back('\\');
        out_.push_back(static_cast<char>(point));
      } else if (point == '\n') {
        out_.append("\\n");
      } else if (point == '\r') {
        out_.append("\\r");
      } else if (point == '\t') {
        out_.append("\\t");
      } else if (is_printable(point)) {
        out_.append(text.substr(begin, at - begin));
      } else {
        append_hex(&out_, point);
      }
    }
    if (!in_.makes(out_.size() - before)) return false;
    if (is_full()) return true;
  }
  out_.push_back(quote);
  return true;
}

bool Printer::print(const Value& value, int depth) {
  if (is_full() && brief_) return true;
  // A namespace may hold itself, so the depth of the value alone bounds nothing.
  if (depth > in_.limits().depth || is_full()) {
    in_.limit("text of a value that is too deep or too long");
    return false;
  }
  if (!in_.charge(1)) return false;
  if (const auto* string = value.text()) {
    if (string->markup) out_.append("Markup(");
    if (!quote(string->bytes)) return false;
    if (string->markup) out_.append(")");
    return true;
  }
  if (const auto* list = value.sequence()) return print(*list, value.type_name(), depth);
  if (const auto* map = value.dict()) return print(*map, depth);
  if (const auto* space = value.as<NamespacePtr>()) return print(**space, depth);
  if (value.is_undefined()) {
    out_.append("Undefined");
  } else if (value.is_none()) {
    out_.append("None");
  } else if (const auto* boolean = value.as<bool>()) {
    out_.append(*boolean ? "True" : "False");
  } else if (const auto* integer = value.as<std::int64_t>()) {
    out_.append(std::to_string(*integer));
  } else if (const auto* real = value.as<double>()) {
    out_.append(format_float(*real));
  } else if (const auto* object = value.as<ObjectPtr>()) {
    out_.append((*object)->repr());
  } else {
    out_.append("<generator object>");
  }
  return true;
}

bool Printer::print(const Dict& dict, int depth) {
  out_.push_back('{');
  bool first = true;
  for (const auto& [key, item] : dict.items()) {
    if (!std::exchange(first, false)) out_.append(", ");
    if (!print(key, depth + 1)) return false;
    out_.append(": ");
    if (!print(item, depth + 1)) return false;
    if (brief_ && is_full()) return true;
  }
  out_.push_back('}');
  return true;
}

bool Printer::print(const Namespace& space, int depth) {
  out_.append("<Namespace {");
  bool first = true;
  for (const auto& [name, attribute] : space.attributes) {
    if (!std::exchange(first, false)) out_.append(", ");
    if (!quote(name)) return false;
    out_.append(": ");
    if (!print(attribute, depth + 1)) return false;
    if (brief_ && is_full()) return true;
  }
  out_.append("}>");
  return true;
}

bool Printer::print(const Sequence& list, std::string_view name, int depth) {
  if (list.kind == SequenceKind::range) {
    out_.append("range(" + std::to_string(list.start) + ", " + std::to_string(list.stop));
    out_.append(list.step == 1 ? ")" : ", " + std::to_string(list.step) + ")");
    return true;
  }
  const bool view = list.kind >= SequenceKind::keys, tuple = list.kind == SequenceKind::tuple;
  if (view) out_.append(name).append("(");
  out_.push_back(tuple ? '(' : '[');
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out_.append(", ");
    if (!print(list.items[i], depth + 1)) return false;
    if (brief_ && is_full()) return true;
  }
  if (tuple && list.items.size() == 1) out_.push_back(',');
  out_.push_back(tuple ? ')' : ']');
  if (view) out_.push_back(')');
  return true;
}

}  // namespace

std::optional<std::string> Interpreter::repr(const Value& value) {
  Printer printer(*this, false);
  if (!printer.print(value, 0)) return std::nullopt;
  return printer.take();
}

std::optional<std::string> Interpreter::brief_repr(const Value& value) {
  Printer printer(*this, true);
  if (!printer.print(value, 0)) return std::nullopt;
  return printer.take();
}

}  // namespace moracle::jinja
