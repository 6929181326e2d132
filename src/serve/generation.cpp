#include "serve/generation.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <optional>

#include "base/guarded.h"
#include "serve/api/prepare.h"
#include "serve/endpoints/endpoint.h"
#include "serve/limits.h"
#include "serve/open_reply.h"
#include "serve/pending_request.h"

namespace moracle::serve {

namespace {

// The client's choice, else a new one.
std::string request_id(ServiceState& state, const ApiRequest& api, const HttpRequest& http) {
  std::string wished = api.request_id.empty() ? std::string(http.header("x-request-id")) : api.request_id;
  wished.resize(std::min(wished.size(), kRequestIdBytes));
  std::replace_if(wished.begin(), wished.end(), [](char c) { return !is_name_character(c); }, '_');
  return wished.empty() ? state.next_id() : wished;
}

// A request on its way from thread to thread.
struct Preparing {
  std::shared_ptr<PendingRequest> pending;
  std::shared_ptr<Exchange> exchange;
  std::shared_ptr<InFlightGuard> in_flight;
  OpenReply::Time arrived;
  PrepareOptions how;
  HttpRequest http{};
  std::optional<Result<ApiRequest>> api{};
};

Result<ApiRequest> prepare(const ServiceState& state, const HttpRequest& http, const PrepareOptions& how) {
  return guarded("prepare the request", [&]() -> Result<ApiRequest> {
    MORACLE_ASSIGN(RequestBody body, parse_body(http.body));
    MORACLE_ASSIGN(ApiRequest api, http.route->generation->read(std::move(body), state.options.strict));
    MORACLE_TRY(prepare_request(api, *state.model()->text, how));
    return api;
  });
}

Result<ApiRequest> hold(ApiRequest&& api, const PrepareOptions& how) {
  return guarded("prepare the request's grammar", [&]() -> Result<ApiRequest> {
    MORACLE_TRY(hold_request(api, how));
    return std::move(api);
  });
}

std::shared_ptr<OpenReply> make_reply(ServiceState& state, HttpRequest&& http, std::shared_ptr<Exchange> exchange,
                                      ApiRequest&& api, OpenReply::Time arrived) {
  const GenerationEndpoint& endpoint = *http.route->generation;
  const ServedModel& model = *state.model();
  state.metrics.count_ignored(api.ignored.size());
  const std::string id = std::string(endpoint.id_prefix) + request_id(state, api, http);
  auto translator = endpoint.translator({.head = {.id = id,
                                                  .model = api.model.empty() ? state.options.names.front() : api.model,
                                                  .fingerprint = model.fingerprint,
                                                  .created = std::time(nullptr),
                                                  .seed = static_cast<std::int64_t>(*api.seed)},
                                         .tokenizer = &model.text->tokenizer(),
                                         .top_logprobs = api.logprobs.value_or(0),
                                         .include_reasoning = api.include_reasoning,
                                         .include_usage = api.include_usage,
                                         .continuous_usage = api.continuous_usage,
                                         .echoed = std::move(api.echoed)});
  auto reply = std::make_shared<OpenReply>(state, std::move(http), std::move(exchange), std::move(api), id,
                                           std::move(translator), arrived);
  state.replies.push_back(reply);
  return reply;
}

void start(ServiceState& state, const std::shared_ptr<Preparing>& request) {
  auto http = without_body(std::move(request->http));
  state.server->post([&state, request, http = std::move(http)] {
    const std::shared_ptr<Exchange> exchange = std::move(request->exchange);  // ends on this thread
    if (request->pending->disconnected()) return;
    if (request->api->ok()) {
      make_reply(state, std::move(*http), exchange, std::move(request->api->value()), request->arrived)->start();
    } else {
      state.answer(*http, *exchange, state.error_reply(request->api->error(), http->route));
    }
  });
}

}  // namespace

void begin_generation(ServiceState& state, HttpRequest&& request, std::shared_ptr<Exchange> exchange) {
  const auto arrived = std::chrono::steady_clock::now();
  auto pending = enqueue(state, std::move(request), *exchange);
  const PrepareOptions how{.context = state.model()->context,
                           .seed = random_bits() >> 11U,
                           .max_replies = state.model()->max_queue,
                           .outputs = state.model()->outputs.get(),
                           .known = [&state](const std::string& name) { return state.check_model(name); }};
  auto preparing = std::make_shared<Preparing>(Preparing{.pending = std::move(pending),
                                                         .exchange = std::move(exchange),
                                                         .in_flight = std::make_shared<InFlightGuard>(state.preparing),
                                                         .arrived = arrived,
                                                         .how = how});
  state.worker.post([&state, preparing = std::move(preparing)] {
    auto accepted = preparing->pending->accept();
    if (!accepted) return;
    preparing->http = *std::move(accepted);
    preparing->api = prepare(state, preparing->http, preparing->how);
    if (!preparing->api->ok() || !is_held(preparing->api->value())) return start(state, preparing);
    state.holder.post([&state, preparing] {
      if (preparing->pending->disconnected()) return;
      preparing->api = hold(std::move(preparing->api->value()), preparing->how);
      start(state, preparing);
    });
  });
}

}  // namespace moracle::serve
