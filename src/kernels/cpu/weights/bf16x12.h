// bf16 weights in 12 bits, without loss: of the high byte, which is the sign and the upper seven bits of the exponent,
// a nibble says which of 16 it is; the low byte stays as it is.
//
// A weight matrix uses few of bf16's 256 exponents. Of normal values, 14 in a row hold all but five in ten thousand at
// most; the rest are kept in a list behind the panel (panel.h, Bf16x12Tail), so every number is what was published.
// Matrices that do not fit stay as they are.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moracle::cpu {

// One panel of `steps` steps, from WeightCode::bf16 at `plain` to WeightCode::bf16x12 at `out`. False where more
// weights fall outside than a tail holds: what was written is useless then. For CPUs that the kernels run on, AVX2.
[[nodiscard]] bool pack_bf16x12(const std::byte* plain, std::int64_t steps, std::byte* out);

}  // namespace moracle::cpu
