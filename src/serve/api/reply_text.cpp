#include "serve/api/reply_text.h"

#include <type_traits>

namespace moracle::serve {

namespace {

// Adds a text to the last event, where that is of the same kind.
template <class Event>
bool joins(std::vector<ReplyEvent>& events, const ReplyEvent& event) {
  const auto* const next = std::get_if<Event>(&event);
  auto* const last = events.empty() ? nullptr : std::get_if<Event>(&events.back());
  if (next == nullptr || last == nullptr) return false;
  if constexpr (std::is_same_v<Event, CallArgumentsEvent>) {
    if (last->index != next->index) return false;
  }
  last->text += next->text;
  return true;
}

}  // namespace

ReplyText::ReplyText(const Tokenizer& tokenizer, ReplyTextOptions options)
    : text_(tokenizer, {.stop = std::move(options.stop),
                        .include_stop = options.include_stop,
                        .min_tokens = options.min_tokens,
                        .skip_special_tokens = options.skip_special_tokens,
                        .format = options.format}) {
  if (options.format) reader_.emplace(*std::move(options.format), options.prompt, std::move(options.calls));
  if (!options.echo.empty()) add(TextEvent{.text = std::move(options.echo)});
}

void ReplyText::add(ReplyEvent&& event) {
  in_reasoning_ = std::holds_alternative<ReasoningEvent>(event);
  if (std::holds_alternative<CallStartEvent>(event)) ++begun_calls_;
  const bool joined = joins<TextEvent>(events_, event) || joins<ReasoningEvent>(events_, event) ||
                      joins<CallArgumentsEvent>(events_, event);
  if (!joined) events_.push_back(std::move(event));
}

// Made where it is used: objects move.
TokenText::Emit ReplyText::emit() {
  return [this](std::string_view text, bool is_mark) {
    const auto to_events = [this](ReplyEvent&& event) { add(std::move(event)); };
    if (!reader_) {
      if (!text.empty()) add(TextEvent{.text = std::string(text)});
    } else if (is_mark) {
      reader_->mark(text, to_events);
    } else {
      reader_->text(text, to_events);
    }
  };
}

void ReplyText::count_tokens() {
  if (in_reasoning_) reasoning_tokens_ += uncounted_tokens_;
  uncounted_tokens_ = 0;
}

Result<> ReplyText::push(std::int32_t id) {
  if (stopped() || has_last_call()) return Ok{};
  ++uncounted_tokens_;
  MORACLE_TRY(text_.push(id, emit()));
  if (has_events()) count_tokens();
  return Ok{};
}

Result<> ReplyText::finish(bool cut) {
  MORACLE_TRY(text_.finish(emit()));
  if (reader_) reader_->finish([this](ReplyEvent&& event) { add(std::move(event)); }, cut && !stopped());
  count_tokens();
  return Ok{};
}

void ReplyText::end(EndEvent event, std::string rest) {
  if (!rest.empty()) add(TextEvent{.text = std::move(rest)});
  if (reader_) {
    event.in_call = begun_calls_ > reader_->calls();
    if (event.reason == EndEvent::Reason::stop && reader_->calls() > 0) event.reason = EndEvent::Reason::tool_calls;
  }
  events_.emplace_back(std::move(event));
}

}  // namespace moracle::serve
