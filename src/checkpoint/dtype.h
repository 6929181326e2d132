// Element types of tensors as stored in a file.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"

namespace moracle {

// Element types of the safetensors format that can be stored. f4 holds two elements per byte; f8_e4m3 is the variant
// without infinities ("fn"); f8_e8m0 is a power of two, used as a scale.
enum class Dtype : std::uint8_t {
  boolean,
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  u64,
  i64,
  f8_e4m3,
  f8_e5m2,
  f8_e8m0,
  f4,
  bf16,
  f16,
  f32,
  f64
};

[[nodiscard]] std::string_view to_string(Dtype dtype);  // the spelling of the file format: "BF16", "F8_E4M3", ...
[[nodiscard]] int bits_of(Dtype dtype);
[[nodiscard]] std::optional<Dtype> parse_dtype(std::string_view spelling);  // exact spelling only

inline constexpr std::size_t kMaxRank = 8;

// Bytes of a dense tensor. `shape` may be empty (a scalar). The errors carry code, wanted and found; the caller adds
// file and tensor. Errors: "shape.overflow" (rank above kMaxRank, a dimension below 1, a product that leaves 63 bits),
// "dtype.misaligned" (an odd number of 4-bit elements).
Result<std::uint64_t> tensor_bytes(Dtype dtype, std::span<const std::int64_t> shape);

}  // namespace moracle
