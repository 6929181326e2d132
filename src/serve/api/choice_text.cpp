#include "serve/api/choice_text.h"

#include <utility>

namespace moracle::serve {

ChoiceText::ChoiceText(const Tokenizer& tokenizer, ChoiceTextOptions options)
    : options_(std::move(options)), detokenizer_(tokenizer, options_.skip_special_tokens), stops_(options_.stop) {
  if (options_.format) reader_.emplace(*options_.format, options_.prompt);
}

// Made where it is used: objects move.
ReplyReader::Emit ChoiceText::emit() {
  return [this](ReplyPart part, std::string_view text) { put(part, text); };
}

void ChoiceText::put(ReplyPart part, std::string_view text) {
  if (text.empty()) return;
  part_ = part;
  parts_[part == ReplyPart::reasoning ? 0 : 1] += text;
}

void ChoiceText::settle(std::string_view text) {
  if (text.empty()) return;
  if (reader_) {
    reader_->text(text, emit());
  } else {
    put(ReplyPart::answer, text);
  }
}

std::string ChoiceText::through_stops(const std::string& piece) {
  if (tokens_ < options_.min_tokens) return piece;
  std::string text = stops_.push(piece);
  if (stops_.reached() && options_.include_stop) text += stops_.found();
  return text;
}

// What was held back comes before a mark, whatever it might have begun.
void ChoiceText::settle_mark(std::string text, std::string_view mark) {
  settle(through_stops(text));
  if (stops_.reached()) return;
  settle(stops_.finish());
  reader_->mark(mark, emit());
}

Result<> ChoiceText::push(std::int32_t id) {
  if (stops_.reached()) return Ok{};
  ++tokens_;
  ++untold_tokens_;
  MORACLE_ASSIGN(std::string text, detokenizer_.push(id));
  const std::string_view mark = reader_ ? reader_->format().mark_of(id) : std::string_view();
  if (mark.empty()) {
    settle(through_stops(text));
  } else {
    if (text.ends_with(mark)) {
      text.erase(text.size() - mark.size());
    } else {
      MORACLE_ASSIGN(const std::string rest, detokenizer_.finish());  // a special token, which it leaves out
      text += rest;
    }
    settle_mark(std::move(text), mark);
  }
  if (has_text()) {
    if (part_ == ReplyPart::reasoning) reasoning_tokens_ += untold_tokens_;
    untold_tokens_ = 0;
  }
  return Ok{};
}

Result<> ChoiceText::finish() {
  MORACLE_ASSIGN(const std::string rest, detokenizer_.finish());
  if (!stops_.reached()) settle(through_stops(rest));
  if (!stops_.reached()) settle(stops_.finish());
  if (reader_) reader_->finish(emit());
  if (part_ == ReplyPart::reasoning) reasoning_tokens_ += untold_tokens_;
  untold_tokens_ = 0;
  return Ok{};
}

}  // namespace moracle::serve
