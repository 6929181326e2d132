// What a process gives up for good once it serves, so that who takes it over reaches nothing from it.
#pragma once

#include "base/result.h"

namespace moracle::cli {

struct SandboxOptions {
  // A GPU's driver opens its device files for reading and writing during work. The kernel sees no names here, so then
  // any existing file may be opened so, but none is created, cut or opened for writing alone.
  bool opens_devices = false;
};

// Whether this program was built with libseccomp, and without a sanitizer, whose runtime needs what is given up.
[[nodiscard]] bool has_sandbox();

// All threads, and those to come, get EPERM from now on where they make or connect a socket, run a program, read or
// write another process, or open a file for writing. What is open stays so, and listening sockets go on accepting.
// Error: "sandbox.unavailable" (built without libseccomp, or the kernel refuses).
Result<> enter_sandbox(const SandboxOptions& options);

}  // namespace moracle::cli
