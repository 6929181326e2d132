// GET /v1/status: counts of the moment, never prompts.
#include "serve/endpoints/endpoint.h"
#include "serve/service_state.h"

namespace moracle::serve {

namespace {

HttpReply status(ServiceState& state, const HttpRequest& /*request*/) {
  const ServedModel* const model = state.model();
  Json reply = {{"state", model == nullptr ? "loading"
                          : state.draining ? "draining"
                                           : "ready"},
                {"progress", state.progress.load()},
                {"model", state.options.names.front()},
                {"connections", state.server->connections()},
                {"body_bytes", state.server->bodies_bytes()},
                {"open_requests", state.open.load()},
                {"rss_bytes", resident_bytes()}};
  if (model == nullptr) return json_reply(reply);
  const EngineStatus engine = model->engine->status();
  reply["context"] = model->context;
  reply["system_fingerprint"] = model->fingerprint;
  reply["batch_invariant"] = model->batch_invariant;
  reply["sandbox"] = model->sandboxed;
  reply["running"] = engine.running;
  reply["waiting"] = engine.waiting;
  reply["waiting_tokens"] = engine.waiting_tokens;
  reply["kv_bytes"] = engine.kv_bytes;
  reply["kv_prefix_bytes"] = engine.kv_prefix_bytes;
  reply["kv_budget_bytes"] = engine.kv_budget;
  if (engine.experts) {
    reply["experts"] = {{"slots", engine.experts->slots},
                        {"experts", engine.experts->experts},
                        {"slot_bytes", engine.experts->slot_bytes},
                        {"uses", engine.experts->uses},
                        {"hits", engine.experts->hits},
                        {"reads", engine.experts->reads},
                        {"read_bytes", engine.experts->read_bytes},
                        {"failures", engine.experts->failures}};
  }
  reply["steps"] = engine.steps;
  reply["stalled_s"] = engine.stalled_s;
  reply["prompt_tokens"] = state.metrics.prompt_tokens();
  reply["generated_tokens"] = state.metrics.generated_tokens();
  return json_reply(reply);
}

constexpr std::array kRoutes = {Route{.path = "/v1/status", .method = "GET", .answer = status}};

void describe(OpenApi& document) {
  const Json text = schema::text();
  const Json number = schema::integer();
  const Json real = schema::real();
  document.schemas["ExpertSlots"] = schema::object(
      {"slots", "experts", "slot_bytes", "uses", "hits", "reads", "read_bytes", "failures"}, {{"slots", number},
                                                                                              {"experts", number},
                                                                                              {"slot_bytes", number},
                                                                                              {"uses", number},
                                                                                              {"hits", number},
                                                                                              {"reads", number},
                                                                                              {"read_bytes", number},
                                                                                              {"failures", number}});
  document.schemas["Status"] =
      schema::object({"state", "progress", "model", "connections", "body_bytes", "open_requests", "rss_bytes"},
                     {{"state", schema::words({"loading", "ready", "draining"})},
                      {"progress", real},
                      {"model", text},
                      {"connections", number},
                      {"body_bytes", number},
                      {"open_requests", number},
                      {"rss_bytes", number},
                      {"context", number},
                      {"system_fingerprint", text},
                      {"batch_invariant", {{"type", "boolean"}}},
                      {"sandbox", {{"type", "boolean"}}},
                      {"running", number},
                      {"waiting", number},
                      {"waiting_tokens", number},
                      {"kv_bytes", number},
                      {"kv_prefix_bytes", number},
                      {"kv_budget_bytes", number},
                      {"experts", schema::ref("ExpertSlots")},
                      {"steps", number},
                      {"stalled_s", real},
                      {"prompt_tokens", number},
                      {"generated_tokens", number}});
  document.paths["/v1/status"]["get"] = get_operation("Counts of the moment", schema::ref("Status"));
}

}  // namespace

extern const Endpoint status_endpoint{.routes = kRoutes, .describe = describe};

}  // namespace moracle::serve
