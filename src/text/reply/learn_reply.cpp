#include "text/reply/learn_reply.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/json/document.h"
#include "text/reply/reply_reader.h"

namespace moracle {
namespace {

constexpr std::string_view kQuestion = "probe-question";
constexpr std::string_view kThought = "probe-thought";
constexpr std::string_view kResult = "probe-result";
constexpr std::string_view kSpace = " \t\r\n";

// Templates differ in what they take: one call a turn, no reasoning, arguments as text, ids of one form, texts without
// quotes.
struct Shape {
  bool two_calls, reasoning, text_arguments, numbered_ids;
  bool plain = false;
};
constexpr std::array kShapes = {
    Shape{true, true, false, false},        Shape{true, true, false, true},   Shape{true, false, false, false},
    Shape{true, false, false, true},        Shape{false, true, false, false}, Shape{false, false, false, false},
    Shape{true, true, true, false},         Shape{true, true, true, true},    Shape{true, false, true, false},
    Shape{false, true, true, false},        Shape{false, false, true, false}, Shape{true, true, false, false, true},
    Shape{false, false, false, false, true}};

struct ProbeCall {
  std::string name;
  OrderedJson arguments;
};

std::vector<ProbeCall> probe_calls(const Shape& shape) {
  const char* const words = shape.plain ? "some plain words" : "a \"quoted\" <word> {or}\n'two' \\ 天";
  std::vector<ProbeCall> calls = {
      {"probe_first", {{"words", words}, {"count", 7}, {"list", OrderedJson::array({1, 2})}}}};
  if (shape.two_calls) calls.push_back({"probe_second", {{"words", "b"}}});
  return calls;
}

OrderedJson probe_tools() {
  const OrderedJson words = {{"type", "string"}, {"description", "words"}};
  const OrderedJson parameters = {{"type", "object"},
                                  {"properties",
                                   {{"words", words},
                                    {"count", {{"type", "integer"}, {"description", "count"}}},
                                    {"list", {{"type", "array"}, {"description", "list"}, {"items", words}}}}},
                                  {"required", OrderedJson::array({"words"})}};
  OrderedJson tools = OrderedJson::array();
  for (const char* const name : {"probe_first", "probe_second"}) {
    tools.push_back(
        {{"type", "function"}, {"function", {{"name", name}, {"description", "a probe"}, {"parameters", parameters}}}});
  }
  return tools;
}

ChatRequest probe_request(const Shape& shape) {
  OrderedJson calls = OrderedJson::array();
  OrderedJson results = OrderedJson::array();
  for (const ProbeCall& call : probe_calls(shape)) {
    const std::string number = std::to_string(calls.size());
    const std::string id = shape.numbered_ids ? "functions." + call.name + ":" + number : "probe000" + number;
    const OrderedJson arguments = shape.text_arguments ? OrderedJson(call.arguments.dump()) : call.arguments;
    calls.push_back({{"id", id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", arguments}}}});
    results.push_back({{"role", "tool"}, {"tool_call_id", id}, {"name", call.name}, {"content", kResult}});
  }
  OrderedJson reply = {{"role", "assistant"}, {"content", ""}, {"tool_calls", std::move(calls)}};
  if (shape.reasoning) reply["reasoning_content"] = kThought;
  OrderedJson messages = OrderedJson::array({{{"role", "user"}, {"content", kQuestion}}, std::move(reply)});
  for (OrderedJson& result : results) messages.push_back(std::move(result));
  return {.messages = std::move(messages), .tools = probe_tools()};
}

// What the template made of the assistant's turn.
std::string_view turn_of(std::string_view text) {
  const std::size_t question = text.rfind(kQuestion);
  if (question == std::string_view::npos) return {};
  text.remove_prefix(question + kQuestion.size());
  return text.substr(0, text.find(kResult));
}

bool reads_back(const CallSyntax& syntax, std::string_view turn, const Shape& shape) {
  if (turn.find(syntax.section_open) == turn.npos || turn.find(syntax.open) == turn.npos) return false;
  if (turn.find(syntax.close) == turn.npos) return false;
  // Readers take a list for objects and objects for a list; which is written, its first character tells.
  if (syntax.style == ArgumentStyle::calls) {
    const std::size_t first = turn.find_first_not_of(kSpace, turn.find(syntax.open) + syntax.open.size());
    if ((syntax.objects == CallObjects::list) != (first != turn.npos && turn[first] == '[')) return false;
  }
  ReplyFormat format;
  format.read_calls(syntax);
  std::vector<ProbeCall> found;
  std::string arguments;
  const auto end_call = [&] {
    if (auto parsed = parse_ordered_json(arguments, ""); !found.empty() && parsed.ok())
      found.back().arguments = *std::move(parsed);
    arguments.clear();
  };
  const ReplyReader::Emit emit = [&](ReplyEvent&& event) {
    if (const auto* const start = std::get_if<CallStartEvent>(&event)) {
      end_call();
      found.push_back({start->name, nullptr});
    } else if (const auto* const piece = std::get_if<CallArgumentsEvent>(&event)) {
      arguments += piece->text;
    }
  };
  ReplyReader reader(std::move(format), "", {.tools = ToolSchemas(Json(probe_tools()))});
  reader.text(turn, emit);
  reader.finish(emit);
  end_call();
  const std::vector<ProbeCall> wanted = probe_calls(shape);
  // Some templates write the first call alone.
  const bool complete =
      found.size() == wanted.size() || (found.size() == 1 && turn.find(wanted.back().name) == turn.npos);
  return complete && std::equal(found.begin(), found.end(), wanted.begin(), [](const ProbeCall& a, const ProbeCall& b) {
           return a.name == b.name && Json(a.arguments) == Json(b.arguments);
         });
}

std::optional<ReasoningMarks> marks_around(std::string_view turn) {
  const std::size_t at = turn.find(kThought);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view before = turn.substr(0, at);
  std::string_view after = turn.substr(at + kThought.size());
  before = before.substr(0, before.find_last_not_of(kSpace) + 1);
  after = after.substr(std::min(after.find_first_not_of(kSpace), after.size()));
  for (const ReasoningMarks& pair : reasoning_marks()) {
    if (before.ends_with(pair.open) && after.starts_with(pair.close)) return pair;
  }
  return std::nullopt;
}

}  // namespace

LearnedReply learn_reply(const ChatTemplates& templates) {
  LearnedReply learned;
  if (templates.sources().find("tool_calls") == std::string::npos) return learned;
  for (const Shape& shape : kShapes) {
    const auto text = templates.render(probe_request(shape));
    // A template that takes so long takes it each time.
    if (!text.ok() && text.error().code == "template.limit") return learned;
    if (!text.ok()) continue;
    const std::string_view turn = turn_of(*text);
    const auto rows = call_syntaxes();
    const auto row =
        std::find_if(rows.begin(), rows.end(), [&](const CallSyntax& one) { return reads_back(one, turn, shape); });
    if (row == rows.end()) continue;
    learned.calls = &*row;
    learned.text_arguments = shape.text_arguments;
    learned.reasoning = marks_around(turn);
    return learned;
  }
  return learned;
}

}  // namespace moracle
