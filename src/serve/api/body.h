// A request's body, parsed: JSON within limits, in one pass over its text.
#pragma once

#include <array>
#include <string_view>

#include "base/json/document.h"
#include "base/result.h"

namespace moracle::serve {

// An object. Templates see the members of messages and tools in the order of the text, and replies have those of a
// schema in its order.
struct RequestBody {
  Json fields;                                  // "messages" is null here
  OrderedJson messages{};                       // null: there are none
  OrderedJson tools{};                          // likewise
  OrderedJson formats = OrderedJson::object();  // the fields that hold outputs to something, if any is there
};

// Names of the fields of RequestBody::formats. "text" and "output_config" have a format in /v1/responses and
// /v1/messages; a chat that such a request becomes has it as "text.format" and "output_config.format".
inline constexpr std::array kFormatFields = {
    "response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "text", "output_config"};

// Errors: "request.too_large", "request.invalid_utf8" (bytes, a lone surrogate, NUL; with the byte),
// "request.invalid_json", "request.limit" (depth, values), "request.type", "request.value" (NaN, infinity).
Result<RequestBody> parse_body(std::string_view body);

}  // namespace moracle::serve
