#include "base/result.h"

#include "base/printable.h"

namespace moracle {

namespace {

// Wishes and advice are the program's own words, longer than what files are shown by.
constexpr std::size_t kOwnBytes = 2 * kShownBytes;
constexpr const char* kMore = "\n  ...";

}  // namespace

std::string Error::message() const {
  std::string text;
  const auto part = [&text](const std::string& piece, const char* before) {
    if (piece.empty()) return;
    if (!text.empty()) text += before;
    text += piece;
  };
  part(printable_path(file), "");
  part(printable(where), ": ");
  if (!wanted.empty()) part("wanted " + printable(wanted, kOwnBytes), ": ");
  const std::string shown = found.empty() && !wanted.empty() ? "nothing" : printable(found);
  part(wanted.empty() ? shown : "found " + shown, wanted.empty() ? ": " : ", ");
  text += " [" + printable(code) + "]";
  part(printable(advice, kOwnBytes), "; ");
  for (const std::string& detail : details) {
    const std::string line = "\n  " + printable(detail);
    if (text.size() + line.size() + std::string_view(kMore).size() > kMessageBytes) return text + kMore;
    text += line;
  }
  return text;
}

}  // namespace moracle
