// JSON as the text of replies and streams.
#pragma once

#include <string>

#include "base/json.h"

namespace moracle::serve {

// Bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string dump(const Json& json);
// A server-sent event: "data: ...\n\n".
[[nodiscard]] std::string event_of(const Json& json);

}  // namespace moracle::serve
