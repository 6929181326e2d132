// A reply as a sequence of events, whatever the API that it is written for. Events are values: whoever gets one owns
// it, on any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace moracle {

// Pieces of the answer and of the reasoning, in whole characters, none of them empty.
struct TextEvent {
  std::string text;
  bool operator==(const TextEvent&) const = default;
};
struct ReasoningEvent {
  std::string text;
  bool operator==(const ReasoningEvent&) const = default;
};
// A call of a tool begins; calls of one reply count from 0.
struct CallStartEvent {
  std::int64_t index = 0;
  std::string id, name;
  bool operator==(const CallStartEvent&) const = default;
};
// A piece of a call's arguments, which are JSON as text.
struct CallArgumentsEvent {
  std::int64_t index = 0;
  std::string text;
  bool operator==(const CallArgumentsEvent&) const = default;
};
// The last event.
struct EndEvent {
  enum class Reason : std::uint8_t { stop, length, tool_calls };
  Reason reason = Reason::stop;
  // The stop text or the token that ended it; nothing: an end token of the model, or none.
  std::variant<std::monostate, std::string, std::int32_t> by{};
  bool in_call = false;  // the last call that began is not whole
  bool operator==(const EndEvent&) const = default;
};

using ReplyEvent = std::variant<TextEvent, ReasoningEvent, CallStartEvent, CallArgumentsEvent, EndEvent>;

[[nodiscard]] constexpr std::string_view to_string(EndEvent::Reason reason) {
  switch (reason) {
    case EndEvent::Reason::stop:
      return "stop";
    case EndEvent::Reason::length:
      return "length";
    case EndEvent::Reason::tool_calls:
      return "tool_calls";
  }
  return "";
}

// One function of several, for std::visit.
template <class... Functions>
struct EventVisitor : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
EventVisitor(Functions...) -> EventVisitor<Functions...>;

}  // namespace moracle
