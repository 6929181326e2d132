// The messages of a chat, checked and in the shape that templates expect.
#pragma once

#include "base/json/document.h"
#include "base/result.h"

namespace moracle::serve {

// Text parts are joined, arguments of calls are objects. Errors: "request.missing", "request.type", "request.limit",
// "request.value", "request.unsupported", each with the place.
Result<OrderedJson> read_messages(OrderedJson messages);

}  // namespace moracle::serve
