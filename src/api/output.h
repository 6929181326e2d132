// What options of the C interface hold answers to, and what they let them call.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "api/edge/call.h"
#include "generate/session.h"

namespace moracle::api {

// What options hold replies to and let them call. Errors, with the option: "argument.json", "argument.type",
// "argument.value", "argument.missing", "argument.unsupported", "argument.range" (with ignore_eos), "tools.unsupported"
// of a model whose syntax is not known.
Result<ReplyRules> read_rules(const Session& session, const moracle_generate_options& options);

// What holds replies to `prompt` to the rules; null: they are free. Errors, with the option and a JSON pointer: those
// of hold_reply.
Result<std::shared_ptr<const ConstraintSource>> hold_options(const Session& session, const ReplyRules& rules,
                                                             std::string_view prompt,
                                                             const GenerationSettings& settings);

}  // namespace moracle::api
