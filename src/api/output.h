// What options of the C interface hold answers to.
#pragma once

#include <memory>
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

}  // namespace moracle::api
