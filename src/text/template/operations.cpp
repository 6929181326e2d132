// Python's operations on values: text forms, iteration, comparison, membership, attributes, items and slices.
#include <algorithm>
#include <limits>
#include <utility>

#include "text/template/interpreter.h"
#include "text/template/unicode.h"

namespace moracle::jinja {
namespace {

void append_hex(std::string* out, char32_t point) {
  static constexpr char kDigits[] = "0123456789abcdef";
  const int width = point <= 0xFF ? 2 : point <= 0xFFFF ? 4 : 8;
  out->append(width == 2 ? "\\x" : width == 4 ? "\\u" : "\\U");
  for (int shift = (width - 1) * 4; shift >= 0; shift -= 4)
    out->push_back(kDigits[(point >> static_cast<unsigned>(shift)) & 15U]);
}

void append_quoted(std::string_view text, std::string* out) {
  const bool single = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = single ? '"' : '\'';
  out->push_back(quote);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t point = next_point(text, &at);
    if (point == static_cast<char32_t>(quote) || point == '\\') {
      out->push_back('\\');
      out->push_back(static_cast<char>(point));
    } else if (point == '\n') {
      out->append("\\n");
    } else if (point == '\r') {
      out->append("\\r");
    } else if (point == '\t') {
      out->append("\\t");
    } else if (is_printable(point)) {
      out->append(text.substr(begin, at - begin));
    } else {
      append_hex(out, point);
    }
  }
  out->push_back(quote);
}

std::string unordered(std::string_view op, const Value& a, const Value& b) {
  return "'" + std::string(op) + "' not supported between instances of '" + std::string(a.type_name()) + "' and '" +
         std::string(b.type_name()) + "'";
}

struct Bounds {
  std::int64_t start, stop, step;
};

// slice.indices of Python.
Bounds slice_bounds(const Maybe& start, const Maybe& stop, std::int64_t step, std::int64_t size) {
  const auto clamp = [&](const Maybe& part, std::int64_t fallback) {
    if (!part) return fallback;
    std::int64_t at = *part->index();
    if (at < 0) at = at < -size ? (step < 0 ? -1 : 0) : at + size;
    return std::min(at, step < 0 ? size - 1 : size);
  };
  return {clamp(start, step < 0 ? size - 1 : 0), clamp(stop, step < 0 ? -1 : size), step};
}

}  // namespace

std::optional<std::string> Interpreter::str(const Value& value) {
  if (value.is_undefined()) return std::string();
  if (const auto* string = value.text()) return string->bytes;
  return repr(value);
}

std::optional<std::string> Interpreter::repr(const Value& value) {
  std::string out;
  if (!append_repr(value, &out, 0)) return std::nullopt;
  return out;
}

bool Interpreter::append_repr(const Value& value, std::string* out, int depth) {
  // A namespace may hold itself, so the depth of the value alone bounds nothing.
  if (depth > limits_.depth || out->size() > limits_.output_bytes) {
    limit("text of a value that is too deep or too long");
    return false;
  }
  if (!charge(1)) return false;
  if (value.is_undefined()) {
    out->append("Undefined");
  } else if (value.is_none()) {
    out->append("None");
  } else if (const auto* boolean = value.as<bool>()) {
    out->append(*boolean ? "True" : "False");
  } else if (const auto* integer = value.as<std::int64_t>()) {
    out->append(std::to_string(*integer));
  } else if (const auto* real = value.as<double>()) {
    out->append(format_float(*real));
  } else if (const auto* string = value.text()) {
    if (!charge(string->bytes.size() / 64)) return false;
    if (string->markup) out->append("Markup(");
    append_quoted(string->bytes, out);
    if (string->markup) out->append(")");
  } else if (const auto* list = value.sequence()) {
    return append_sequence(*list, value.type_name(), out, depth);
  } else if (const auto* map = value.dict()) {
    out->push_back('{');
    bool first = true;
    for (const auto& [key, item] : map->items()) {
      if (!std::exchange(first, false)) out->append(", ");
      if (!append_repr(key, out, depth + 1)) return false;
      out->append(": ");
      if (!append_repr(item, out, depth + 1)) return false;
    }
    out->push_back('}');
  } else if (const auto* space = value.as<SpacePtr>()) {
    out->append("<Namespace {");
    for (std::size_t i = 0; i < (*space)->attributes.size(); ++i) {
      const auto& [name, attribute] = (*space)->attributes[i];
      if (i > 0) out->append(", ");
      append_quoted(name, out);
      out->append(": ");
      if (!append_repr(attribute, out, depth + 1)) return false;
    }
    out->append("}>");
  } else if (const auto* object = value.as<ObjectPtr>()) {
    out->append((*object)->repr());
  } else {
    out->append("<generator object>");
  }
  return true;
}

