// Anthropic's messages: their requests become chats, and replies are written in their words.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "serve/api/api_error.h"
#include "serve/api/body.h"
#include "serve/api/fields.h"
#include "serve/api/reply_translator.h"
#include "serve/api/request.h"

namespace moracle::serve {

// Of the table of fields: what /v1/messages alone has.
[[nodiscard]] std::span<const RequestField> anthropic_fields();

// The chat that a body of /v1/messages asks for. Errors: those of check_fields and read_request, "request.missing",
// "request.type", "request.value", "request.unsupported", each with the place in the body.
Result<ApiRequest> read_anthropic_request(RequestBody body, bool strict);

[[nodiscard]] std::unique_ptr<ReplyTranslator> make_anthropic_translator(TranslatorOptions options);

// {"type": "error", "error": {"type", "message", "param"}}
[[nodiscard]] std::string anthropic_error_body(const ApiError& error);

}  // namespace moracle::serve
