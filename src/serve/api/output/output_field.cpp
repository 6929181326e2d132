#include "serve/api/output/output_field.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "serve/api/api_error.h"
#include "serve/api/fields.h"

namespace moracle::serve {

namespace {

using Kind = OutputFormat::Kind;

const OrderedJson* member(const OrderedJson& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// A schema, or one as text.
Result<OutputField> schema_field(const OrderedJson& value, std::string place) {
  OutputField field{.format = {.kind = Kind::json_schema}, .place = std::move(place)};
  if (!value.is_string()) {
    field.format.schema = value;
    return field;
  }
  auto parsed = parse_ordered_json(value.get_ref<const std::string&>(), "", {.bytes = kOutputFormatBytes});
  if (!parsed.ok()) return wrong("request.value", field.place, "a JSON schema", parsed.error().message());
  field.format.schema = std::move(*parsed);
  return field;
}

Result<OutputField> regex_field(const OrderedJson& value, std::string place) {
  if (!value.is_string()) return wrong("request.type", std::move(place), "a text", value.type_name());
  return OutputField{.format = {.kind = Kind::regex, .regex = value.get<std::string>()}, .place = std::move(place)};
}

Result<OutputField> choice_field(const OrderedJson& value, std::string place) {
  const auto is_text = [](const OrderedJson& choice) { return choice.is_string(); };
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_text))
    return wrong("request.type", std::move(place), "a list of texts", value.type_name());
  return OutputField{.format = {.kind = Kind::choice, .choices = value.get<std::vector<std::string>>()},
                     .place = std::move(place)};
}

// A format by its type. A chat has the schema in "json_schema", other APIs beside the type.
Result<std::optional<OutputField>> read_format(const std::string& name, const OrderedJson& value) {
  if (!value.is_object()) return wrong("request.type", name, "an object", value.type_name());
  const OrderedJson* const type = member(value, "type");
  const std::string kind = type != nullptr && type->is_string() ? type->get<std::string>() : "";
  if (kind == "text") return std::optional<OutputField>();
  const bool chats = name == "response_format";
  if (kind == "json_object") {
    const OrderedJson* const schema = member(value, "schema");
    if (schema == nullptr) return std::optional(OutputField{.format = {.kind = Kind::json_object}, .place = name});
    MORACLE_ASSIGN(OutputField field, schema_field(*schema, name + ".schema"));
    return std::optional(std::move(field));
  }
  if (kind != "json_schema") {
    return Error{.code = "request.unsupported",
                 .where = name + ".type",
                 .wanted = "text, json_object or json_schema",
                 .found = type == nullptr ? "none" : "another",
                 .advice = chats ? "structured_outputs has regex and choice" : ""};
  }
  const std::string place = chats ? name + ".json_schema" : name;
  const OrderedJson* const owner = chats ? member(value, "json_schema") : &value;
  if (owner == nullptr || !owner->is_object())
    return wrong("request.missing", place, "an object with a schema", "none");
  const OrderedJson* const schema = member(*owner, "schema");
  if (schema == nullptr) return wrong("request.missing", place + ".schema", "a JSON schema", "none");
  MORACLE_ASSIGN(OutputField field, schema_field(*schema, place + ".schema"));
  return std::optional(std::move(field));
}

Result<std::optional<OutputField>> read_structured_outputs(const OrderedJson& value) {
  const std::string name = "structured_outputs";
  if (!value.is_object()) return wrong("request.type", name, "an object", value.type_name());
  std::optional<OutputField> field;
  for (const auto& [key, part] : value.items()) {
    if (part.is_null() || (part.is_boolean() && !part.get<bool>())) continue;
    const std::string place = name + "." + key.substr(0, kNameBytes);
    if (field) return wrong("request.value", place, "one of json, json_object, regex and choice", "several");
    if (key == "json") {
      MORACLE_ASSIGN(field, schema_field(part, place));
    } else if (key == "json_object") {
      field = OutputField{.format = {.kind = Kind::json_object}, .place = place};
    } else if (key == "regex") {
      MORACLE_ASSIGN(field, regex_field(part, place));
    } else if (key == "choice") {
      MORACLE_ASSIGN(field, choice_field(part, place));
    } else {
      return Error{.code = "request.unsupported",
                   .where = place,
                   .wanted = "json, json_object, regex or choice",
                   .found = "another member"};
    }
  }
  return field;
}

Result<std::optional<OutputField>> read_one(const std::string& name, const OrderedJson& value) {
  if (name == "structured_outputs") return read_structured_outputs(value);
  if (!name.starts_with("guided_")) return read_format(name, value);
  auto field = name == "guided_json"    ? schema_field(value, name)
               : name == "guided_regex" ? regex_field(value, name)
                                        : choice_field(value, name);
  if (!field.ok()) return std::move(field).error();
  return std::optional(std::move(*field));
}

}  // namespace

Result<std::optional<OutputField>> read_output_field(const RequestBody& body) {
  std::optional<OutputField> field;
  for (const auto& [name, value] : body.formats.items()) {
    const bool of_another_api = name == "text" || name == "output_config";
    if (of_another_api || says_nothing(value)) continue;
    MORACLE_ASSIGN(auto one, read_one(name, value));
    if (!one) continue;
    if (field) return wrong("request.value", name, "one field that holds the output", "also " + field->place);
    field = std::move(one);
  }
  return field;
}

std::string output_error_code(std::string_view code) {
  if (code == "constrain.complex") return "request.schema_too_complex";
  if (code == "schema.unsupported" || code == "schema.unknown" || code == "regex.unsupported")
    return "request.unsupported_schema";
  return code == "constrain.unavailable" || code == "constrain.reply" ? "request.unsupported"
                                                                      : "request.invalid_schema";
}

Error output_error(const OutputField& field, Error error) {
  error.code = output_error_code(error.code);
  const bool pointer = error.where.starts_with("/");
  if (!pointer && !error.where.empty()) error.found += " at " + error.where;
  error.where = field.place + (pointer ? error.where : std::string());
  return error;
}

Json response_format_schema() {
  const auto type = [](const char* name) { return Json{{"type", {{"const", name}}}}; };
  Json with_schema = type("json_schema");
  with_schema["json_schema"] = {{"type", "object"},
                                {"required", Json::array({"schema"})},
                                {"properties",
                                 {{"name", {{"type", "string"}}},
                                  {"description", {{"type", "string"}}},
                                  {"schema", {{"type", Json::array({"object", "boolean"})}}},
                                  {"strict", {{"type", Json::array({"boolean", "null"})}}}}}};
  Json forms = Json::array();
  for (const Json& members : {type("text"), type("json_object"), with_schema})
    forms.push_back({{"type", "object"}, {"required", Json::array({"type"})}, {"properties", members}});
  forms.back()["required"].push_back("json_schema");
  return {{"oneOf", std::move(forms)}};
}

Json regex_schema() {
  return {{"type", "string"}};
}

Json choices_schema() {
  return {{"type", "array"},
          {"minItems", 1},
          {"maxItems", kMostOutputChoices},
          {"items", {{"type", "string"}, {"minLength", 1}}}};
}

Json structured_outputs_schema() {
  const auto alone = [](const char* name, Json schema) {
    return Json{{"type", "object"}, {"required", Json::array({name})}, {"properties", {{name, std::move(schema)}}}};
  };
  return {{"oneOf", Json::array({alone("json", {{"type", Json::array({"object", "boolean", "string"})}}),
                                 alone("json_object", {{"const", true}}), alone("regex", regex_schema()),
                                 alone("choice", choices_schema())})}};
}

}  // namespace moracle::serve
