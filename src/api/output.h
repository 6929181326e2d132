// What options of the C interface hold answers to, and what they let them call.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "api/edge/call.h"
#include "generate/session.h"

namespace moracle::api {

// The constraint of answers to `prompt` by the options' response_format or structured_outputs; null: they have none.
// Errors, with the option and a JSON pointer: "argument.json", "argument.type", "argument.value", "argument.missing",
// "argument.unsupported", "argument.range" (with ignore_eos), those of hold_reply.
Result<std::shared_ptr<const ConstraintSource>> hold_output(const Session& session,
                                                            const moracle_generate_options& options,
                                                            std::string_view prompt,
                                                            const GenerationSettings& settings);

// What an answer may call; empty: nothing. Errors, likewise: those of read_tool_list as "argument.*", "argument.value"
// (beside a form), "tools.unsupported" of a model whose syntax is not known.
Result<std::optional<CallableTools>> read_tools(const Session& session, const moracle_generate_options& options);

}  // namespace moracle::api
