// bf16 weights in 12 bits, without loss: of the high byte, which is the sign and the upper seven bits of the exponent,
// a nibble says which of 16 it is; the low byte stays as it is.
//
// A weight matrix uses few of bf16's 256 exponents. Of normal values, 14 in a row hold all but five in ten thousand at
// most; the rest are kept in a list behind the panel (panel.h, CompactTail), so every number is what was published.
// Matrices that do not fit stay as they are.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moracle::cpu {

// One panel of `steps` steps, from PanelCode::bf16 at `plain` to PanelCode::bf16_compact at `out`. False where more
// weights fall outside than a tail holds: what was written is useless then. For CPUs that the kernels run on, AVX2.
[[nodiscard]] bool compact_panel(const std::byte* plain, std::int64_t steps, std::byte* out);

}  // namespace moracle::cpu
