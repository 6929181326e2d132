// OpenAI's responses, without a store: their requests become chats, and replies are written in their words.
#pragma once

#include <memory>
#include <span>

#include "base/result.h"
#include "serve/api/body.h"
#include "serve/api/fields.h"
#include "serve/api/reply_translator.h"
#include "serve/api/request.h"

namespace moracle::serve {

// Of the table of fields: what /v1/responses alone has.
[[nodiscard]] std::span<const RequestField> responses_fields();

// The chat that a body of /v1/responses asks for; `echoed` has what replies repeat. Errors: those of check_fields and
// read_request, "request.missing", "request.type", "request.unsupported", each with the place in the body.
Result<ApiRequest> read_responses_request(RequestBody body, bool strict);

[[nodiscard]] std::unique_ptr<ReplyTranslator> make_responses_translator(TranslatorOptions options);

}  // namespace moracle::serve
