// The loops around matrix products, by instruction set.
#pragma once

#include "kernels/cpu/target.h"

namespace moracle::cpu {

#if defined(__x86_64__)
extern const ActivationKernels kAvx2Activations;
extern const ActivationKernels kAvx512Activations;
extern const ActivationKernels kAvx512Bf16Activations;  // the same with to_bf16
void to_bf16_avx512bf16(const float* in, std::uint16_t* out, std::int64_t count);
#elif defined(__aarch64__)
extern const ActivationKernels kNeonActivations;
[[nodiscard]] const VectorOps& neon_vector_ops();
#endif

}  // namespace moracle::cpu
