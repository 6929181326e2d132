#include "text/constrain/schema/facts.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace moracle {

namespace {

bool is_false(const SchemaRef& ref) {
  return ref.schema->is_boolean() && !ref.schema->get<bool>();
}

const SchemaRef* find_property(const MembersPart& part, std::string_view name) {
  const auto found = std::find_if(part.properties.begin(), part.properties.end(),
                                  [&](const auto& property) { return property.first == name; });
  return found == part.properties.end() ? nullptr : &found->second;
}

// False where nothing meets `ref`.
bool add(SchemaRefs& refs, const std::optional<SchemaRef>& ref) {
  if (ref) refs.push_back(*ref);
  return !ref || !is_false(*ref);
}

}  // namespace

std::string value_key(const OrderedJson& value) {
  constexpr double kExact = 9007199254740992.0;  // whole numbers up to it are doubles
  if (value.is_number_float()) {
    const double number = value.get<double>();
    const bool whole = number == std::floor(number) && std::abs(number) < kExact;
    return whole ? std::to_string(static_cast<std::int64_t>(number)) : value.dump();
  }
  if (!value.is_structured()) return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  std::string key = value.is_array() ? "[" : "{";
  if (value.is_array()) {
    for (const OrderedJson& part : value) key += value_key(part) + ",";
    return key + "]";
  }
  std::map<std::string, std::string> members;
  for (const auto& [name, part] : value.items()) members.emplace(value_key(OrderedJson(name)), value_key(part));
  for (const auto& [name, part] : members) key += name + ":" + part + ",";
  return key + "}";
}

bool same_value(const OrderedJson& a, const OrderedJson& b) {
  return a.is_structured() && b.is_structured() ? value_key(a) == value_key(b) : a == b;
}

bool SchemaFacts::requires_name(std::string_view name) const {
  return std::find(required.begin(), required.end(), name) != required.end();
}

std::optional<SchemaRefs> SchemaFacts::element(std::size_t at) const {
  SchemaRefs refs;
  for (const ItemsPart& part : items) {
    const bool fits = add(refs, at < part.prefix.size() ? std::optional(part.prefix[at]) : part.rest);
    if (!fits) return std::nullopt;
  }
  return refs;
}

std::optional<SchemaRefs> SchemaFacts::rest() const {
  return element(longest_prefix());
}

std::optional<SchemaRefs> SchemaFacts::member(std::string_view name) const {
  SchemaRefs refs;
  for (const MembersPart& part : members) {
    const SchemaRef* const property = find_property(part, name);
    if (!add(refs, property != nullptr ? std::optional(*property) : part.additional)) return std::nullopt;
  }
  return refs;
}

std::optional<SchemaRefs> SchemaFacts::additional() const {
  SchemaRefs refs;
  for (const MembersPart& part : members) {
    if (!add(refs, part.additional)) return std::nullopt;
  }
  return refs;
}

std::size_t SchemaFacts::longest_prefix() const {
  std::size_t longest = 0;
  for (const ItemsPart& part : items) longest = std::max(longest, part.prefix.size());
  return longest;
}

std::vector<std::string> SchemaFacts::all_names() const {
  std::vector<std::string> names;
  const auto add_name = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const MembersPart& part : members) {
    for (const auto& [name, ref] : part.properties) add_name(name);
  }
  for (const std::string& name : required) add_name(name);
  return names;
}

bool SchemaFacts::speaks_of_rest() const {
  return std::any_of(items.begin(), items.end(), [](const ItemsPart& part) { return part.rest.has_value(); });
}

bool SchemaFacts::speaks_of_additional() const {
  return std::any_of(members.begin(), members.end(),
                     [](const MembersPart& part) { return part.additional.has_value(); });
}

bool SchemaFacts::writes_additional() const {
  const bool named = !required.empty() || std::any_of(members.begin(), members.end(),
                                                      [](const MembersPart& part) { return !part.properties.empty(); });
  return (speaks_of_additional() || !(named || closed_members)) && additional().has_value();
}

bool SchemaFacts::writes_rest() const {
  const bool needed = elements.least > static_cast<std::int64_t>(longest_prefix());
  const bool open = !closed_items && (needed || longest_prefix() == 0);
  return (speaks_of_rest() || open) && rest().has_value();
}

}  // namespace moracle
