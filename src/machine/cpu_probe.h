// What the CPU can do and what the operating system lets programs use of it.
#pragma once

#include <cstdint>
#include <string>

#include "machine/machine.h"

namespace moracle {

struct CpuFacts {
  CpuFeatures features = 0;  // usable: the CPU has it and the system saves its registers
  std::string model;         // as the CPU names itself
  std::string note;          // features that the CPU has and the system withholds
  std::uint64_t l2_bytes = 0;
  std::uint64_t l3_bytes = 0;  // one instance
};

// Asks Linux for permission to use the AMX tiles where the CPU has them: without it the first tile instruction faults.
[[nodiscard]] CpuFacts probe_cpu();

}  // namespace moracle