bool Interpreter::append_sequence(const Sequence& list, std::string_view name, std::string* out, int depth) {
  if (list.flavour == Flavour::range) {
    out->append("range(" + std::to_string(list.start) + ", " + std::to_string(list.stop));
    out->append(list.step == 1 ? ")" : ", " + std::to_string(list.step) + ")");
    return true;
  }
  const bool view = list.flavour >= Flavour::keys, tuple = list.flavour == Flavour::tuple;
  if (view) out->append(name).append("(");
  out->push_back(tuple ? '(' : '[');
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out->append(", ");
    if (!append_repr(list.items[i], out, depth + 1)) return false;
  }
  if (tuple && list.items.size() == 1) out->push_back(',');
  out->push_back(tuple ? ')' : ']');
  if (view) out->push_back(')');
  return true;
}

std::optional<std::vector<Value>> Interpreter::iterate(const Value& value) {
  std::vector<Value> items;
  if (value.is_undefined()) {
    const auto* undefined = value.as<Undefined>();
    if (undefined->forbidden) return undefined_error(value);
    return items;
  }
  if (const auto* list = value.sequence()) {
    if (!charge(list->items.size())) return std::nullopt;
    return list->items;
  }
  if (const auto* map = value.dict()) {
    if (!charge(map->size())) return std::nullopt;
    for (const auto& [key, item] : map->items()) items.push_back(key);
    return items;
  }
  if (const auto* string = value.text()) {
    if (!charge(string->bytes.size())) return std::nullopt;
    for (std::size_t at = 0; at < string->bytes.size();) {
      const std::size_t begin = at;
      next_point(string->bytes, &at);
      items.push_back(Value::text(string->bytes.substr(begin, at - begin), string->markup));
    }
    return items;
  }
  if (const auto* iterator = value.as<IteratorPtr>()) {
    Iterator& source = **iterator;
    if (!charge(source.items.size() - source.next)) return std::nullopt;
    items.assign(source.items.begin() + static_cast<std::ptrdiff_t>(source.next), source.items.end());
    source.next = source.items.size();
    return items;
  }
  return type_error("'" + std::string(value.type_name()) + "' object is not iterable");
}

std::optional<bool> Interpreter::equal(const Value& a, const Value& b) {
  if (!charge(1)) return std::nullopt;
  if (a.text() && b.text()) {
    if (!charge(std::min(a.text()->bytes.size(), b.text()->bytes.size()) / 1024)) return std::nullopt;
    return a.text()->bytes == b.text()->bytes;
  }
  if (const auto *left = a.dict(), *right = b.dict(); left && right) {
    if (left->size() != right->size()) return false;
    for (const auto& [key, value] : left->items()) {
      if (!key.text() && !charge(right->size() / 4)) return std::nullopt;
      const Value* other = right->find(key);
      if (!other) return false;
      const auto same = equal(value, *other);
      if (!same || !*same) return same;
    }
    return true;
  }
  const auto* left = a.sequence();
  const auto* right = b.sequence();
  if (!left || !right || left->flavour != right->flavour || left->flavour > Flavour::range) return key_equal(a, b);
  if (left->items.size() != right->items.size()) return false;
  for (std::size_t i = 0; i < left->items.size(); ++i) {
    const auto same = equal(left->items[i], right->items[i]);
    if (!same || !*same) return same;
  }
  return true;
}

std::optional<bool> Interpreter::less(const Value& a, const Value& b) {
  if (!charge(1)) return std::nullopt;
  if (a.is_undefined()) return undefined_error(a);
  if (b.is_undefined()) return undefined_error(b);
  if (a.is_number() && b.is_number()) {
    if (a.as<double>() || b.as<double>()) return a.number() < b.number();
    return *a.index() < *b.index();
  }
  if (a.text() && b.text()) {
    if (!charge(std::min(a.text()->bytes.size(), b.text()->bytes.size()) / 1024)) return std::nullopt;
    return a.text()->bytes < b.text()->bytes;  // UTF-8 sorts as its code points do
  }
  const auto* left = a.sequence();
  const auto* right = b.sequence();
  if (!left || !right || left->flavour != right->flavour || left->flavour > Flavour::tuple)
    return type_error(unordered("<", a, b));
  const std::size_t count = std::min(left->items.size(), right->items.size());
  for (std::size_t i = 0; i < count; ++i) {
    const auto same = equal(left->items[i], right->items[i]);
    if (!same) return std::nullopt;
    if (!*same) return less(left->items[i], right->items[i]);
  }
  return left->items.size() < right->items.size();
}

std::optional<bool> Interpreter::contains(const Value& container, const Value& item) {
  if (const auto* string = container.text()) {
    if (item.is_undefined()) return type_error("'in <string>' requires string as left operand, not Undefined");
    if (!item.text())
      return type_error("'in <string>' requires string as left operand, not " + std::string(item.type_name()));
    if (!charge_search(string->bytes.size(), item.text()->bytes.size())) return std::nullopt;
    return string->bytes.find(item.text()->bytes) != std::string::npos;
  }
  if (const auto* map = container.dict()) {
    if (!item.hashable()) return type_error("unhashable type: '" + std::string(item.type_name()) + "'");
    if (!charge(item.text() ? 1 : 1 + map->size() / 4)) return std::nullopt;
    return map->find(item) != nullptr;
  }
  const auto items = iterate(container);
  if (!items) return std::nullopt;
  for (const Value& candidate : *items) {
    const auto same = equal(candidate, item);
    if (!same || *same) return same;
  }
  return false;
}

