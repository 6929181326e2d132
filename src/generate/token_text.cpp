#include "generate/token_text.h"

#include <utility>

namespace moracle {

TokenText::TokenText(const Tokenizer& tokenizer, Options options)
    : options_(std::move(options)), detokenizer_(tokenizer, options_.skip_special_tokens), stops_(options_.stop) {}

void TokenText::put(std::string_view text, const Emit& emit) {
  if (!text.empty()) emit(text, false);
}

void TokenText::settle(const std::string& piece, const Emit& emit) {
  if (tokens_ < options_.min_tokens) return put(piece, emit);
  std::string text = stops_.push(piece);
  if (stops_.reached() && options_.include_stop) text += stops_.found();
  put(text, emit);
}

Result<> TokenText::push(std::int32_t id, const Emit& emit) {
  if (stops_.reached()) return Ok{};
  ++tokens_;
  MORACLE_ASSIGN(std::string text, detokenizer_.push(id));
  const std::string_view mark = options_.format ? options_.format->mark_of(id) : std::string_view();
  if (mark.empty()) {
    settle(text, emit);
    return Ok{};
  }
  if (text.ends_with(mark)) {
    text.erase(text.size() - mark.size());
  } else {
    MORACLE_ASSIGN(const std::string rest, detokenizer_.finish());  // a special token, which it leaves out
    text += rest;
  }
  settle(text, emit);
  if (stops_.reached()) return Ok{};
  put(stops_.finish(), emit);
  emit(mark, true);
  return Ok{};
}

Result<> TokenText::finish(const Emit& emit) {
  MORACLE_ASSIGN(const std::string rest, detokenizer_.finish());
  if (!stops_.reached()) settle(rest, emit);
  if (!stops_.reached()) put(stops_.finish(), emit);
  return Ok{};
}

}  // namespace moracle
