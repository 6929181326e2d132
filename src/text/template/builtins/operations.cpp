// Python's operations on values: text forms, iteration, comparison, membership, attributes, items and slices.
#include <algorithm>
#include <limits>
#include <utility>

#include "text/template/interpreter.h"
#include "text/template/python_text.h"

namespace moracle::jinja {
namespace {

std::string unordered(std::string_view op, const Value& a, const Value& b) {
  return "'" + std::string(op) + "' not supported between instances of '" + std::string(a.type_name()) + "' and '" +
         std::string(b.type_name()) + "'";
}

// Compared bytes, and keys or attributes looked at, for one step.
constexpr std::size_t kComparedPerStep = 1024;
constexpr std::size_t kOthersPerStep = 4;

struct Bounds {
  std::int64_t start, stop;
};

// slice.indices of Python.
Bounds slice_bounds(const Maybe& start, const Maybe& stop, std::int64_t step, std::int64_t size) {
  const auto clamp = [&](const Maybe& part, std::int64_t fallback) {
    if (!part) return fallback;
    std::int64_t at = *part->index();
    if (at < 0) at = at < -size ? (step < 0 ? -1 : 0) : at + size;
    return std::min(at, step < 0 ? size - 1 : size);
  };
  return {clamp(start, step < 0 ? size - 1 : 0), clamp(stop, step < 0 ? -1 : size)};
}

// Code points [start, stop) of a text of `size` points.
std::string_view points_between(std::string_view text, std::int64_t size, std::int64_t start, std::int64_t stop) {
  if (stop <= start) return text.substr(0, 0);
  const bool single = size == static_cast<std::int64_t>(text.size());  // a byte is a point
  const std::size_t begin = single ? static_cast<std::size_t>(start) : skip_points(text, 0, start);
  const std::size_t end = single ? static_cast<std::size_t>(stop) : skip_points(text, begin, stop - start);
  return text.substr(begin, end - begin);
}

}  // namespace

Maybe Interpreter::as_text(const Value& value) {
  if (value.text()) return value;
  if (value.is_undefined()) return text("");
  auto shown = repr(value);
  return shown ? made_text(std::move(*shown)) : std::nullopt;
}

std::optional<std::vector<Value>> Interpreter::iterate(const Value& value) {
  std::vector<Value> items;
  if (value.is_undefined()) {
    if (value.as<Undefined>()->forbidden) return undefined_error(value);
    return items;
  }
  if (const auto* list = value.sequence()) {
    if (!room_for(list->items.size())) return std::nullopt;
    return list->items;
  }
  if (const auto* map = value.dict()) {
    if (!room_for(map->size())) return std::nullopt;
    items.reserve(map->size());
    for (const auto& [key, item] : map->items()) items.push_back(key);
    return items;
  }
  if (const auto* string = value.text()) {
    const std::string_view bytes = string->bytes;
    if (!charge(bytes.size())) return std::nullopt;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t begin = at;
      next_point(bytes, &at);
      Maybe point = makes(sizeof(Value)) ? text(bytes.substr(begin, at - begin)) : std::nullopt;
      if (!point) return std::nullopt;
      items.push_back(std::move(*point));
    }
    return items;
  }
  if (const auto* iterator = value.as<IteratorPtr>()) {
    Iterator& source = **iterator;
    if (!room_for(source.items.size() - source.next)) return std::nullopt;
    items.assign(source.items.begin() + static_cast<std::ptrdiff_t>(source.next), source.items.end());
    source.next = source.items.size();
    return items;
  }
  return type_error("'" + std::string(value.type_name()) + "' object is not iterable");
}

std::optional<bool> Interpreter::equal(const Value& a, const Value& b) {
  if (!charge(1)) return std::nullopt;
  if (a.text() || b.text()) {
    if (!a.text() || !b.text() || a.text()->bytes.size() != b.text()->bytes.size()) return false;
    if (!charge(a.text()->bytes.size() / kComparedPerStep)) return std::nullopt;
    return a.text()->bytes == b.text()->bytes;
  }
  if (const auto *left = a.dict(), *right = b.dict(); left && right) {
    if (left->size() != right->size()) return false;
    for (const auto& [key, value] : left->items()) {
      const auto other = find(*right, key);
      if (!other) return std::nullopt;
      if (*other == nullptr) return false;
      const auto same = equal(value, **other);
      if (!same || !*same) return same;
    }
    return true;
  }
  const auto* left = a.sequence();
  const auto* right = b.sequence();
  if (!left || !right || left->kind != right->kind || left->kind > SequenceKind::range) return scalar_equal(a, b);
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
    if (!charge(std::min(a.text()->bytes.size(), b.text()->bytes.size()) / kComparedPerStep)) return std::nullopt;
    return a.text()->bytes < b.text()->bytes;  // UTF-8 sorts as its code points do
  }
  const auto* left = a.sequence();
  const auto* right = b.sequence();
  if (!left || !right || left->kind != right->kind || left->kind > SequenceKind::tuple)
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
    if (!charge_text(TextCost::scan, string->bytes.size() + item.text()->bytes.size())) return std::nullopt;
    return find_bytes(string->bytes, item.text()->bytes) != std::string_view::npos;
  }
  if (const auto* map = container.dict()) {
    if (!item.hashable()) return type_error("unhashable type: '" + std::string(item.type_name()) + "'");
    const auto place = find(*map, item);
    if (!place) return std::nullopt;
    return *place != nullptr;
  }
  if (const auto* list = container.sequence()) return among(list->items, item);
  const auto items = iterate(container);
  return items ? among(*items, item) : std::nullopt;
}

