// Turns arguments that are written as Python or Gemma write values into JSON. Each call has its own, which one thread
// at a time uses.
#pragma once

#include <string>

namespace moracle {

// Takes `key=value` or `key:value`, with commas between them, byte by byte, from behind the bracket that opens them up
// to the one that closes them. What it gives out follows "{" in a JSON object; JsonCursor tells whether it is right.
// Texts stand between quotes of either kind, or between marks; None, True and False are taken beside JSON's words.
class KeywordCursor {
 public:
  void push(char c, std::string& out);
  // A mark in front of a text or behind it.
  void quote(std::string& out);

  // Between two such marks, where all bytes are content.
  [[nodiscard]] bool in_marks() const { return quote_ == kMark; }

 private:
  static constexpr char kMark = '\0';
  static constexpr char kNone = ' ';

  void push_text(char c, std::string& out);
  void end_word(bool is_key, std::string& out);
  void begin_value(std::string& out);

  char quote_ = kNone;      // that closes the text; kMark: a mark does
  bool escaped_ = false;    // behind a backslash
  std::string word_;        // without quotes, so far
  std::string brackets_;    // that are open, as JSON closes them
  bool separated_ = false;  // a comma came, and nothing since
};

}  // namespace moracle
