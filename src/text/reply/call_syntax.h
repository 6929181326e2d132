// How models write calls of tools: one row for each syntax. The table is constant, and every thread may read it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moracle {

enum class ArgumentStyle : std::uint8_t {
  object,    // NAME, then its arguments as a JSON object
  calls,     // JSON objects {"name", "arguments"}, in a list or one behind the other
  elements,  // NAME, then a key and a value of each argument, typed by the tool's schema
  channels,  // harmony: the recipient of a message is the name, its body a JSON object
};

enum class CallIds : std::uint8_t {
  made,   // "call_" and 24 letters or digits
  nine,   // nine letters or digits, which Mistral's templates insist on
  given,  // the model writes "functions.NAME:NUMBER" in place of the name, and reads it again with the result
};

// What stands between the marks of a call, of ArgumentStyle::calls.
enum class CallObjects : std::uint8_t {
  one,
  lines,  // one or more, a line each
  list,   // a list of them
};

// Marks in their order; an empty one is not written.
struct CallSyntax {
  std::string_view name;  // of --tool-format
  ArgumentStyle style{};
  std::string_view section_open{}, section_close{};  // around all calls
  std::string_view open{}, close{};                  // around each
  std::string_view name_open{}, name_end{};          // what stands before name_open says nothing
  std::string_view id_open{};                        // an id behind the name
  std::string_view key_open{}, key_close{};          // of each argument
  std::string_view value_open{}, value_close{};
  std::string_view body_close{};           // behind the last argument
  std::string_view part{};                 // of marks; where it is a token, marks are text around it
  bool padded = false;                     // a line break on both sides of a value belongs to neither
  bool opens_by_name = false;              // models leave `open` out
  bool says_text = false;                  // "true" or "false" in front of value_open: whether it is a text
  CallObjects objects = CallObjects::one;  // of ArgumentStyle::calls
  std::string_view lead{}, tail{};         // texts in front of name_open, and behind the arguments
  CallIds ids = CallIds::made;

  // All that are not empty, each once.
  [[nodiscard]] std::vector<std::string_view> marks() const;
};

// Two rows may read the same text; the first is taken.
[[nodiscard]] std::span<const CallSyntax> call_syntaxes();
// Null: there is none of this name.
[[nodiscard]] const CallSyntax* find_call_syntax(std::string_view name);
// "hermes, qwen-xml, ..."
[[nodiscard]] std::string call_syntax_names();

}  // namespace moracle
