#include "text/template/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace moracle::jinja {

Value Value::text(std::string bytes, bool markup) {
  return Value(Data(std::make_shared<const Text>(Text{std::move(bytes), markup})));
}

const Text* Value::text() const {
  const auto* pointer = as<TextPtr>();
  return pointer ? pointer->get() : nullptr;
}

const Sequence* Value::sequence() const {
  const auto* pointer = as<SequencePtr>();
  return pointer ? pointer->get() : nullptr;
}

const Dict* Value::dict() const {
  const auto* pointer = as<DictPtr>();
  return pointer ? pointer->get() : nullptr;
}

std::optional<std::int64_t> Value::index() const {
  if (const auto* integer = as<std::int64_t>()) return *integer;
  if (const auto* boolean = as<bool>()) return *boolean ? 1 : 0;
  return std::nullopt;
}

double Value::number() const {
  if (const auto* real = as<double>()) return *real;
  return static_cast<double>(index().value_or(0));
}

bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (const auto* real = as<double>()) return *real != 0.0;
  if (const auto integer = index()) return *integer != 0;
  if (const auto* string = text()) return !string->bytes.empty();
  if (const auto* list = sequence()) return !list->items.empty();
  if (const auto* map = dict()) return map->size() != 0;
  return true;
}

int Value::depth() const {
  if (const auto* list = sequence()) return list->depth;
  if (const auto* map = dict()) return map->depth;
  if (const auto* iterator = as<IteratorPtr>()) return (*iterator)->depth;
  if (const auto* object = as<ObjectPtr>()) return (*object)->depth;
  return 0;
}

bool Value::hashable() const {
  if (dict()) return false;
  const auto* list = sequence();
  return !list || list->hashable;
}

Sequence::Sequence(std::vector<Value> values, SequenceKind of)
    : items(std::move(values)), kind(of), hashable(of != SequenceKind::list) {
  for (const Value& item : items) {
    depth = std::max(depth, 1 + item.depth());
    if (of == SequenceKind::tuple) hashable = hashable && item.hashable();
  }
}

const void* Value::address() const {
  if (const auto* string = text()) return string;
  if (const auto* list = sequence()) return list;
  if (const auto* map = dict()) return map;
  if (const auto* iterator = as<IteratorPtr>()) return iterator->get();
  if (const auto* space = as<NamespacePtr>()) return space->get();
  if (const auto* object = as<ObjectPtr>()) return object->get();
  return nullptr;
}

std::string_view Value::type_name() const {
  static constexpr std::string_view kNames[] = {"Undefined", "NoneType", "bool",      "int",       "float",   "str",
                                                "list",      "dict",     "generator", "Namespace", "function"};
  if (const auto* list = sequence()) {
    static constexpr std::string_view kTypeNames[] = {"list",      "tuple",       "range",
                                                      "dict_keys", "dict_values", "dict_items"};
    return kTypeNames[static_cast<std::size_t>(list->kind)];
  }
  return kNames[data_.index()];
}

bool scalar_equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.as<double>() || b.as<double>()) return a.number() == b.number();
    return a.index() == b.index();
  }
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  return a.address() != nullptr && a.address() == b.address();
}

namespace {

// Up to this size a dict is searched key by key.
constexpr std::size_t kSearched = 8;

}  // namespace

void Dict::add(Value key, Value value) {
  depth = std::max({depth, 1 + key.depth(), 1 + value.depth()});
  if (!key.text()) others_.push_back(items_.size());
  items_.emplace_back(std::move(key), std::move(value));
  if (items_.size() <= kSearched) return;
  for (std::size_t i = items_.size() == kSearched + 1 ? 0 : items_.size() - 1; i < items_.size(); ++i) {
    if (const auto* text = items_[i].first.text()) by_text_.emplace(text->bytes, i);
  }
}

void Dict::replace(const Value* place, Value value) {
  depth = std::max(depth, 1 + value.depth());
  *const_cast<Value*>(place) = std::move(value);
}

const Value* Dict::find(std::string_view key) const {
  if (items_.size() > kSearched) {
    const auto found = by_text_.find(key);
    return found == by_text_.end() ? nullptr : &items_[found->second].second;
  }
  for (const auto& [candidate, value] : items_) {
    if (const auto* text = candidate.text(); text && text->bytes == key) return &value;
  }
  return nullptr;
}

const Value* Namespace::find(std::string_view name) const {
  for (const auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Namespace::set(std::string_view name, Value value) {
  for (auto& [key, old] : attributes) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  attributes.emplace_back(name, std::move(value));
}

std::string format_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view scientific(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t mark = scientific.find('e');
  int exponent = 0;
  const char* first = scientific.data() + mark + 1;
  std::from_chars(*first == '+' ? first + 1 : first, end, exponent);
  if (exponent < -4 || exponent >= 16) return std::string(scientific);
  const auto plain = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
  std::string out(buffer, static_cast<std::size_t>(plain - buffer));
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

}  // namespace moracle::jinja
