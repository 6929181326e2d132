// The messages of a chat, checked and in the shape that templates expect.
#pragma once

#include <string>
#include <vector>

#include "base/json/document.h"
#include "base/result.h"

namespace moracle::serve {

// Text parts are joined, arguments of calls are objects. Old turns that clients have broken are mended, their places
// added to `changed`: arguments that are no JSON object become one with the member "arguments", results that belong to
// no call become messages of the user. Errors: "request.missing", "request.type", "request.limit", "request.value",
// "request.unsupported", each with the place.
Result<OrderedJson> read_messages(OrderedJson messages, std::vector<std::string>& changed);

}  // namespace moracle::serve
