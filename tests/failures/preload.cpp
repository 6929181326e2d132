// Loaded before a program (LD_PRELOAD), fails one of its calls, counted from main on:
//
//   FAIL_CALL=allocate|open|read|map|thread FAIL_AT=n   the n-th call fails; 0: none, calls are only counted
//   FAIL_FOR_GOOD=1                                     and all later ones
//   FAIL_REPORT=FILE                                    gets the number of calls when main has returned
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>

#include "failures/failing_calls.h"

namespace {

using Main = int (*)(int, char**, char**);

Main program = nullptr;

int failing_main(int argc, char** argv, char** environment) {
  const char* const name = std::getenv("FAIL_CALL");
  const char* const at = std::getenv("FAIL_AT");
  const char* const report = std::getenv("FAIL_REPORT");
  const auto call = moracle::test::call_named(name == nullptr ? "" : name);
  if (call) {
    moracle::test::arm(*call, at == nullptr ? 0 : std::atoll(at), std::getenv("FAIL_FOR_GOOD") != nullptr);
  }
  const int code = program(argc, argv, environment);
  const std::int64_t calls = moracle::test::disarm();
  if (report == nullptr) return code;
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), calls).ptr;
  const int file = ::open(report, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const auto size = static_cast<std::size_t>(end - text.data());
  if (file < 0 || ::write(file, text.data(), size) != static_cast<ssize_t>(size)) return 127;
  ::close(file);
  return code;
}

}  // namespace

// What every program calls first; the C library's own name.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(), void (*rtld_fini)(),
                                 void* stack_end) {
  using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  program = main;
  const auto start = reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return start(failing_main, argc, argv, init, fini, rtld_fini, stack_end);
}
