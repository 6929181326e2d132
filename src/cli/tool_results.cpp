#include "cli/tool_results.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/json/document.h"
#include "base/printable.h"
#include "cli/interrupt.h"

namespace moracle::cli {

namespace {

constexpr std::size_t kResultBytes = std::size_t{8} << 20;

// What is no JSON is a text.
OrderedJson arguments_of(const ToolCall& call) {
  auto arguments = parse_ordered_json(call.arguments, "");
  return arguments.ok() ? *std::move(arguments) : OrderedJson(call.arguments);
}

std::string one_line(const OrderedJson& json) {
  return printable_json(json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
}

class TypedResults final : public ToolResults {
 public:
  TypedResults(LineEditor& editor, std::function<void()> closed) : editor_(editor), closed_(std::move(closed)) {}

  Result<std::optional<std::string>> of(const ToolCall& call) override {
    std::string result;
    switch (read_message(editor_, printable(call.name) + "> ", result)) {
      case LineEditor::Outcome::line:
        break;
      case LineEditor::Outcome::closed:
        closed_();
        return std::optional<std::string>();
      case LineEditor::Outcome::cancelled:
        return std::optional<std::string>();
    }
    return std::optional(std::move(result));
  }

 private:
  LineEditor& editor_;
  std::function<void()> closed_;
};

class ReadResults final : public ToolResults {
 public:
  Result<std::optional<std::string>> of(const ToolCall& /*call*/) override {
    MORACLE_ASSIGN(auto line, next_line());
    if (!line) return line;
    MORACLE_TRY(check_text(*line, "standard input"));
    if (!line->starts_with('"')) return line;
    const auto json = parse_ordered_json(*line, "standard input");
    if (json.ok() && json->is_string()) line = json->get<std::string>();
    return line;
  }

 private:
  // Without its break; empty: there are no more.
  Result<std::optional<std::string>> next_line() {
    for (;;) {
      if (const std::size_t end = held_.find('\n'); end != std::string::npos) {
        std::string line = held_.substr(0, end);
        held_.erase(0, end + 1);
        if (line.ends_with('\r')) line.pop_back();
        return std::optional(std::move(line));
      }
      if (held_.size() > kResultBytes) {
        return Error{.code = "file.size",
                     .file = "standard input",
                     .wanted = fmt::format("lines of at most {} bytes", kResultBytes),
                     .found = "a longer one"};
      }
      char buffer[1 << 16];
      const ssize_t got = ::read(STDIN_FILENO, buffer, sizeof buffer);
      if (got < 0 && errno == EINTR && !interrupted()) continue;
      if (got < 0 && errno != EINTR)
        return Error{.code = "file.read", .file = "standard input", .wanted = "text", .found = std::strerror(errno)};
      if (got <= 0 && held_.empty()) return std::optional<std::string>();
      if (got <= 0) held_ += '\n';  // the last line has no break
      if (got > 0) held_.append(buffer, static_cast<std::size_t>(got));
    }
  }

  std::string held_;  // read, and not handed out
};

}  // namespace

std::string call_line(const ToolCall& call) {
  return "-> " + call.name + " " + one_line(arguments_of(call));
}

std::string call_json_line(const ToolCall& call) {
  OrderedJson json = {{"id", call.id}, {"name", call.name}, {"arguments", arguments_of(call)}};
  return one_line(OrderedJson{{"tool_call", std::move(json)}});
}

std::unique_ptr<ToolResults> typed_results(LineEditor& editor, std::function<void()> closed) {
  return std::make_unique<TypedResults>(editor, std::move(closed));
}

std::unique_ptr<ToolResults> read_results() {
  return std::make_unique<ReadResults>();
}

Result<Turn> take_turn(Conversation& conversation, const std::string& question, ToolResults& results,
                       const ReplyStyle& style, Console& console) {
  Turn turn;
  MORACLE_ASSIGN(turn.reply, conversation.answer(question, style, console));
  while (turn.reply.ended_to_call()) {
    std::vector<std::string> given;
    for (const ToolCall& call : turn.reply.calls) {
      MORACLE_ASSIGN(auto result, results.of(call));
      if (!result && (given.empty() || interrupted())) return turn;
      if (!result) {
        return Error{.code = "tools.results",
                     .wanted = fmt::format("a result of each of {} calls", turn.reply.calls.size()),
                     .found = std::to_string(given.size())};
      }
      given.push_back(*std::move(result));
    }
    MORACLE_ASSIGN(turn.reply, conversation.go_on(given, style, console));
  }
  turn.complete = true;
  return turn;
}

}  // namespace moracle::cli
