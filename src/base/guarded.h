// Where exceptions of the standard library become errors.
#pragma once

#include <string_view>
#include <type_traits>

#include "base/result.h"

namespace moracle {

// The exception that is being handled, as an Error. `doing` says what was under way: "load the weights". Errors:
// "memory.exhausted" with the limit that was met; "threads.start"; "system.failed" with the system's reason;
// "internal.exception", which is a fault of the program.
[[nodiscard]] Error error_of_exception(std::string_view doing);

// work(), a Result, or the Error of what it threw. Rooms hand errors on as values, and only the standard library
// throws: memory that runs out, a thread that does not start. The innermost guard tells what was under way.
template <class Work>
std::invoke_result_t<Work> guarded(std::string_view doing, Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (...) {
    return error_of_exception(doing);
  }
}

}  // namespace moracle
