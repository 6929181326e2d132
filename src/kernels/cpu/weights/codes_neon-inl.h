// Codes on 4 lanes: bytes for SDOT, four columns a lane, and one column a register as f32. Split int16 activations
// (panel.h) take two SDOT for one: SMLAL on words would need four.
#pragma once

#include <arm_neon.h>

#include "kernels/cpu/weights/codes_common-inl.h"

namespace moracle::cpu::neon {

template <class Simd, class CodeSums>
struct DotForm : IntegerForm<Simd, std::int8_t> {
  using V = Simd;
  using Sums = CodeSums;
  using Weight = int8x16_t;
  using Sum = int32x4_t;
  static constexpr ActDtype kAct = ActDtype::i8;
  // Into the first lane, which the product of all is taken with.
  static int8x8_t broadcast(const std::int8_t* x) {
    return vreinterpret_s8_u8(V::four(reinterpret_cast<const std::byte*>(x)));
  }
  static Sum madd(Weight w, int8x8_t x, Sum sum) { return vdotq_lane_s32(sum, w, x, 0); }
};

template <class V>
using I8Int4 = ByteInt4<DotForm<V, UnsignedSums<V>>>;
template <class V>
using I8Int8 = ByteInt8<DotForm<V, SignedSums<V>>>;
template <class V>
using I8E2m1 = ByteE2m1<DotForm<V, SignedSums<V>>, kDoubledE2m1, 0>;

template <class V>
using F32Int4 = ShiftedF32Int4<V>;

// Small floats of a sign, kExponent bits of exponent and the rest mantissa: exponent and mantissa go to their place in
// f32 and a product puts the larger bias right, of subnormal codes too.
template <class V, int kBits, int kExponent>
inline float32x4_t small_float(uint32x4_t lanes, int first) {
  constexpr int kBias = (1 << (kExponent - 1)) - 1;
  constexpr int kDown = 8 - kExponent;
  constexpr std::uint32_t kMagnitude = ((1U << (kBits - 1)) - 1U) << (32 - kBits - kDown);
  const uint32x4_t on_top = lanes << static_cast<std::uint32_t>(32 - kBits - first);
  const uint32x4_t bits = vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(on_top), kDown));
  const float32x4_t number = vreinterpretq_f32_u32(vandq_u32(bits, vdupq_n_u32(0x80000000U | kMagnitude)));
  return vmulq_f32(number, vreinterpretq_f32_u32(vdupq_n_u32((254U - kBias) << 23U)));
}

template <class V>
struct F32E2m1 : ScaledCode<WeightCode::e2m1, 0> {
  using Form = F32Form<V>;
  float32x4_t weight(const std::byte* at, int k, int r) const {
    return small_float<V, 4, 2>(V::load_words(at + r * kRegBytes<V>), 4 * kNibble[k]);
  }
};

template <class V>
struct F32E4m3 : ScaledCode<WeightCode::e4m3, 0> {
  using Form = F32Form<V>;
  float32x4_t weight(const std::byte* at, int k, int r) const {
    return small_float<V, 8, 4>(V::load_words(at + k / 4 * 128 + r * kRegBytes<V>), 8 * kE4m3Byte[k % 4]);
  }
};

template <class V>
struct F32F16 : DenseCode<WeightCode::f16> {
  using Form = F32Form<V>;
  float32x4_t weight(const std::byte* at, int k, int r) const {
    const uint32x4_t pairs = V::load_words(at + k / 2 * 128 + r * kRegBytes<V>);
    return vcvt_f32_f16(vreinterpret_f16_u16(k % 2 == 0 ? vmovn_u32(pairs) : vshrn_n_u32(pairs, 16)));
  }
};

}  // namespace moracle::cpu::neon
