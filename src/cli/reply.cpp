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

  void put(ReplyPart part, std::string_view text) {
    if (style_.silent) return;
    if (part == ReplyPart::reasoning && style_.hide_reasoning) {
      console_.status("thinking");
      return;
    }
    turn_to(part);
    const std::string shown = terminal_ ? without_controls(text) : std::string(text);
    console_.out(part == ReplyPart::reasoning ? paint_.faint(shown) : shown);
  }

  void finish() {
    if (style_.silent) return;
    if (part_ == ReplyPart::reasoning && begun_ && !paint_.on()) console_.out("\n</think>");
    console_.out("\n");
  }

 private:
  // What stands between two parts.
  void turn_to(ReplyPart part) {
    if (begun_ && part == part_) return;
    console_.end_progress();
    const bool reasoning = part == ReplyPart::reasoning;
    if (begun_) console_.out(reasoning || paint_.on() ? "\n\n" : "\n</think>\n\n");
    if (reasoning && !paint_.on()) console_.out("<think>\n");
    part_ = part;
    begun_ = true;
  }

  const ReplyStyle& style_;
  Console& console_;
  Paint paint_;
  bool terminal_;
  bool begun_ = false;
  ReplyPart part_ = ReplyPart::answer;
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
  completion.reader = &reader;
  completion.on_part = [&](ReplyPart part, std::string_view text) {
    (part == ReplyPart::reasoning ? reply.reasoning : reply.answer) += text;
    printer.put(part, text);
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
