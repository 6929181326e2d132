// Tells the parts of a reply apart while it is made. Each reply has its own, which one thread at a time uses.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/reply/call_reader.h"
#include "text/reply/reply_event.h"
#include "text/reply/reply_format.h"
#include "text/reply/tool_schemas.h"

namespace moracle {

// Of replies whose format reads calls.
struct CallOptions {
  ToolSchemas tools{};         // of the request
  std::uint64_t id_seed = 0;   // ids of calls follow from it
  std::int64_t max_calls = 0;  // what follows so many is left out; 0: no bound
};

// Takes a reply in pieces of any size and gives out its text, reasoning and calls as events, without the marks. What
// may be the beginning of a mark is held back. The events' texts, joined, are the same however the reply was cut. White
// space around reasoning and calls and in front of an answer that follows them is left out.
class ReplyReader {
 public:
  using Emit = EmitReplyEvent;

  // `prompt` tells where the reply begins: a template may have opened the reasoning.
  ReplyReader(ReplyFormat format, std::string_view prompt, CallOptions calls = {});

  // A piece of text, and a mark that came as a token.
  void text(std::string_view piece, const Emit& emit);
  void mark(std::string_view mark, const Emit& emit);
  // Gives out what was held back; how the reply ended is its maker's event. `cut`: by a limit. A call that the model
  // itself left open is closed.
  void finish(const Emit& emit, bool cut = false);

  [[nodiscard]] const ReplyFormat& format() const { return format_; }
  // Whole calls.
  [[nodiscard]] std::int64_t calls() const { return calls_ ? calls_->ended() : 0; }
  // max_calls has been reached: nothing more is given out.
  [[nodiscard]] bool ended() const { return max_calls_ > 0 && calls() >= max_calls_; }
  // Behind finish(): the last call that began is not whole.
  [[nodiscard]] bool in_call() const { return in_call_; }

 private:
  enum class Part : std::uint8_t { reasoning, answer };
  enum class State : std::uint8_t {
    begin,      // think: only white space so far
    reasoning,  // think: until the closing mark
    answer,     // think: until the end
    opened,     // channels: behind a role that the prompt wrote
    header,     // channels: until the body begins
    body,       // channels: of `part_`, or of a call
    between,    // channels: behind the end of a message
  };

  void read_prompt(std::string_view prompt);
  bool begun(bool last);
  [[nodiscard]] std::vector<std::string_view> text_marks() const;
  void scan(const Emit& emit, bool last);
  [[nodiscard]] std::size_t plain(std::string_view text, const Emit& emit);
  void apply(std::string_view mark, const Emit& emit);
  void apply_channel(std::string_view mark, const Emit& emit);
  [[nodiscard]] bool apply_call(std::string_view mark, const Emit& emit);
  void end_channel_call(const Emit& emit);
  [[nodiscard]] bool in_calls() const { return calls_ && calls_->inside(); }
  [[nodiscard]] Emit of_calls(const Emit& emit);
  void put_back(const Emit& emit);
  void open_body(const Emit& emit);
  void begin_part(Part part, bool trims);
  void put(std::string_view text, const Emit& emit);
  void give(std::string_view text, const Emit& emit) const;

  ReplyFormat format_;
  std::optional<CallReader> calls_;
  ToolSchemas tools_;
  std::int64_t max_calls_ = 0;
  bool in_call_ = false;
  State state_ = State::begin;
  std::string held_;    // text that may begin a mark
  std::string header_;  // of a message: its role and channel, marks included
  std::string space_;   // white space that ends the part so far
  Part part_ = Part::answer;
  bool trims_ = false;           // white space at the start of the part is left out
  bool filled_ = false;          // the part has text
  std::array<bool, 2> given_{};  // whether parts of each kind had text
};

}  // namespace moracle
