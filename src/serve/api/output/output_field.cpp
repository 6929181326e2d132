#include "serve/api/output/output_field.h"

#include <utility>

#include "serve/api/api_error.h"
#include "serve/api/fields.h"

namespace moracle::serve {

Result<std::optional<OutputField>> read_output_field(const RequestBody& body) {
  std::optional<OutputField> field;
  for (const auto& [name, value] : body.formats.items()) {
    const bool of_another_api = name == "text" || name == "output_config";
    if (of_another_api || says_nothing(value)) continue;
    MORACLE_ASSIGN(auto one, read_output_request(name, value));
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
  const bool impossible = code == "constrain.unavailable" || code == "constrain.reply" || code == "constrain.end";
  return impossible ? "request.unsupported" : "request.invalid_schema";
}

Error request_error(Error error) {
  error.code = output_error_code(error.code);
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
