// The tools of a request, and which of them its reply may or must call. Its functions have no state, so that every
// thread may call them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/json/document.h"
#include "base/result.h"
#include "text/constrain/calls/tool_form.h"
#include "text/reply/tool_schemas.h"

namespace moracle {

struct ToolUse {
  OrderedJson tools{};            // as the template sees them; null: none may be called
  ToolSchemas schemas{};          // of these
  std::vector<ToolForm> forms{};  // those that a reply may call
  bool must_call = false;         // a reply is a call
  std::int64_t max_calls = 0;     // of a reply; 0: no bound

  [[nodiscard]] bool may_call() const { return !tools.is_null(); }
};

// `choice`: "none", "auto", "required", or {"type": "function", "function": {"name"}}; null is "auto". Errors: those of
// read_tool_list; "request.value", at "tool_choice".
Result<ToolUse> read_tool_use(const OrderedJson& tools, const OrderedJson& choice);

}  // namespace moracle
