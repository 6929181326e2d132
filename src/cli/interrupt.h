// Ctrl-C and its like: noted in a flag, acted on between steps.
#pragma once

#include <string_view>

namespace moracle::cli {

// Of an end for which there is not even the memory of an Error.
inline constexpr std::string_view kOutOfMemoryLine = "moracle: error: out of memory [memory.exhausted]\n";

// Opens /dev/null for standard descriptors that are closed (a model file must never become standard output), ignores
// SIGPIPE and notes SIGINT and SIGTERM. A second one ends the process at once. Memory that runs out in a destructor,
// where nothing can catch it, ends it with kOutOfMemoryLine and exit code 1.
void prepare_process();

[[nodiscard]] bool interrupted();
// 128 + the signal's number.
[[nodiscard]] int interrupt_exit_code();
// Whether the signal asks for the program's end, and not only for that of an answer.
[[nodiscard]] bool asked_to_end();
// For the interactive chat: Ctrl-C ended one answer, not the program.
void clear_interrupt();

// While a line is typed, a second signal ends nothing at once: the terminal must first be as it was.
class WhileTyping {
 public:
  WhileTyping();
  ~WhileTyping();
  WhileTyping(const WhileTyping&) = delete;
  WhileTyping& operator=(const WhileTyping&) = delete;
};

}  // namespace moracle::cli
