// Tells the parts of a reply apart while it is made.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "text/reply/reply_event.h"
#include "text/reply/reply_format.h"

namespace moracle {

// Takes a reply in pieces of any size and gives out its text and reasoning as events, without the marks. What may be
// the beginning of a mark is held back. The events' texts, joined, are the same however the reply was cut. White space
// around reasoning and in front of an answer that follows it is left out.
class ReplyReader {
 public:
  using Emit = std::function<void(ReplyEvent&&)>;

  // `prompt` tells where the reply begins: a template may have opened the reasoning.
  ReplyReader(ReplyFormat format, std::string_view prompt);

  // A piece of text, and a mark that came as a token.
  void text(std::string_view piece, const Emit& emit);
  void mark(std::string_view mark, const Emit& emit);
  // Gives out what was held back; how the reply ended is its maker's event.
  void finish(const Emit& emit);

  [[nodiscard]] const ReplyFormat& format() const { return format_; }

 private:
  enum class Part : std::uint8_t { reasoning, answer };
  enum class State : std::uint8_t {
    begin,      // think: only white space so far
    reasoning,  // think: until the closing mark
    answer,     // think: until the end
    opened,     // channels: behind a role that the prompt wrote
    header,     // channels: until the body begins
    body,       // channels: of `part_`
    between,    // channels: behind the end of a message
  };

  void read_prompt(std::string_view prompt);
  bool begun(bool last);
  void scan(const Emit& emit, bool last);
  void plain(std::string_view text, const Emit& emit);
  void apply(std::string_view mark, const Emit& emit);
  void apply_channel(std::string_view mark, const Emit& emit);
  void open_body(const Emit& emit);
  void begin_part(Part part, bool trims);
  void put(std::string_view text, const Emit& emit);
  void give(std::string_view text, const Emit& emit) const;

  ReplyFormat format_;
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