std::optional<bool> Interpreter::among(const std::vector<Value>& items, const Value& item) {
  for (const Value& candidate : items) {
    const auto same = equal(candidate, item);
    if (!same || *same) return same;
  }
  return false;
}

std::optional<const Value*> Interpreter::find(const Dict& dict, const Value& key) {
  if (const auto* string = key.text()) {
    if (!charge(1) || !charge_text(TextCost::scan, string->bytes.size())) return std::nullopt;
    return dict.find(string->bytes);
  }
  if (!charge(1 + dict.others().size() / kOthersPerStep)) return std::nullopt;
  if (!key.hashable()) return nullptr;
  for (const std::size_t position : dict.others()) {
    const auto& [candidate, value] = dict.items()[position];
    const auto same = candidate.sequence() && key.sequence() ? equal(candidate, key)
                                                             : std::optional<bool>(scalar_equal(candidate, key));
    if (!same) return std::nullopt;
    if (*same) return &value;
  }
  return nullptr;
}

Maybe Interpreter::length(const Value& value) {
  std::size_t count = 0;
  if (const auto* string = value.text()) {
    if (!charge_text(TextCost::scan, string->bytes.size())) return std::nullopt;
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
  if (!charge_text(TextCost::scan, name.size())) return std::nullopt;
  if (name.substr(0, 2) == "__") return unsafe(object, name);
  if (const auto* space = object.as<NamespacePtr>()) {
    if (!charge((*space)->attributes.size() / kOthersPerStep)) return std::nullopt;
    if (const Value* value = (*space)->find(name)) return *value;
  } else if (const auto* callable = object.as<ObjectPtr>()) {
    return (*callable)->attribute(*this, name);
  } else if (Maybe method = find_method(*this, object, name)) {
    return method;
  } else if (const auto* map = object.dict()) {
    if (const Value* value = map->find(name)) return *value;
  }
  return missing(object, "attribute", name);
}

// Jinja's getitem: the item first, then, for a text key, the attribute.
Maybe Interpreter::item(const Value& object, const Value& key) {
  if (object.is_undefined()) return undefined_error(object);
  if (const auto* map = object.dict()) {
    const auto place = find(*map, key);
    if (!place) return std::nullopt;
    if (*place != nullptr) return **place;
  }
  const auto* list = object.sequence();
  const auto index = key.index();
  if (index && ((list && list->kind < SequenceKind::keys) || object.text())) {
    const Maybe count = length(object);
    if (!count) return std::nullopt;
    const std::int64_t size = *count->index();
    const std::int64_t position = *index < 0 ? *index + size : *index;
    if (position >= 0 && position < size) {
      if (list) return list->items[static_cast<std::size_t>(position)];
      return slice(object, Value::integer(position), Value::integer(position + 1), Value::none());
    }
  }
  if (const auto* name = key.text()) {
    if (!object.dict()) return attribute(object, name->bytes);
    if (!charge_text(TextCost::scan, name->bytes.size())) return std::nullopt;
    if (Maybe method = find_method(*this, object, name->bytes)) return method;
  }
  const auto shown = brief_repr(key);
  return shown ? missing(object, "element", *shown) : std::nullopt;
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
  if ((!list || list->kind > SequenceKind::range) && !object.text())
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
  const std::int64_t distance = stride > 0 ? bounds.stop - bounds.start : bounds.start - bounds.stop;
  const auto picked = static_cast<std::size_t>(distance <= 0 ? 0 : (distance - 1) / std::abs(hop) + 1);
  if (list) {
    if (!room_for(picked)) return std::nullopt;
    std::vector<Value> items;
    items.reserve(picked);
    for (std::int64_t at = bounds.start; inside(at); at += hop)
      items.push_back(list->items[static_cast<std::size_t>(at)]);
    return made_sequence(std::move(items),
                         list->kind == SequenceKind::tuple ? SequenceKind::tuple : SequenceKind::list);
  }
  const std::string_view bytes = object.text()->bytes;
  const bool markup = object.text()->markup;
  if (stride == 1) return text(points_between(bytes, size, bounds.start, bounds.stop), markup);
  // Four bytes a point, here and there.
  if (!charge_text(TextCost::walk, bytes.size()) || !makes(4 * (static_cast<std::size_t>(size) + picked)))
    return std::nullopt;
  const std::u32string points = to_points(bytes);
  std::u32string out;
  out.reserve(picked);
  for (std::int64_t at = bounds.start; inside(at); at += hop) out.push_back(points[static_cast<std::size_t>(at)]);
  return text(from_points(out), markup);
}

std::optional<std::string_view> Interpreter::part(const Text& text, const Value& start, const Value& stop) {
  if (start.is_none() && stop.is_none()) return std::string_view(text.bytes);
  const Value* const parts[] = {&start, &stop};
  Maybe given[2];
  for (std::size_t i = 0; i < 2; ++i) {
    if (parts[i]->is_none()) continue;
    if (!parts[i]->index()) return type_error("slice indices must be integers or None");
    given[i] = *parts[i];
  }
  if (!charge_text(TextCost::scan, text.bytes.size())) return std::nullopt;
  const auto size = static_cast<std::int64_t>(count_points(text.bytes));
  const Bounds bounds = slice_bounds(given[0], given[1], 1, size);
  return points_between(text.bytes, size, bounds.start, bounds.stop);
}

}  // namespace moracle::jinja
