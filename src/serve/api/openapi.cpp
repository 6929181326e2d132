#include "serve/api/openapi.h"

#include <utility>

#include "serve/endpoints/endpoint.h"
#include "serve/limits.h"

namespace moracle::serve {

namespace {

Json content_of(const char* type, Json schema) {
  return {{type, {{"schema", std::move(schema)}}}};
}

Json errors(std::initializer_list<const char*> statuses) {
  Json responses = Json::object();
  for (const char* const status : statuses) {
    responses[status] = {{"description", "An error"},
                         {"content", content_of("application/json", schema::ref("Error"))}};
  }
  return responses;
}

Json answers(const char* type, Json schema, std::initializer_list<const char*> failures) {
  Json responses = errors(failures);
  responses["200"] = {{"description", "The answer"}, {"content", content_of(type, std::move(schema))}};
  return responses;
}

// More than one endpoint refers to these.
void add_shared_schemas(Json& schemas) {
  const Json text = schema::text();
  const Json maybe_text = {{"type", Json::array({"string", "null"})}};
  schemas["Error"] = schema::object(
      {"error"},
      {{"error", schema::object({"message", "type", "param", "code"},
                                {{"message", text}, {"type", text}, {"param", maybe_text}, {"code", maybe_text}})}});
  schemas["Event"] = schema::object({"data"}, {{"data", text}});  // each of a stream
  const Json number = schema::integer();
  schemas["Usage"] =
      schema::object({"prompt_tokens", "completion_tokens", "total_tokens"},
                     {{"prompt_tokens", number}, {"completion_tokens", number}, {"total_tokens", number}});
}

void write_yaml(const Json& json, std::size_t indent, std::string& out) {
  const std::string space(indent, ' ');
  const auto nested = [&](const Json& value) {
    if (!value.is_structured() || value.empty()) {
      out += " " + value.dump() + "\n";
      return;
    }
    out += "\n";
    write_yaml(value, indent + 2, out);
  };
  if (json.is_object()) {
    for (const auto& [name, value] : json.items()) {
      out += space + Json(name).dump() + ":";
      nested(value);
    }
    return;
  }
  for (const Json& value : json) {
    out += space + "-";
    nested(value);
  }
}

}  // namespace

Json schema::text() {
  return {{"type", "string"}};
}
Json schema::integer() {
  return {{"type", "integer"}};
}
Json schema::real() {
  return {{"type", "number"}};
}
Json schema::token_ids() {
  return list_of({{"type", "integer"}, {"minimum", 0}, {"maximum", kMostTokenId}});
}
Json schema::words(const std::vector<std::string>& words) {
  return {{"type", "string"}, {"enum", words}};
}
Json schema::list_of(Json items) {
  return {{"type", "array"}, {"items", std::move(items)}};
}
Json schema::object(std::initializer_list<std::string_view> required, Json properties) {
  Json names = Json::array();
  for (const std::string_view name : required) names.push_back(name);
  return {{"type", "object"}, {"required", std::move(names)}, {"properties", std::move(properties)}};
}
Json schema::ref(std::string_view name) {
  return {{"$ref", "#/components/schemas/" + std::string(name)}};
}
Json schema::reply(Json choice) {
  return object({"id", "object", "created", "model", "choices", "usage", "system_fingerprint", "seed"},
                {{"id", text()},
                 {"object", text()},
                 {"created", integer()},
                 {"model", text()},
                 {"system_fingerprint", text()},
                 {"seed", integer()},
                 {"choices", list_of(std::move(choice))},
                 {"usage", ref("Usage")}});
}

Json post_operation(std::string_view summary, Json body, Json reply, bool streams) {
  Json responses = answers("application/json", std::move(reply),
                           {"400", "401", "403", "404", "408", "413", "415", "429", "500", "503"});
  if (streams) responses["200"]["content"]["text/event-stream"] = {{"schema", schema::ref("Event")}};
  return {{"summary", summary},
          {"requestBody", {{"required", true}, {"content", content_of("application/json", std::move(body))}}},
          {"responses", std::move(responses)}};
}

Json get_operation(std::string_view summary, Json reply, const char* type) {
  return {{"summary", summary}, {"responses", answers(type, std::move(reply), {"401", "403", "404", "503"})}};
}

Json openapi_json(const std::string& version) {
  OpenApi document;
  add_shared_schemas(document.schemas);
  for (const Endpoint* const endpoint : endpoints()) {
    if (endpoint->describe != nullptr) endpoint->describe(document);
  }
  return {{"openapi", "3.1.0"},
          {"info", {{"title", "moracle serve"}, {"version", version}}},
          {"paths", std::move(document.paths)},
          {"components",
           {{"schemas", std::move(document.schemas)},
            {"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}},
          {"security", Json::array({Json::object(), {{"key", Json::array()}}})}};
}

std::string openapi_yaml(const std::string& version) {
  std::string out =
      "# Made of src/serve/endpoints and the table of fields in src/serve/api/fields.cpp by `moracle api-tables "
      "openapi`.\n";
  write_yaml(openapi_json(version), 0, out);
  return out;
}

}  // namespace moracle::serve
