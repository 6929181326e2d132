// Routings and activations that every engine can draw alike: 64-bit integers, a mixing function, no library's
// generator.
//
//   mix(z)          z ^= z >> 30; z *= 0xBF58476D1CE4E5B9; z ^= z >> 27; z *= 0x94D049BB133111EB; return z ^ (z >> 31)
//   seed            mix((experts << 40) + (top_k << 32) + tokens)
//   score(c, t, e)  mix(seed + 0x9E3779B97F4A7C15 * (1 + (c * tokens + t) * experts + e))
//   ids(c, t)       the top_k experts of largest score, largest first, of equal ones the lower id
//   weights(c, t)   a_j / sum of a, a_j = 1 + (mix(score of the j-th) >> 40)
//   x(c, t, k)      bf16(((mix(mix(seed ^ 0x58) + 0x9E3779B97F4A7C15 * (1 + (c * tokens + t) * hidden + k)) >> 40)
//                   - 2^23) * 2^-22), uniform in [-2, 2)
#pragma once

#include <cstdint>
#include <span>

#include "moe/layer_runner.h"
#include "synth/layer_shapes.h"

namespace moracle {

// Inputs of call `call` for `tokens` tokens.
[[nodiscard]] LayerInput spec_input(const LayerShape& shape, std::int64_t tokens, std::int64_t call);

// Calls of one measurement, each with a routing of its own.
[[nodiscard]] std::int64_t spec_calls(std::int64_t tokens);

// FNV-1a of ids as four little-endian bytes each, behind `before`.
inline constexpr std::uint64_t kFnvStart = 0xCBF29CE484222325ULL;
[[nodiscard]] std::uint64_t fingerprint(std::span<const std::int32_t> ids, std::uint64_t before = kFnvStart);

}  // namespace moracle
