// A file of this folder exports an endpoint: its paths, who answers them, and what openapi.json says of them. Tables
// are constant. `answer` and `begin` are called on the I/O thread, which neither may keep waiting.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "serve/api/api_error.h"
#include "serve/api/openapi.h"
#include "serve/http/http.h"

namespace moracle::serve {

struct GenerationEndpoint;
struct ServiceState;

struct Route {
  using Answer = HttpReply (*)(ServiceState& state, const HttpRequest& request);
  using Begin = void (*)(ServiceState& state, HttpRequest&& request, std::shared_ptr<Exchange> exchange);

  std::string_view path;                           // one that ends in '/' serves what begins with it as well
  std::string_view method;                         // "POST", or "GET", which serves HEAD, too
  bool needs_model = false;                        // 503 until it is loaded and once the server drains
  Answer answer = nullptr;                         // at once, or
  Begin begin = nullptr;                           // later, by the exchange
  const GenerationEndpoint* generation = nullptr;  // what begin_generation() reads and writes
  std::string (*error_body)(const ApiError& error) = nullptr;  // null: as OpenAI's clients read them
};

struct Endpoint {
  std::span<const Route> routes;
  void (*describe)(OpenApi& document) = nullptr;  // null: openapi.json leaves it out
};

// One of each file; the build makes the table of the files' names (table.cpp.in).
[[nodiscard]] std::span<const Endpoint* const> endpoints();
// Null: no endpoint serves the path.
[[nodiscard]] const Route* find_route(std::string_view path);

}  // namespace moracle::serve
