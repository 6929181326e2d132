// The instruction sets of this build.
#pragma once

#include "kernels/cpu/target.h"

namespace moracle::cpu {

#if defined(__x86_64__)
extern const Target kAvx2;
extern const Target kAvx512;
extern const Target kAvx512Bf16;
extern const Target kAvx512Vnni;
extern const Target kAmx;
#endif

}  // namespace moracle::cpu
