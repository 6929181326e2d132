// Writes numbers of keys, values and latents in the type in which they are kept.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kv_type.h"

namespace moracle::cpu {

// Writes x[i] to element i * stride of `to`. Returns the scale of int8 codes (code * scale is the number), else 1.
// Numbers that are not finite give int8 a scale of NaN.
float store_kv(KvType type, std::span<const float> x, std::byte* to, std::int64_t stride = 1);

}  // namespace moracle::cpu
