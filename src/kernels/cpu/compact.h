// bf16 weights in 12 bits, without loss: signs and mantissas as they are, exponents as one of 15 neighbours or zero.
//
// A weight matrix uses few of bf16's 256 exponents. Of normal values, 15 in a row hold all but two in ten thousand; the
// rest are kept in a list behind the panel (panel.h, CompactTail), so every number is what was published. Matrices that
// do not fit stay as they are.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moracle::cpu {

// One panel of `steps` steps, from PanelCode::bf16 at `plain` to PanelCode::bf16_compact at `out`. False where more
// weights fall outside than a tail holds: what was written is useless then. For CPUs that the kernels run on, AVX-512
// BF16.
[[nodiscard]] bool compact_panel(const std::byte* plain, std::int64_t steps, std::byte* out);

}  // namespace moracle::cpu
