// A request's body, parsed: JSON within limits, in one pass over its text.
#pragma once

#include <string_view>

#include "base/json/document.h"
#include "base/result.h"

namespace moracle::serve {

// An object. Templates see the members of messages and tools in the order of the text.
struct RequestBody {
  Json fields;             // "messages" is null here
  OrderedJson messages{};  // null: there are none
  OrderedJson tools{};     // likewise
};

// Errors: "request.too_large", "request.invalid_utf8" (bytes, a lone surrogate, NUL; with the byte),
// "request.invalid_json", "request.limit" (depth, values), "request.type", "request.value" (NaN, infinity).
Result<RequestBody> parse_body(std::string_view body);

}  // namespace moracle::serve
