#include "text/reply/keyword_cursor.h"

#include <string_view>
#include <utility>

#include "base/json/document.h"
#include "text/reply/tool_schemas.h"

namespace moracle {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

// A word without quotes as JSON: one that is known, a number, or a text.
std::string value_of(const std::string& word) {
  if (word == "None" || word == "null") return "null";
  if (word == "True" || word == "true") return "true";
  if (word == "False" || word == "false") return "false";
  const auto parsed = parse_ordered_json(word, "");
  const bool number = parsed.ok() && parsed->is_number();
  return number ? word : '"' + escaped_text(word) + '"';
}

}  // namespace

void KeywordCursor::begin_value(std::string& out) {
  if (std::exchange(separated_, false)) out += ',';
}

void KeywordCursor::end_word(bool is_key, std::string& out) {
  std::string word = std::exchange(word_, {});
  word.erase(word.find_last_not_of(kSpace) + 1);
  if (!word.empty()) out += is_key ? '"' + escaped_text(word) + '"' : value_of(word);
}

void KeywordCursor::push_text(char c, std::string& out) {
  const bool in_marks = quote_ == kMark;
  if (std::exchange(escaped_, false)) {
    if (c != '\'') out += '\\';
    out += c;
  } else if (c == '\\') {
    escaped_ = !in_marks;
    if (in_marks) out += "\\\\";
  } else if (c == quote_ && !in_marks) {
    quote_ = kNone;
    out += '"';
  } else {
    if (c == '"') out += '\\';
    out += c;
  }
}

void KeywordCursor::quote(std::string& out) {
  if (quote_ == kNone) begin_value(out);
  quote_ = quote_ == kNone ? kMark : kNone;
  out += '"';
}

void KeywordCursor::push(char c, std::string& out) {
  if (quote_ != kNone) return push_text(c, out);
  switch (c) {
    case '"':
    case '\'':
      begin_value(out);
      quote_ = c;
      out += '"';
      return;
    case '{':
    case '[':
    case '(':
      begin_value(out);
      brackets_ += c == '{' ? '}' : ']';
      out += c == '{' ? '{' : '[';
      return;
    case '}':
    case ']':
    case ')':
      end_word(false, out);
      separated_ = false;  // a comma too many
      out += brackets_.empty() ? '}' : brackets_.back();
      if (!brackets_.empty()) brackets_.pop_back();
      return;
    case ',':
      end_word(false, out);
      if (separated_) out += ',';
      separated_ = true;
      return;
    case ':':
    case '=':
      end_word(true, out);
      out += ':';
      return;
    default:
      if (word_.empty() && kSpace.find(c) != std::string_view::npos) return;
      begin_value(out);
      word_ += c;
  }
}

}  // namespace moracle
