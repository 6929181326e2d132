// The tools of a request: checked, and in the shape that templates expect. Its functions have no state, so that every
// thread may call them.
#pragma once

#include <cstddef>

#include "base/json/document.h"
#include "base/result.h"

namespace moracle {

inline constexpr std::size_t kMostTools = 256;
inline constexpr std::size_t kToolNameBytes = 64;
inline constexpr std::size_t kToolSchemaBytes = std::size_t{256} << 10U;  // of a tool's parameters, as compact JSON

// Of [{"type": "function", "function": {"name", "description", "parameters"}}]; null: there are none. Errors:
// "request.type", "request.missing", "request.value", "request.limit", "request.unsupported", each with the place, as
// "tools[0].function.name".
Result<OrderedJson> read_tool_list(const OrderedJson& tools);

}  // namespace moracle
