// How one operand of a matrix multiplication is quantized, as a value that compares structurally.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace moracle {

// Element codes of a stored operand. int4 and int8 are *offset-binary* in canonical form: an unsigned code whose zero
// point is 8 or 128 when symmetric, so that one rule, value = (code - zero) * scale, covers every integer scheme.
enum class Element : std::uint8_t { f32, f16, bf16, int8, int4, e4m3, e5m2, e2m1, e2m3, e3m2 };

enum class ScaleType : std::uint8_t { none, f32, f16, bf16, e4m3, e8m0 };

// Over which part of the operand one scale holds. `channel` is one output row of a weight, `token` one row of an
// activation, `group` cols elements along the input dimension, `block` rows x cols.
struct Granularity {
  enum class Kind : std::uint8_t { none, tensor, channel, token, group, block };
  Kind kind = Kind::none;
  std::int32_t rows = 0;  // of a block
  std::int32_t cols = 0;  // of a group or block
  bool operator==(const Granularity&) const = default;

  static constexpr Granularity tensor() { return {Kind::tensor, 0, 0}; }
  static constexpr Granularity channel() { return {Kind::channel, 0, 0}; }
  static constexpr Granularity token() { return {Kind::token, 0, 0}; }
  static constexpr Granularity group(std::int32_t cols) { return {Kind::group, 0, cols}; }
  static constexpr Granularity block(std::int32_t rows, std::int32_t cols) { return {Kind::block, rows, cols}; }
};

struct QuantKey {
  Element element = Element::bf16;
  ScaleType scale = ScaleType::none;
  Granularity granularity{};
  bool dynamic = false;                 // scales are computed from the data at run time (activations)
  bool symmetric = true;                // false: zero points are stored
  bool second_level = false;            // a further fp32 scale per tensor over the block scales (NVFP4)
  bool second_level_per_token = false;  // that scale is computed per token at run time
  bool operator==(const QuantKey&) const = default;

  [[nodiscard]] constexpr bool quantized() const { return scale != ScaleType::none; }
};

// Weight key and, where the scheme quantizes activations, the activation key. W4A16 has no activation key.
struct Scheme {
  QuantKey weight{};
  std::optional<QuantKey> activation{};
  bool operator==(const Scheme&) const = default;
};

[[nodiscard]] int bits_of(Element element);

// Short names in the field's terms: "int4 g128 sym", "int4 g32 asym", "int8 channel", "fp8 block 128x128", "mxfp4",
// "nvfp4", "bf16"; for an activation key also "dynamic" or "static".
[[nodiscard]] std::string to_string(const QuantKey& key);
void append(std::string& out, const QuantKey& key);         // the same, at the end of `out`
[[nodiscard]] std::string to_string(const Scheme& scheme);  // "W: int4 g128 sym" or "W: ..., A: ..."

}  // namespace moracle
