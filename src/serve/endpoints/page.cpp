// GET /, /page.js, /page.css: the page.
#include "serve/endpoints/endpoint.h"
#include "serve/page/assets.h"
#include "serve/service_state.h"

namespace moracle::serve {

namespace {

constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

template <const Asset& asset>
HttpReply page(ServiceState& /*state*/, const HttpRequest& request) {
  HttpReply reply{.type = std::string(asset.type),
                  .headers = {{"Content-Security-Policy", kPolicy},
                              {"Referrer-Policy", "no-referrer"},
                              {"Cache-Control", "no-cache"},
                              {"ETag", std::string(asset.tag)}}};
  if (request.header("if-none-match") == asset.tag) {
    reply.status = 304;
  } else {
    reply.body = asset.text;
  }
  return reply;
}

constexpr std::array kRoutes = {Route{.path = "/", .method = "GET", .answer = page<kPageHtml>},
                                Route{.path = "/page.js", .method = "GET", .answer = page<kPageScript>},
                                Route{.path = "/page.css", .method = "GET", .answer = page<kPageStyle>}};

}  // namespace

extern const Endpoint page_endpoint{.routes = kRoutes};

}  // namespace moracle::serve
