// GET /, /page/{file}: the page and its files.
#include <algorithm>

#include "serve/endpoints/endpoint.h"
#include "serve/limits.h"
#include "serve/page/assets.h"
#include "serve/service_state.h"

namespace moracle::serve {

namespace {

constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

constexpr std::string_view kFolder = "/page/";

HttpReply page(ServiceState& state, const HttpRequest& request) {
  const std::string_view path = request.path;
  const std::string_view name = path.starts_with(kFolder) ? path.substr(kFolder.size()) : "page.html";
  const auto assets = page_assets();
  const auto found = std::find_if(assets.begin(), assets.end(), [&](const Asset& asset) { return asset.name == name; });
  if (found == assets.end()) {
    return state.error_reply(Error{.code = "request.path",
                                   .wanted = "a path of this server",
                                   .found = "'" + request.path.substr(0, kShownNameBytes) + "'"});
  }
  HttpReply reply{.type = std::string(found->type),
                  .headers = {{"Content-Security-Policy", kPolicy},
                              {"Referrer-Policy", "no-referrer"},
                              {"Cache-Control", "no-cache"},
                              {"ETag", std::string(found->tag)}}};
  if (request.header("if-none-match") == found->tag) {
    reply.status = 304;
  } else {
    reply.body = found->text;
  }
  return reply;
}

constexpr std::array kRoutes = {Route{.path = "/", .method = "GET", .answer = page},
                                Route{.path = kFolder, .method = "GET", .answer = page}};

}  // namespace

extern const Endpoint page_endpoint{.routes = kRoutes};

}  // namespace moracle::serve
