// A generation request from its body to the engine. Endpoints that generate differ in how they read and how they reply.
// The I/O thread calls begin_generation and makes the translator; the worker calls `read`.
#pragma once

#include <memory>
#include <string_view>

#include "serve/api/reply_translator.h"
#include "serve/api/request.h"
#include "serve/http/http.h"
#include "serve/service_state.h"

namespace moracle::serve {

struct GenerationEndpoint {
  std::string_view id_prefix;  // of replies: "chatcmpl-"
  Result<ApiRequest> (*read)(RequestBody body, bool strict);
  std::unique_ptr<ReplyTranslator> (*translator)(TranslatorOptions options);
};

// Reads and prepares the request on the worker as its route says, then starts its reply.
void begin_generation(ServiceState& state, HttpRequest&& request, std::shared_ptr<Exchange> exchange);

}  // namespace moracle::serve
