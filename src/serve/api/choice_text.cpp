#include "serve/api/choice_text.h"

#include <utility>

namespace moracle::serve {

ChoiceText::ChoiceText(const Tokenizer& tokenizer, ChoiceTextOptions options)
    : text_(tokenizer, {.stop = std::move(options.stop),
                        .include_stop = options.include_stop,
                        .min_tokens = options.min_tokens,
                        .skip_special_tokens = options.skip_special_tokens,
                        .format = options.format}) {
  if (options.format) reader_.emplace(*std::move(options.format), options.prompt);
}

// Made where it is used: objects move.
ReplyReader::Emit ChoiceText::emit_part() {
  return [this](ReplyPart part, std::string_view text) { put(part, text); };
}

TokenText::Emit ChoiceText::emit() {
  return [this](std::string_view text, bool is_mark) {
    if (!reader_) {
      put(ReplyPart::answer, text);
    } else if (is_mark) {
      reader_->mark(text, emit_part());
    } else {
      reader_->text(text, emit_part());
    }
  };
}

void ChoiceText::put(ReplyPart part, std::string_view text) {
  if (text.empty()) return;
  part_ = part;
  parts_[part == ReplyPart::reasoning ? 0 : 1] += text;
}

Result<> ChoiceText::push(std::int32_t id) {
  if (stopped()) return Ok{};
  ++untold_tokens_;
  MORACLE_TRY(text_.push(id, emit()));
  if (has_text()) {
    if (part_ == ReplyPart::reasoning) reasoning_tokens_ += untold_tokens_;
    untold_tokens_ = 0;
  }
  return Ok{};
}

Result<> ChoiceText::finish() {
  MORACLE_TRY(text_.finish(emit()));
  if (reader_) reader_->finish(emit_part());
  if (part_ == ReplyPart::reasoning) reasoning_tokens_ += untold_tokens_;
  untold_tokens_ = 0;
  return Ok{};
}

}  // namespace moracle::serve
