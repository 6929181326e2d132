#include "cli/reply.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/generic/quantity.h"
#include "base/memory.h"
#include "base/printable.h"
#include "base/random/mix64.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/screen.h"
#include "cli/tool_results.h"
#include "text/reply/reply_reader.h"

namespace moracle::cli {

namespace {

// What a terminal may get of a model's text: no control characters but line breaks and tabs.
std::string without_controls(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of("\n\t"), text.size());
    out += printable(text.substr(0, end), std::string::npos);
    if (end < text.size()) out += text[end];
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

// Writes the parts of a reply as they come.
class ReplyPrinter {
 public:
  ReplyPrinter(const ReplyStyle& style, Console& console)
      : style_(style), console_(console), paint_(wants_color(STDOUT_FILENO)), terminal_(is_terminal(STDOUT_FILENO)) {}

  void put(const TextEvent& event) {
    if (style_.silent) return;
    turn_to(Part::answer);
    console_.out(shown(event.text));
  }
  void put(const ReasoningEvent& event) {
    if (style_.silent) return;
    if (style_.hide_reasoning) {
      console_.status("thinking");
      return;
    }
    turn_to(Part::reasoning);
    console_.out(paint_.faint(shown(event.text)));
  }
  // It is shown when the reply is whole.
  void put(const CallStartEvent& event) {
    if (!style_.silent) console_.status("calling " + printable(event.name));
  }

  void finish(std::span<const ToolCall> calls) {
    if (style_.silent) return;
    for (const ToolCall& call : calls) {
      if (begun_ && part_ == Part::call) console_.out("\n");
      turn_to(Part::call);
      console_.out(style_.json_calls ? call_json_line(call) : paint_.strong(shown(call_line(call))));
    }
    if (part_ == Part::reasoning && begun_ && !paint_.on()) console_.out("\n</think>");
    console_.out("\n");
  }

 private:
  enum class Part : std::uint8_t { answer, reasoning, call };

  [[nodiscard]] std::string shown(const std::string& text) const { return terminal_ ? without_controls(text) : text; }
  // What is written between two parts.
  void turn_to(Part part) {
    console_.end_progress();
    if (begun_ && part == part_) return;
    if (begun_) console_.out(part_ == Part::reasoning && !paint_.on() ? "\n</think>\n\n" : "\n\n");
    if (part == Part::reasoning && !paint_.on()) console_.out("<think>\n");
    part_ = part;
    begun_ = true;
  }

  const ReplyStyle& style_;
  Console& console_;
  Paint paint_;
  bool terminal_;
  bool begun_ = false;
  Part part_ = Part::answer;  // that is written
};

// What holds the reply; null: it is free. An error of the answer's form is one of its file.
Result<std::shared_ptr<const ConstraintSource>> hold_request(const Session& session, const ReplyRequest& request) {
  ReplyRules rules{.output = {}, .tools = request.tools};
  if (request.form != nullptr) rules.output = OutputField{.format = request.form->format, .place = ""};
  auto held = hold_reply(session, rules, request.prompt, request.settings);
  const bool of_form = !held.ok() && request.form != nullptr && !held.error().where.starts_with("tool");
  return of_form ? in_file(std::move(held).error(), request.form->file) : std::move(held);
}

}  // namespace

Result<Reply> generate_reply(Session& session, SequenceState& state, const ReplyRequest& request,
                             const ReplyStyle& style, Console& console) {
  Reply reply;
  ReplyPrinter printer(style, console);
  const ModelText& text = session.text();
  CallOptions calls;
  const bool may_call = request.tools.may_call();
  if (may_call)
    calls = {.tools = request.tools.schemas, .id_seed = mix64(request.settings.sampling.seed + request.ids.size())};
  ReplyReader reader(may_call ? text.call_format() : text.reply_format(), request.prompt, std::move(calls));
  Completion completion{.settings = request.settings,
                        .max_tokens = request.settings.answer_tokens(std::ssize(request.ids)),
                        .context = request.context};
  MORACLE_ASSIGN(completion.output, hold_request(session, request));
  completion.reader = &reader;
  completion.on_event = [&](ReplyEvent&& event) {
    reply.add(event);
    std::visit(EventVisitor{[&](const auto& part) { printer.put(part); }, [](const CallArgumentsEvent&) {},
                            [](const EndEvent&) {}},
               event);
  };
  const auto on_text = [&](std::string_view piece) { reply.text += piece; };
  const auto stops = [&] { return interrupted() || console.closed(); };
  auto generation = complete(session, state, request.ids, completion, on_text, stops);
  reply.keep_calls(reader.calls());
  console.end_progress();
  if (!generation.ok()) {
    if (!reply.text.empty()) printer.finish({});
    return generation.error();
  }
  printer.finish(reply.calls);
  reply.generation = *std::move(generation);
  return reply;
}

std::string reply_line(const Session& session, const Generation& generation, std::size_t width) {
  const GenerationTiming& timing = generation.timing;
  const char* const why = generation.finish == FinishReason::length        ? " (cut at the limit)"
                          : generation.finish == FinishReason::interrupted ? " (interrupted)"
                                                                           : "";
  const std::size_t count = generation.ids.size();
  std::string line = fmt::format("moracle: {} token{}{}", count, count == 1 ? "" : "s", why);
  if (timing.decode_tokens > 0) line += fmt::format(", {:.1f} tokens/s", timing.decode_tok_s());
  for (const std::string& part :
       {fmt::format("; prompt {}, {:.1f} tokens/s", timing.prefill_tokens, timing.prefill_tok_s()),
        fmt::format("; load {:.1f} s", session.load_seconds()),
        fmt::format("; peak {}", human_bytes(peak_resident_bytes()))}) {
    if (line.size() + part.size() > width) break;
    line += part;
  }
  return line + "\n";
}

}  // namespace moracle::cli
