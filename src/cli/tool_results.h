// Results of the tools that a model calls: typed by a person, or read as lines.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "api/documents.h"
#include "base/result.h"
#include "cli/conversation.h"
#include "cli/line_editor.h"

namespace moracle::cli {

// The call in one line, without its end. For people "-> NAME ARGUMENTS"; for programs {"tool_call": {"id", "name",
// "arguments"}}.
[[nodiscard]] std::string call_line(const ToolCall& call);
[[nodiscard]] std::string call_json_line(const ToolCall& call);

class ToolResults {
 public:
  virtual ~ToolResults() = default;
  // Of one call; empty: none comes. Errors: "file.read", "file.size", "text.utf8".
  virtual Result<std::optional<std::string>> of(const ToolCall& call) = 0;
};
// Typed behind the tool's name. `closed` hears of Ctrl-D.
[[nodiscard]] std::unique_ptr<ToolResults> typed_results(LineEditor& editor, std::function<void()> closed);
// Lines of standard input, one for each call in their order. One that is a JSON text stands for that text.
[[nodiscard]] std::unique_ptr<ToolResults> read_results();

// A question with all that follows from it.
struct Turn {
  Reply reply;            // the last one
  bool complete = false;  // false: its calls have no results
};
// Asks, and goes on with results as long as replies call tools. Where no result comes for a reply's first call, the
// turn ends with it. Errors: those of Conversation::answer and ToolResults::of; "tools.results", where results end
// before calls.
Result<Turn> take_turn(Conversation& conversation, const std::string& question, ToolResults& results,
                       const ReplyStyle& style, Console& console);

}  // namespace moracle::cli
