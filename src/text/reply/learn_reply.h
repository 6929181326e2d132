// What a chat template tells about the replies of its model: a conversation is rendered, and what comes out is read. It
// is asked once at load; what it learns is constant.
#pragma once

#include <optional>

#include "text/reply/call_syntax.h"
#include "text/reply/reply_format.h"
#include "text/template/chat_templates.h"

namespace moracle {

struct LearnedReply {
  const CallSyntax* calls = nullptr;          // null: none that is known
  std::optional<ReasoningMarks> reasoning{};  // around what the template writes of it
  bool text_arguments = false;                // the template wants arguments of calls as text, not as objects
};

// A template that fails, or that takes no tools, tells nothing.
[[nodiscard]] LearnedReply learn_reply(const ChatTemplates& templates);

}  // namespace moracle
