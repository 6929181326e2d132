// How models write calls of tools: one row for each syntax. The table is constant, and every thread may read it.
#pragma once

#include <array>
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
  keywords,  // NAME, then "key=value" or "key:value" of each argument, as Python and Gemma write values
  channels,  // harmony: the recipient of a message is the name, its body a JSON object
};

enum class CallIds : std::uint8_t {
  made,   // "call_" and 24 letters or digits
  nine,   // nine letters or digits, which Mistral's templates insist on
  given,  // the model writes "functions.NAME:NUMBER" in place of the name, and reads it again with the result
};

// What stands between the marks of a call, of ArgumentStyle::calls and keywords.
enum class CallObjects : std::uint8_t {
  one,
  lines,  // one or more, a line each
  list,   // a list of them
};

// The names of members, of ArgumentStyle::calls. Readers take those of all rows.
struct CallMembers {
  std::string_view name = "name", arguments = "arguments";
  std::string_view number{};  // of a member in front of them, which counts the calls of a reply
};

// The word in front of value_open: whether the value is a text, or else which type it has.
struct TypeWords {
  std::string_view text{};  // empty: no word is written
  std::array<std::string_view, 5> others{};
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
  std::string_view value_open{}, value_close{};      // around each value; of keywords around each text
  std::string_view body_close{};                     // behind the last argument
  std::array<std::string_view, 3> parts{};           // of marks; where they are tokens, marks are text with them
  bool padded = false;                               // a line break on both sides of a value belongs to neither
  bool opens_by_name = false;                        // models leave `open` out
  TypeWords type_words{};
  CallObjects objects = CallObjects::one;
  CallMembers members{};
  std::string_view lead{}, tail{};  // texts in front of name_open, and behind the arguments
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
