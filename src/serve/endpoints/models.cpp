// GET /v1/models, /v1/models/{id}: the served names.
#include <algorithm>
#include <charconv>

#include "serve/endpoints/endpoint.h"
#include "serve/limits.h"
#include "serve/service_state.h"

namespace moracle::serve {

namespace {

constexpr std::string_view kList = "/v1/models";
constexpr std::string_view kOne = "/v1/models/";

// "org/name" of "org%2Fname"; escapes that are none stay.
std::string without_escapes(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    unsigned value = 0;
    const std::string digits(text.substr(at + 1, 2));
    const char* const end = digits.c_str() + digits.size();
    const bool escapes =
        text[at] == '%' && digits.size() == 2 && std::from_chars(digits.c_str(), end, value, 16).ptr == end;
    out += escapes ? static_cast<char>(value) : text[at];
    if (escapes) at += 2;
  }
  return out;
}

Json model_json(const ServiceState& state, const std::string& name) {
  const ServedModel* const model = state.model();
  return {{"id", name},
          {"object", "model"},
          {"created", state.options.created},
          {"owned_by", "moracle"},
          {"max_model_len", model != nullptr ? Json(model->context) : Json(nullptr)}};
}

HttpReply list(ServiceState& state, const HttpRequest& /*request*/) {
  Json models = Json::array();
  for (const std::string& name : state.options.names) models.push_back(model_json(state, name));
  return json_reply({{"object", "list"}, {"data", std::move(models)}});
}

HttpReply one(ServiceState& state, const HttpRequest& request) {
  const std::vector<std::string>& names = state.options.names;
  const std::string name = without_escapes(std::string_view(request.path).substr(kOne.size()));
  if (std::find(names.begin(), names.end(), name) != names.end()) return json_reply(model_json(state, name));
  return state.error_reply(Error{.code = "request.model",
                                 .where = "model",
                                 .wanted = "'" + names.front() + "'",
                                 .found = "'" + name.substr(0, kShownNameBytes) + "'"});
}

constexpr std::array kRoutes = {Route{.path = kList, .method = "GET", .answer = list},
                                Route{.path = kOne, .method = "GET", .answer = one}};

void describe(OpenApi& document) {
  const Json text = schema::text();
  document.schemas["Model"] =
      schema::object({"id", "object"}, {{"id", text}, {"object", text}, {"max_model_len", schema::integer()}});
  document.schemas["Models"] =
      schema::object({"object", "data"}, {{"object", text}, {"data", schema::list_of(schema::ref("Model"))}});
  document.paths["/v1/models"]["get"] = get_operation("The served names", schema::ref("Models"));
  Json& path = document.paths["/v1/models/{id}"];
  path["get"] = get_operation("One of them", schema::ref("Model"));
  path["parameters"] = Json::array(
      {{{"name", "id"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}, {"minLength", 1}}}}});
}

}  // namespace

extern const Endpoint models_endpoint{.routes = kRoutes, .describe = describe};

}  // namespace moracle::serve
