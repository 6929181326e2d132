#include "serve/pending_request.h"

#include "base/guarded.h"

namespace moracle::serve {

std::shared_ptr<PendingRequest> enqueue(ServiceState& state, HttpRequest&& request, Exchange& exchange) {
  auto pending = std::make_shared<PendingRequest>(std::move(request));
  exchange.on_disconnect([&state, pending](std::string_view cause) {
    pending->disconnect();
    state.metrics.count_cancel(cause);
  });
  return pending;
}

std::shared_ptr<HttpRequest> without_body(HttpRequest&& request) {
  std::string().swap(request.body);
  request.held.reset();
  return std::make_shared<HttpRequest>(std::move(request));
}

void answer_on_worker(ServiceState& state, HttpRequest&& request, std::shared_ptr<Exchange> exchange, const char* doing,
                      std::function<Result<Json>(RequestBody body)> work) {
  auto pending = enqueue(state, std::move(request), *exchange);
  state.worker.post(
      [&state, doing, pending = std::move(pending), exchange = std::move(exchange), work = std::move(work)] {
        auto accepted = pending->accept();
        if (!accepted) return;
        auto reply = std::make_shared<Result<Json>>(guarded(doing, [&]() -> Result<Json> {
          MORACLE_ASSIGN(RequestBody body, parse_body(accepted->body));
          return work(std::move(body));
        }));
        state.server->post([&state, exchange, reply, request = without_body(*std::move(accepted))] {
          state.answer(*request, *exchange,
                       reply->ok() ? json_reply(reply->value()) : state.error_reply(reply->error(), request->route));
        });
      });
}

}  // namespace moracle::serve
