// Holds the headers of harmony's messages, and the calls that they begin.
#pragma once

#include <memory>
#include <string_view>

#include "text/constrain/answer_constraint.h"
#include "text/constrain/constraint.h"
#include "text/constrain/grammar/grammar_compiler.h"

namespace moracle {

struct ChannelForm {
  std::shared_ptr<const Grammar> message{};  // of grammar_of_calls()
  std::shared_ptr<const Grammar> answer{};   // of the body of the channel "final"; null: any text
  bool may_end = false;                      // a reply may end with any message
};

// Of replies to `prompt`: the bodies of messages that call nothing are free, but the answer's where it has a form.
[[nodiscard]] std::shared_ptr<const ConstraintSource> hold_channels(std::shared_ptr<const ReplyVocabulary> vocabulary,
                                                                    ChannelForm form, std::string_view prompt);

}  // namespace moracle
