#include "cli/reply.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/generic/quantity.h"
#include "base/memory.h"
#include "base/printable.h"
#include "cli/interrupt.h"
#include "cli/screen.h"
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
    turn_to(false);
    console_.out(shown(event.text));
  }
  void put(const ReasoningEvent& event) {
    if (style_.silent) return;
    if (style_.hide_reasoning) {
      console_.status("thinking");
      return;
    }
    turn_to(true);
    console_.out(paint_.faint(shown(event.text)));
  }

  void finish() {
    if (style_.silent) return;
    if (reasoning_ && begun_ && !paint_.on()) console_.out("\n</think>");
    console_.out("\n");
  }

 private:
  [[nodiscard]] std::string shown(const std::string& text) const { return terminal_ ? without_controls(text) : text; }
  // What is written between two parts.
  void turn_to(bool reasoning) {
    if (begun_ && reasoning == reasoning_) return;
    console_.end_progress();
    if (begun_) console_.out(reasoning || paint_.on() ? "\n\n" : "\n</think>\n\n");
    if (reasoning && !paint_.on()) console_.out("<think>\n");
    reasoning_ = reasoning;
    begun_ = true;
  }

  const ReplyStyle& style_;
  Console& console_;
  Paint paint_;
  bool terminal_;
  bool begun_ = false;
  bool reasoning_ = false;  // the part that is written
};

}  // namespace

Result<Reply> generate_reply(Session& session, SequenceState& state, const ReplyRequest& request,
                             const ReplyStyle& style, Console& console) {
  Reply reply;
  ReplyPrinter printer(style, console);
  ReplyReader reader(session.text().reply_format(), request.prompt);
  Completion completion{.settings = request.settings,
                        .max_tokens = request.settings.answer_tokens(std::ssize(request.ids)),
                        .context = request.context};
  if (request.form != nullptr) {
    MORACLE_ASSIGN(completion.output, request.form->hold(session, request.prompt, request.settings));
  }
  completion.reader = &reader;
  completion.on_event = [&](ReplyEvent&& event) {
    if (const auto* const text = std::get_if<TextEvent>(&event)) {
      reply.answer += text->text;
      printer.put(*text);
    } else if (const auto* const reasoning = std::get_if<ReasoningEvent>(&event)) {
      reply.reasoning += reasoning->text;
      printer.put(*reasoning);
    }
  };
  const auto on_text = [&](std::string_view piece) { reply.text += piece; };
  const auto stops = [&] { return interrupted() || console.closed(); };
  auto generation = complete(session, state, request.ids, completion, on_text, stops);
  console.end_progress();
  if (!generation.ok()) {
    if (!reply.text.empty()) printer.finish();
    return generation.error();
  }
  printer.finish();
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
