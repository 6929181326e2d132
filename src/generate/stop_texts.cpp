#include "generate/stop_texts.h"

#include <algorithm>
#include <utility>

namespace moracle {

namespace {

// How many bytes at the end of `text` begin `stop`, but are not all of it.
std::size_t begun(std::string_view text, std::string_view stop) {
  for (std::size_t size = std::min(text.size(), stop.size() - 1); size > 0; --size) {
    if (text.substr(text.size() - size) == stop.substr(0, size)) return size;
  }
  return 0;
}

}  // namespace

StopTexts::StopTexts(std::vector<std::string> texts) : texts_(std::move(texts)) {
  std::erase_if(texts_, [](const std::string& text) { return text.empty(); });
}

std::string StopTexts::push(std::string_view piece) {
  if (reached_) return {};
  held_ += piece;
  std::size_t first = std::string::npos;
  std::size_t held = 0;
  for (const std::string& stop : texts_) {
    if (const std::size_t at = held_.find(stop); at < first) {
      first = at;
      found_ = stop;
    }
    held = std::max(held, begun(held_, stop));
  }
  reached_ = first != std::string::npos;
  const std::size_t settled = reached_ ? first : held_.size() - held;
  std::string text = held_.substr(0, settled);
  held_.erase(0, reached_ ? held_.size() : settled);
  return text;
}

std::string StopTexts::finish() {
  return std::exchange(held_, {});
}

}  // namespace moracle
