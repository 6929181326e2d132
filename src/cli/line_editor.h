// Lines typed on a terminal, with editing and a history in memory.
#pragma once

#include <memory>
#include <string>

namespace moracle::cli {

class LineEditor {
 public:
  // Reads standard input and draws on standard error, or on standard output where that is no terminal. Null: the
  // terminal cannot be used.
  static std::unique_ptr<LineEditor> make();
  virtual ~LineEditor() = default;

  enum class Outcome {
    line,
    cancelled,  // by a signal; see interrupted()
    closed,     // by Ctrl-D, or the terminal is gone
  };
  // The line without its break. A pasted text of several lines is one line with breaks in it, as is one with Alt-Enter.
  virtual Outcome read(const std::string& prompt, std::string& line) = 0;
  // Adds to what the arrow keys bring back.
  virtual void remember(const std::string& text) = 0;
};

// A message of one line, of several that end with a backslash, or of those between lines of """.
LineEditor::Outcome read_message(LineEditor& editor, const std::string& prompt, std::string& message);

}  // namespace moracle::cli
