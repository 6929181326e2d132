// What a request holds its replies to, and what they may call.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "text/constrain/calls/tool_use.h"
#include "text/constrain/constraint.h"
#include "text/constrain/model_outputs.h"
#include "text/constrain/output_request.h"

namespace moracle {

struct ReplyRules {
  std::optional<OutputField> output{};  // of an answer, which calls nothing; empty: any
  ToolUse tools{};
};

// What holds replies to the rules; null: they are free, and calls are read as the model makes them. `outputs` is null
// of a model without an end token. `prompt`: as for ModelOutputs::hold. Any thread. Errors, where `output` has its
// place or at "tools", "tool_choice" or a tool's parameters: "constrain.end" (a held reply has no end), those of
// ModelOutputs::hold and hold_calls.
Result<std::shared_ptr<const ConstraintSource>> hold_rules(const ReplyRules& rules, ModelOutputs* outputs,
                                                           std::optional<std::string_view> prompt);

}  // namespace moracle
