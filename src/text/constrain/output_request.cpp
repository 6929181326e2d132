#include "text/constrain/output_request.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace moracle {

namespace {

using Kind = OutputFormat::Kind;

constexpr std::size_t kShownBytes = 80;  // of a name in an error

Error wrong(const char* code, std::string where, std::string wanted, std::string found) {
  return {.code = code, .where = std::move(where), .wanted = std::move(wanted), .found = std::move(found)};
}

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
    const std::string place = name + "." + key.substr(0, kShownBytes);
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

}  // namespace

Error at_output(const OutputField& field, Error error) {
  const bool pointer = error.where.starts_with("/");
  if (!pointer && !error.where.empty()) error.found += " at " + error.where;
  error.where = field.place + (pointer ? error.where : std::string());
  return error;
}

Result<std::optional<OutputField>> read_output_request(const std::string& name, const OrderedJson& value) {
  if (name == "structured_outputs") return read_structured_outputs(value);
  if (!name.starts_with("guided_")) return read_format(name, value);
  auto field = name == "guided_json"    ? schema_field(value, name)
               : name == "guided_regex" ? regex_field(value, name)
                                        : choice_field(value, name);
  if (!field.ok()) return std::move(field).error();
  return std::optional(std::move(*field));
}

}  // namespace moracle
