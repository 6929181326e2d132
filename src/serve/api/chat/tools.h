// The tools of a request: checked, and in the shape that templates expect.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/document.h"
#include "base/result.h"
#include "text/constrain/calls/tool_form.h"
#include "text/reply/tool_schemas.h"

namespace moracle::serve {

struct ToolUse {
  OrderedJson tools{};            // as the template sees them; null: none may be called
  ToolSchemas schemas{};          // of these
  std::vector<ToolForm> forms{};  // those that a reply may call
  bool must_call = false;         // a reply is a call
  std::int64_t max_calls = 0;     // of a reply; 0: no bound

  [[nodiscard]] bool may_call() const { return !tools.is_null(); }
};

// `fields` has tool_choice and parallel_tool_calls. Errors: "request.type", "request.value", "request.limit",
// "request.unsupported", each with the place.
Result<ToolUse> read_tools(const OrderedJson& tools, const Json& fields);

}  // namespace moracle::serve
