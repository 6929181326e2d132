#include "text/constrain/schema/facts_merger.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "text/constrain/schema/keywords.h"

namespace moracle {

namespace {

constexpr std::int64_t kMostCount = std::int64_t{1} << 40;

std::optional<std::uint8_t> type_named(const OrderedJson& name) {
  constexpr std::pair<std::string_view, std::uint8_t> kTypes[] = {
      {"null", kNullType},     {"boolean", kBooleanType}, {"number", kNumberType}, {"integer", kNumberType},
      {"string", kStringType}, {"array", kArrayType},     {"object", kObjectType}};
  if (!name.is_string()) return std::nullopt;
  for (const auto& [spelled, type] : kTypes) {
    if (name.get_ref<const std::string&>() == spelled) return type;
  }
  return std::nullopt;
}

const OrderedJson* find(const SchemaRef& ref, const char* keyword) {
  const auto found = ref.schema->find(keyword);
  return found == ref.schema->end() ? nullptr : &*found;
}

bool is_schema(const OrderedJson& value) {
  return value.is_object() || value.is_boolean();
}

// A schema below a keyword.
Result<SchemaRef> schema_at(const OrderedJson& value, std::string pointer) {
  if (!is_schema(value)) return wrong_value(std::move(pointer), "a schema", value);
  return SchemaRef{&value, std::move(pointer)};
}

Result<std::int64_t> count_of(const OrderedJson& value, const std::string& pointer) {
  const double number = value.is_number() ? value.get<double>() : -1;
  if (number < 0 || number != std::floor(number)) return wrong_value(pointer, "a whole number of at least 0", value);
  return number >= static_cast<double>(kMostCount) ? kMostCount : static_cast<std::int64_t>(number);
}

}  // namespace

Result<> FactsMerger::merge(const SchemaRef& ref) {
  MORACLE_TRY(reader_.step(ref.pointer));
  if (ref.schema->is_boolean()) {
    facts_.never = facts_.never || !ref.schema->get<bool>();
    return Ok{};
  }
  if (!seen_.insert(ref.pointer).second) return Ok{};
  if (++nested_ > kSchemaDepth * 4) {
    return Error{.code = "constrain.complex",
                 .where = ref.pointer,
                 .wanted = "references that end after " + std::to_string(kSchemaDepth * 4),
                 .found = "more"};
  }
  MORACLE_TRY(check_keywords(*ref.schema, ref.pointer));
  MORACLE_TRY(merge_object(ref));
  --nested_;
  return Ok{};
}

Result<> FactsMerger::merge_object(const SchemaRef& ref) {
  MORACLE_TRY(merge_types(ref));
  MORACLE_TRY(merge_values(ref));
  MORACLE_TRY(merge_numbers(ref));
  MORACLE_TRY(merge_texts(ref));
  MORACLE_TRY(merge_items(ref));
  MORACLE_TRY(merge_members(ref));
  return merge_combinations(ref);
}

Result<> FactsMerger::merge_types(const SchemaRef& ref) {
  const OrderedJson* const type = find(ref, "type");
  if (type == nullptr) return Ok{};
  std::uint8_t types = 0;
  bool whole = false;
  bool any_number = false;
  for (const OrderedJson& name : type->is_array() ? *type : OrderedJson::array({*type})) {
    const auto named = type_named(name);
    if (!named) return wrong_value(pointer_to(ref.pointer, "type"), "names of JSON's types", *type);
    types = static_cast<std::uint8_t>(types | *named);
    whole = whole || name == "integer";
    any_number = any_number || name == "number";
  }
  facts_.types = static_cast<std::uint8_t>(facts_.types & types);
  facts_.number.whole = facts_.number.whole || (whole && !any_number);
  facts_.typed = true;
  return Ok{};
}

Result<> FactsMerger::merge_values(const SchemaRef& ref) {
  const auto keep = [&](const std::vector<OrderedJson>& values) {
    facts_.typed = true;
    if (!facts_.values) {
      facts_.values = values;
      return;
    }
    std::set<std::string> keys;
    for (const OrderedJson& value : values) keys.insert(value_key(value));
    std::erase_if(*facts_.values, [&](const OrderedJson& value) { return !keys.contains(value_key(value)); });
  };
  if (const OrderedJson* const value = find(ref, "const")) keep({*value});
  if (const OrderedJson* const values = find(ref, "enum")) {
    if (!values->is_array()) return wrong_value(pointer_to(ref.pointer, "enum"), "a list", *values);
    std::vector<OrderedJson> distinct;
    std::set<std::string> seen;
    for (const OrderedJson& value : *values) {
      if (seen.insert(value_key(value)).second) distinct.push_back(value);
    }
    keep(distinct);
  }
  return Ok{};
}

Result<> FactsMerger::merge_bound(const SchemaRef& ref, const char* keyword, bool low, bool exclusive) {
  const OrderedJson* const value = find(ref, keyword);
  if (value == nullptr) return Ok{};
  const std::string pointer = pointer_to(ref.pointer, keyword);
  speak(kNumberType);
  if (exclusive && value->is_boolean()) return Ok{};  // draft 4: of the bound beside it
  if (!value->is_number()) return wrong_value(pointer, "a number", *value);
  const OrderedJson* const beside = find(ref, low ? "exclusiveMinimum" : "exclusiveMaximum");
  exclusive = exclusive || (beside != nullptr && beside->is_boolean() && beside->get<bool>());
  const long double number = value->is_number_unsigned()  ? static_cast<long double>(value->get<std::uint64_t>())
                             : value->is_number_integer() ? static_cast<long double>(value->get<std::int64_t>())
                                                          : static_cast<long double>(value->get<double>());
  std::optional<NumberBound>& bound = low ? facts_.number.low : facts_.number.high;
  const bool tighter =
      !bound || (low ? number > bound->value : number < bound->value) || (number == bound->value && exclusive);
  if (tighter) bound = NumberBound{.value = number, .exclusive = exclusive};
  facts_.number_pointer = pointer;
  return Ok{};
}

Result<> FactsMerger::merge_numbers(const SchemaRef& ref) {
  MORACLE_TRY(merge_bound(ref, "minimum", true, false));
  MORACLE_TRY(merge_bound(ref, "exclusiveMinimum", true, true));
  MORACLE_TRY(merge_bound(ref, "maximum", false, false));
  MORACLE_TRY(merge_bound(ref, "exclusiveMaximum", false, true));
  const OrderedJson* const divisor = find(ref, "multipleOf");
  if (divisor == nullptr) return Ok{};
  speak(kNumberType);
  const std::string pointer = pointer_to(ref.pointer, "multipleOf");
  if (!divisor->is_number() || divisor->get<double>() <= 0) return wrong_value(pointer, "a number above 0", *divisor);
  facts_.divisors.push_back(divisor->get<double>());
  facts_.number_pointer = pointer;
  return Ok{};
}

Result<> FactsMerger::merge_range(const SchemaRef& ref, const char* least, const char* most, CountRange& range,
                                  JsonType type) {
  if (const OrderedJson* const value = find(ref, least)) {
    speak(type);
    MORACLE_ASSIGN(const std::int64_t number, count_of(*value, pointer_to(ref.pointer, least)));
    range.least = std::max(range.least, number);
    range.pointer = pointer_to(ref.pointer, least);
  }
  if (const OrderedJson* const value = find(ref, most)) {
    speak(type);
    MORACLE_ASSIGN(const std::int64_t number, count_of(*value, pointer_to(ref.pointer, most)));
    range.most = std::min(range.most.value_or(number), number);
    range.pointer = pointer_to(ref.pointer, most);
  }
  return Ok{};
}

Result<> FactsMerger::merge_text(const SchemaRef& ref, const char* keyword) {
  const OrderedJson* const value = find(ref, keyword);
  if (value == nullptr) return Ok{};
  const std::string pointer = pointer_to(ref.pointer, keyword);
  if (!value->is_string()) return wrong_value(pointer, "a text", *value);
  const bool is_format = std::string_view(keyword) == "format";
  const auto& name = value->get_ref<const std::string&>();
  MORACLE_ASSIGN(std::shared_ptr<const RegexNode> node, reader_.text_of(name, pointer, is_format));
  if (!node) return Ok{};  // a format that says nothing about texts
  speak(kStringType);
  const std::string spelled = (is_format ? "format " : "pattern ") + name;
  const bool known =
      std::any_of(facts_.texts.begin(), facts_.texts.end(), [&](const TextFact& fact) { return fact.name == spelled; });
  if (!known) facts_.texts.push_back({.name = spelled, .pointer = pointer, .node = std::move(node)});
  return Ok{};
}

Result<> FactsMerger::merge_texts(const SchemaRef& ref) {
  MORACLE_TRY(merge_range(ref, "minLength", "maxLength", facts_.length, kStringType));
  MORACLE_TRY(merge_text(ref, "pattern"));
  return merge_text(ref, "format");
}

Result<> FactsMerger::merge_list(const SchemaRef& ref, const char* keyword, SchemaRefs& refs) {
  const OrderedJson* const list = find(ref, keyword);
  if (list == nullptr) return Ok{};
  const std::string pointer = pointer_to(ref.pointer, keyword);
  if (!list->is_array()) return wrong_value(pointer, "a list of schemas", *list);
  for (std::size_t i = 0; i < list->size(); ++i) {
    MORACLE_ASSIGN(SchemaRef part, schema_at((*list)[i], pointer_to(pointer, std::to_string(i))));
    refs.push_back(std::move(part));
  }
  return Ok{};
}

Result<> FactsMerger::merge_items(const SchemaRef& ref) {
  MORACLE_TRY(merge_range(ref, "minItems", "maxItems", facts_.elements, kArrayType));
  ItemsPart part;
  MORACLE_TRY(merge_list(ref, "prefixItems", part.prefix));
  const OrderedJson* const items = find(ref, "items");
  const OrderedJson* rest = items;
  std::string pointer = pointer_to(ref.pointer, "items");
  if (items != nullptr && items->is_array()) {  // the older spelling of prefixItems
    MORACLE_TRY(merge_list(ref, "items", part.prefix));
    rest = find(ref, "additionalItems");
    pointer = pointer_to(ref.pointer, "additionalItems");
  }
  if (rest != nullptr) {
    MORACLE_ASSIGN(part.rest, schema_at(*rest, std::move(pointer)));
  }
  if (!part.prefix.empty() || part.rest) {
    speak(kArrayType);
    facts_.items.push_back(std::move(part));
  }
  const OrderedJson* const unique = find(ref, "uniqueItems");
  if (unique != nullptr && unique->is_boolean() && unique->get<bool>()) {
    speak(kArrayType);
    facts_.unique_pointer = pointer_to(ref.pointer, "uniqueItems");
  }
  return merge_unevaluated(ref, "unevaluatedItems");
}

// Where all schemas that speak of the value are within this one, what none of them names is what `false` forbids.
Result<> FactsMerger::merge_unevaluated(const SchemaRef& ref, const char* keyword) {
  const OrderedJson* const value = find(ref, keyword);
  const bool harmless =
      value == nullptr || (value->is_boolean() && value->get<bool>()) || (value->is_object() && value->empty());
  if (harmless) return Ok{};
  if (value->is_boolean() && outermost_ && nested_ == 1) {
    const bool items = std::string_view(keyword) == "unevaluatedItems";
    speak(items ? kArrayType : kObjectType);
    (items ? facts_.closed_items : facts_.closed_members) = true;
    return Ok{};
  }
  return Error{.code = "schema.unsupported",
               .where = pointer_to(ref.pointer, keyword),
               .wanted = "false, in a schema that no other one includes",
               .found = keyword,
               .advice = "spell additionalProperties or items, or take it out"};
}

Result<> FactsMerger::merge_members(const SchemaRef& ref) {
  MORACLE_TRY(merge_range(ref, "minProperties", "maxProperties", facts_.count, kObjectType));
  MembersPart part;
  if (const OrderedJson* const properties = find(ref, "properties")) {
    const std::string pointer = pointer_to(ref.pointer, "properties");
    if (!properties->is_object()) return wrong_value(pointer, "an object of schemas", *properties);
    speak(kObjectType);
    for (const auto& [name, schema] : properties->items()) {
      MORACLE_ASSIGN(SchemaRef member, schema_at(schema, pointer_to(pointer, name)));
      part.properties.emplace_back(name, std::move(member));
    }
  }
  if (const OrderedJson* const additional = find(ref, "additionalProperties")) {
    speak(kObjectType);
    MORACLE_ASSIGN(part.additional, schema_at(*additional, pointer_to(ref.pointer, "additionalProperties")));
  }
  if (!part.properties.empty() || part.additional) facts_.members.push_back(std::move(part));
  if (const OrderedJson* const required = find(ref, "required"); required != nullptr && !required->is_boolean()) {
    const auto is_text = [](const OrderedJson& name) { return name.is_string(); };
    if (!required->is_array() || !std::all_of(required->begin(), required->end(), is_text))
      return wrong_value(pointer_to(ref.pointer, "required"), "a list of names", *required);
    speak(kObjectType);
    for (const OrderedJson& name : *required) {
      if (!facts_.requires_name(name.get_ref<const std::string&>())) facts_.required.push_back(name);
    }
  }
  if (const OrderedJson* const names = find(ref, "propertyNames")) {
    speak(kObjectType);
    MORACLE_ASSIGN(SchemaRef schema, schema_at(*names, pointer_to(ref.pointer, "propertyNames")));
    facts_.names.push_back(std::move(schema));
  }
  return merge_unevaluated(ref, "unevaluatedProperties");
}

Result<> FactsMerger::merge_combinations(const SchemaRef& ref) {
  const bool conditional = find(ref, "if") != nullptr && (find(ref, "then") != nullptr || find(ref, "else") != nullptr);
  if (conditional) {
    return Error{.code = "schema.unsupported",
                 .where = pointer_to(ref.pointer, "if"),
                 .wanted = "keywords that a reply can be held to",
                 .found = "if",
                 .advice = "spell the cases as anyOf"};
  }
  for (const char* const keyword : {"anyOf", "oneOf"}) {
    SchemaChoice choice{.branches = {}, .exclusive = keyword[0] == 'o', .pointer = pointer_to(ref.pointer, keyword)};
    MORACLE_TRY(merge_list(ref, keyword, choice.branches));
    if (find(ref, keyword) != nullptr) facts_.choices.push_back(std::move(choice));
  }
  SchemaRefs all;
  MORACLE_TRY(merge_list(ref, "allOf", all));
  if (const OrderedJson* const reference = find(ref, "$ref")) {
    const std::string pointer = pointer_to(ref.pointer, "$ref");
    if (!reference->is_string()) return wrong_value(pointer, "a reference", *reference);
    MORACLE_ASSIGN(SchemaRef target, reader_.resolve(reference->get<std::string>(), pointer));
    all.push_back(std::move(target));
  }
  for (const SchemaRef& part : all) MORACLE_TRY(merge(part));
  return Ok{};
}

}  // namespace moracle
