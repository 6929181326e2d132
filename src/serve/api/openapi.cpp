#include "serve/api/openapi.h"

#include "serve/api/fields.h"

namespace moracle::serve {

namespace {

Json ref(const char* name) {
  return {{"$ref", std::string("#/components/schemas/") + name}};
}

Json content_of(const char* type, Json schema) {
  return {{type, {{"schema", std::move(schema)}}}};
}

Json errors(std::initializer_list<const char*> statuses) {
  Json responses = Json::object();
  for (const char* const status : statuses)
    responses[status] = {{"description", "An error"}, {"content", content_of("application/json", ref("Error"))}};
  return responses;
}

Json answers(const char* type, Json schema, std::initializer_list<const char*> failures) {
  Json responses = errors(failures);
  responses["200"] = {{"description", "The answer"}, {"content", content_of(type, std::move(schema))}};
  return responses;
}

Json body_schema(Endpoint endpoint) {
  Json properties = Json::object();
  for (const RequestField& field : request_fields()) {
    if (field.serves(endpoint) && field.use != FieldUse::refused)
      properties[std::string(field.name)] = field_schema(field);
  }
  return {{"type", "object"},
          {"required", Json::array({endpoint == Endpoint::chat ? "messages" : "prompt"})},
          {"properties", std::move(properties)}};
}

Json post(const char* summary, Json body, Json reply, bool streams) {
  Json responses = answers("application/json", std::move(reply),
                           {"400", "401", "403", "404", "408", "413", "415", "429", "500", "503"});
  if (streams) responses["200"]["content"]["text/event-stream"] = {{"schema", ref("Event")}};
  return {{"summary", summary},
          {"requestBody", {{"required", true}, {"content", content_of("application/json", std::move(body))}}},
          {"responses", std::move(responses)}};
}

Json get(const char* summary, const char* type, Json schema) {
  return {{"summary", summary}, {"responses", answers(type, std::move(schema), {"401", "403", "404", "503"})}};
}

Json object(std::initializer_list<const char*> required, Json properties) {
  Json names = Json::array();
  for (const char* const name : required) names.push_back(name);
  return {{"type", "object"}, {"required", std::move(names)}, {"properties", std::move(properties)}};
}

Json schemas() {
  const Json text = {{"type", "string"}};
  const Json number = {{"type", "integer"}};
  const Json maybe_text = {{"type", Json::array({"string", "null"})}};
  const Json any = Json::object();
  Json list = Json::object();
  list["ChatRequest"] = body_schema(Endpoint::chat);
  list["CompletionRequest"] = body_schema(Endpoint::completions);
  list["Error"] = object(
      {"error"}, {{"error", object({"message", "type", "param", "code"},
                                   {{"message", text}, {"type", text}, {"param", maybe_text}, {"code", maybe_text}})}});
  list["Event"] = object({"data"}, {{"data", text}});  // each of a stream
  list["Usage"] = object({"prompt_tokens", "completion_tokens", "total_tokens"},
                         {{"prompt_tokens", number}, {"completion_tokens", number}, {"total_tokens", number}});
  const auto reply = [&](Json choice) {
    return object({"id", "object", "created", "model", "choices", "usage", "system_fingerprint", "seed"},
                  {{"id", text},
                   {"object", text},
                   {"created", number},
                   {"model", text},
                   {"system_fingerprint", text},
                   {"seed", number},
                   {"choices", {{"type", "array"}, {"items", std::move(choice)}}},
                   {"usage", ref("Usage")}});
  };
  const Json reason = {{"type", "string"}, {"enum", {"stop", "length"}}};
  list["ChatReply"] = reply(object({"index", "message", "finish_reason"},
                                   {{"index", number},
                                    {"message", object({"role", "content"}, {{"role", text}, {"content", text}})},
                                    {"finish_reason", reason}}));
  list["CompletionReply"] =
      reply(object({"index", "text", "finish_reason"}, {{"index", number}, {"text", text}, {"finish_reason", reason}}));
  list["Model"] = object({"id", "object"}, {{"id", text}, {"object", text}, {"max_model_len", number}});
  list["Models"] =
      object({"object", "data"}, {{"object", text}, {"data", {{"type", "array"}, {"items", ref("Model")}}}});
  const Json ids = {{"type", "array"}, {"items", {{"type", "integer"}, {"minimum", 0}, {"maximum", 2147483647}}}};
  list["TokenizeRequest"] = {{"type", "object"},
                             {"properties",
                              {{"prompt", text},
                               {"messages", find_field("messages", Endpoint::chat)->schema()},
                               {"add_special_tokens", {{"type", "boolean"}}}}},
                             {"anyOf", Json::array({{{"required", {"prompt"}}}, {{"required", {"messages"}}}})}};
  list["TokenizeReply"] =
      object({"tokens", "count", "max_model_len"}, {{"tokens", ids}, {"count", number}, {"max_model_len", number}});
  list["DetokenizeRequest"] = object({"tokens"}, {{"tokens", ids}});
  list["DetokenizeReply"] = object({"prompt"}, {{"prompt", text}});
  const Json real = {{"type", "number"}};
  list["Status"] = object({"state", "progress", "model", "connections", "body_bytes", "open_requests", "rss_bytes"},
                          {{"state", {{"type", "string"}, {"enum", {"loading", "ready", "draining"}}}},
                           {"progress", real},
                           {"model", text},
                           {"connections", number},
                           {"body_bytes", number},
                           {"open_requests", number},
                           {"rss_bytes", number},
                           {"context", number},
                           {"system_fingerprint", text},
                           {"batch_invariant", {{"type", "boolean"}}},
                           {"running", number},
                           {"waiting", number},
                           {"waiting_tokens", number},
                           {"kv_bytes", number},
                           {"kv_prefix_bytes", number},
                           {"kv_budget_bytes", number},
                           {"steps", number},
                           {"stalled_s", real},
                           {"prompt_tokens", number},
                           {"generated_tokens", number}});
  return list;
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

Json openapi_json(const std::string& version) {
  const Json any = {{"type", "object"}};
  const Json text = {{"type", "string"}};
  Json paths = Json::object();
  paths["/v1/chat/completions"]["post"] = post("Continue a conversation", ref("ChatRequest"), ref("ChatReply"), true);
  paths["/v1/completions"]["post"] = post("Continue a text", ref("CompletionRequest"), ref("CompletionReply"), true);
  paths["/v1/models"]["get"] = get("The served names", "application/json", ref("Models"));
  paths["/v1/models/{id}"]["get"] = get("One of them", "application/json", ref("Model"));
  paths["/v1/models/{id}"]["parameters"] = Json::array(
      {{{"name", "id"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}, {"minLength", 1}}}}});
  paths["/tokenize"]["post"] =
      post("Token ids of a text or conversation", ref("TokenizeRequest"), ref("TokenizeReply"), false);
  paths["/detokenize"]["post"] = post("The text of token ids", ref("DetokenizeRequest"), ref("DetokenizeReply"), false);
  paths["/tokenizer_info"]["get"] = get("Special tokens and chat template", "application/json", any);
  paths["/health"]["get"] = get("200 once requests are served", "application/json", any);
  paths["/version"]["get"] = get("Version", "application/json", any);
  paths["/metrics"]["get"] = get("Prometheus metrics", "text/plain", text);
  paths["/openapi.json"]["get"] = get("This document", "application/json", any);
  paths["/v1/status"]["get"] = get("Counts of the moment", "application/json", ref("Status"));
  paths["/v1/decision"]["get"] = get("Which kernel serves each layer, and why", "application/json", any);
  paths["/v1/routing"]["get"] = get("How many tokens each expert took, of all requests and of one, as it changes",
                                    "text/event-stream", ref("Event"));
  paths["/v1/routing"]["parameters"] =
      Json::array({{{"name", "request"}, {"in", "query"}, {"description", "The id of a reply"}, {"schema", text}}});
  return {{"openapi", "3.1.0"},
          {"info", {{"title", "moracle serve"}, {"version", version}}},
          {"paths", std::move(paths)},
          {"components",
           {{"schemas", schemas()}, {"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}},
          {"security", Json::array({Json::object(), {{"key", Json::array()}}})}};
}

std::string openapi_yaml(const std::string& version) {
  std::string out = "# Made from the table of fields in src/serve/api/fields.cpp by `moracle api-tables openapi`.\n";
  write_yaml(openapi_json(version), 0, out);
  return out;
}

}  // namespace moracle::serve
