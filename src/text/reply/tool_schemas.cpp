#include "text/reply/tool_schemas.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/json/document.h"

namespace moracle {
namespace {

constexpr std::size_t kMaxSchemas = 256;  // read of one argument

void add_type(const std::string& name, ValueTypes& types) {
  if (name == "null") types.null = true;
  if (name == "integer") types.integer = true;
  if (name == "number") types.number = true;
  if (name == "boolean") types.boolean = true;
  if (name == "object") types.object = true;
  if (name == "array") types.array = true;
  if (name == "string") types.text = true;
}

void add_type_of(const Json& value, ValueTypes& types) {
  types.null = types.null || value.is_null();
  types.boolean = types.boolean || value.is_boolean();
  types.integer = types.integer || value.is_number_integer();
  types.number = types.number || value.is_number_float();
  types.text = types.text || value.is_string();
  types.array = types.array || value.is_array();
  types.object = types.object || value.is_object();
}

// What "#/..." names; null: nothing.
const Json* find_reference(const Json& root, const std::string& reference) {
  if (!reference.starts_with('#')) return nullptr;
  try {
    const Json::json_pointer pointer(reference.substr(1));
    return root.contains(pointer) ? &root.at(pointer) : nullptr;
  } catch (const Json::exception&) {
    return nullptr;  // no pointer
  }
}

void add_own_types(const Json& schema, ValueTypes& types) {
  if (const auto type = schema.find("type"); type != schema.end()) {
    for (const Json& name : type->is_array() ? *type : Json::array({*type})) {
      if (name.is_string()) add_type(name.get<std::string>(), types);
    }
  }
  if (const auto values = schema.find("enum"); values != schema.end() && values->is_array()) {
    for (const Json& value : *values) add_type_of(value, types);
  }
  if (const auto value = schema.find("const"); value != schema.end()) add_type_of(*value, types);
}

// Of a schema, its branches and what it refers to, each once: references may go round.
ValueTypes types_of_schema(const Json& schema, const Json& root) {
  ValueTypes types;
  std::vector<const Json*> schemas = {&schema};
  for (std::size_t i = 0; i < schemas.size(); ++i) {
    const auto add = [&](const Json* one) {
      if (one != nullptr && std::find(schemas.begin(), schemas.end(), one) == schemas.end()) schemas.push_back(one);
    };
    const Json& one = *schemas[i];
    if (i == kMaxSchemas) break;
    if (!one.is_object()) continue;
    add_own_types(one, types);
    for (const char* const name : {"anyOf", "oneOf", "allOf"}) {
      const auto branches = one.find(name);
      if (branches == one.end() || !branches->is_array()) continue;
      for (const Json& branch : *branches) add(&branch);
    }
    const auto reference = one.find("$ref");
    if (reference != one.end() && reference->is_string()) add(find_reference(root, reference->get<std::string>()));
  }
  return types;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return result;
}

}  // namespace

ToolSchemas::ToolSchemas(const Json& tools) {
  if (!tools.is_array()) return;
  for (const Json& tool : tools) {
    if (!tool.is_object() || !tool.contains("function") || !tool["function"].is_object()) continue;
    const Json& function = tool["function"];
    const auto name = function.find("name");
    if (name == function.end() || !name->is_string()) continue;
    auto& types = types_[name->get<std::string>()];
    const auto parameters = function.find("parameters");
    if (parameters == function.end() || !parameters->is_object()) continue;
    const auto properties = parameters->find("properties");
    if (properties == parameters->end() || !properties->is_object()) continue;
    for (const auto& [key, schema] : properties->items()) types[key] = types_of_schema(schema, *parameters);
  }
}

ValueTypes ToolSchemas::types_of(std::string_view tool, std::string_view argument) const {
  const auto found = types_.find(std::string(tool));
  if (found == types_.end()) return {};
  const auto types = found->second.find(std::string(argument));
  return types == found->second.end() ? ValueTypes{} : types->second;
}

std::string typed_value(std::string_view text, const ValueTypes& types) {
  const std::string_view bare = trimmed(text);
  const std::string word = lower(bare);
  if (types.null && word == "null") return "null";
  const auto parsed = parse_ordered_json(bare, "");
  const bool is_json = parsed.ok();
  // A whole number may be longer than those that the parser keeps whole.
  const bool whole = is_json && parsed->is_number() && bare.find_first_not_of("-0123456789") == std::string_view::npos;
  if (whole && (types.integer || types.number)) return std::string(bare);
  if (types.number && is_json && parsed->is_number_float() && std::isfinite(parsed->get<double>()))
    return std::string(bare);
  if (types.boolean && (word == "true" || word == "1")) return "true";
  if (types.boolean && (word == "false" || word == "0")) return "false";
  const bool fits = is_json && ((types.object && parsed->is_object()) || (types.array && parsed->is_array()));
  // NaN and its like, which the parser takes, become null.
  if (fits) return parsed->dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  return '"' + escaped_text(text) + '"';
}

std::string escaped_text(std::string_view text) {
  const std::string quoted = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace moracle