Maybe Interpreter::length(const Value& value) {
  std::size_t count = 0;
  if (const auto* string = value.text()) {
    if (!charge(string->bytes.size() / 1024)) return std::nullopt;
    count = count_points(string->bytes);
  } else if (const auto* list = value.sequence()) {
    count = list->items.size();
  } else if (const auto* map = value.dict()) {
    count = map->size();
  } else if (!value.is_undefined()) {
    return type_error("object of type '" + std::string(value.type_name()) + "' has no len()");
  } else if (value.as<Undefined>()->forbidden) {
    return undefined_error(value);
  }
  return Value::integer(static_cast<std::int64_t>(count));
}

// Jinja's getattr: a method of the value first, then its item of that name.
Maybe Interpreter::attribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) return undefined_error(object);
  if (name.substr(0, 2) == "__")
    return undefined("access to attribute '" + std::string(name) + "' of '" + std::string(object.type_name()) +
                         "' object is unsafe.",
                     true);
  if (const auto* space = object.as<SpacePtr>()) {
    if (const Value* value = (*space)->find(name)) return *value;
  } else if (const auto* callable = object.as<ObjectPtr>()) {
    return (*callable)->attribute(*this, name);
  } else if (Maybe method = find_method(object, name)) {
    return method;
  } else if (const auto* map = object.dict()) {
    if (const Value* value = map->find(name)) return *value;
  }
  return undefined("'" + std::string(object.type_name()) + " object' has no attribute '" + std::string(name) + "'");
}

// Jinja's getitem: the item first, then, for a text key, the attribute.
Maybe Interpreter::item(const Value& object, const Value& key) {
  if (object.is_undefined()) return undefined_error(object);
  if (const auto* map = object.dict()) {
    if (!charge(key.text() ? 1 : 1 + map->size() / 4)) return std::nullopt;
    if (const Value* value = key.hashable() ? map->find(key) : nullptr) return *value;
  }
  const auto* list = object.sequence();
  const auto index = key.index();
  if (index && ((list && list->flavour < Flavour::keys) || object.text())) {
    const Maybe count = length(object);
    if (!count) return std::nullopt;
    const std::int64_t size = *count->index();
    const std::int64_t position = *index < 0 ? *index + size : *index;
    if (position >= 0 && position < size) {
      if (list) return list->items[static_cast<std::size_t>(position)];
      return slice(object, Value::integer(position), Value::integer(position + 1), Value::none());
    }
  }
  if (const auto* name = key.text(); name && !object.dict()) return attribute(object, name->bytes);
  if (const auto* name = key.text()) {
    if (Maybe method = find_method(object, name->bytes)) return method;
  }
  const auto shown = repr(key);
  if (!shown) return std::nullopt;
  return undefined("'" + std::string(object.type_name()) + " object' has no element " + shown->substr(0, 80));
}

Maybe Interpreter::slice(const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) return undefined_error(object);
  const Value* const parts[] = {&start, &stop, &step};
  Maybe given[3];
  for (std::size_t i = 0; i < 3; ++i) {
    if (parts[i]->is_none()) continue;
    if (!parts[i]->index()) return type_error("slice indices must be integers or None");
    given[i] = *parts[i];
  }
  const std::int64_t stride = given[2] ? *given[2]->index() : 1;
  const auto* list = object.sequence();
  if ((!list || list->flavour > Flavour::range) && !object.text())
    return type_error("'" + std::string(object.type_name()) + "' object has no slices");
  if (stride == 0) return type_error("slice step cannot be zero");
  if (stride == std::numeric_limits<std::int64_t>::min()) return limit("a slice step of 64 bits");
  const Maybe count = length(object);
  if (!count) return std::nullopt;
  const std::int64_t size = *count->index();
  const Bounds bounds = slice_bounds(given[0], given[1], stride, size);
  const auto inside = [&](std::int64_t at) { return stride > 0 ? at < bounds.stop : at > bounds.stop; };
  // Beyond the size every step leads out, and no sum below can overflow.
  const std::int64_t hop = std::clamp(stride, -size - 1, size + 1);
  if (list) {
    std::vector<Value> items;
    for (std::int64_t at = bounds.start; inside(at); at += hop)
      items.push_back(list->items[static_cast<std::size_t>(at)]);
    return sequence(std::move(items), list->flavour == Flavour::tuple ? Flavour::tuple : Flavour::list);
  }
  const std::string& bytes = object.text()->bytes;
  if (!charge(bytes.size() / 128)) return std::nullopt;
  if (size == static_cast<std::int64_t>(bytes.size()) && stride == 1) {
    const auto begin = static_cast<std::size_t>(bounds.start);
    return text(bytes.substr(begin, static_cast<std::size_t>(std::max<std::int64_t>(0, bounds.stop - bounds.start))),
                object.text()->markup);
  }
  const std::u32string points = to_points(bytes);
  std::u32string out;
  for (std::int64_t at = bounds.start; inside(at); at += hop) out.push_back(points[static_cast<std::size_t>(at)]);
  return text(from_points(out), object.text()->markup);
}

}  // namespace moracle::jinja
