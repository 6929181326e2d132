// One reply of a model: generated, its parts told apart and shown as they come.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/documents.h"
#include "base/result.h"
#include "cli/answer_form.h"
#include "cli/console.h"

namespace moracle::cli {

struct ReplyStyle {
  bool silent = false;          // nothing is shown
  bool hide_reasoning = false;  // the answer alone is shown
  bool json_calls = false;      // calls of tools are shown as call_json_line(), else as call_line()
};

// What is asked of the model.
struct ReplyRequest {
  std::string prompt;                   // as text, which tells where the reply begins
  std::span<const std::int32_t> ids{};  // of it, the first of which `state` holds
  std::int64_t context = 0;             // most tokens in all; 0: what the model can hold
  GenerationSettings settings{};
  const AnswerForm* form = nullptr;  // that the answer is held to; null: any answer
  ToolUse tools{};                   // that the reply may call
};

// Shows reasoning dimmed on a terminal with colours, elsewhere between lines <think> and </think>, and calls once they
// are whole. A terminal gets no control characters of the model. A call that is cut is left out. Ends after a signal,
// and when standard output is closed.
Result<Reply> generate_reply(Session& session, SequenceState& state, const ReplyRequest& request,
                             const ReplyStyle& style, Console& console);

// "moracle: 128 tokens, 14.2 tokens/s; prompt 23 tokens, 210.3 tokens/s; load 4.1 s; peak 15.9 GiB"; of a narrow screen
// the first parts.
[[nodiscard]] std::string reply_line(const Session& session, const Generation& generation, std::size_t width);

}  // namespace moracle::cli
