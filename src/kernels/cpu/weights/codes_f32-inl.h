// Codes widened to f32, one column a register, by the same operations on every vocabulary.
#pragma once

#include "kernels/cpu/gemm/tile-inl.h"
#include "kernels/cpu/simd/lane.h"

namespace moracle::cpu {

template <class V>
using WordLanes = typename VectorOf<std::uint32_t, static_cast<int>(sizeof(typename V::Reg))>::Type;
template <class V>
using IntLanes = typename VectorOf<std::int32_t, static_cast<int>(sizeof(typename V::Reg))>::Type;

template <class V>
inline constexpr int kRegBytes = static_cast<int>(sizeof(typename V::Reg));

template <class V>
inline WordLanes<V> load_lanes(const std::byte* at) {
  WordLanes<V> lanes;
  __builtin_memcpy(&lanes, at, sizeof lanes);
  return lanes;
}

// The number that `bits` bits of each lane, from `first` on, are as two's complement.
template <class V>
inline typename V::Reg number_of(WordLanes<V> lanes, int first, int bits) {
  const auto on_top = reinterpret_cast<IntLanes<V>>(lanes << static_cast<std::uint32_t>(32 - bits - first));
  return V::number(reinterpret_cast<typename V::Int>(on_top >> (32 - bits)));
}

inline constexpr int kNibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};  // of a lane, by column
inline constexpr int kE4m3Byte[4] = {0, 2, 1, 3};            // likewise

template <class V>
struct F32Int8 : ScaledCode<WeightCode::int8, 128> {
  using Form = F32Form<V>;
  typename V::Reg weight(const std::byte* at, int k, int r) const {
    return number_of<V>(load_lanes<V>(at + k / 4 * 128 + r * kRegBytes<V>), k % 4 * 8, 8);
  }
};

// Of pairs of bf16, the even or the odd column.
template <class V>
inline typename V::Reg column_of(WordLanes<V> pairs, int k) {
  return reinterpret_cast<typename V::Reg>(k % 2 == 0 ? pairs << 16U : pairs & 0xFFFF0000U);
}

template <class V>
struct F32Bf16 : DenseCode<WeightCode::bf16> {
  using Form = F32Form<V>;
  static typename V::Reg weight(const std::byte* at, int k, int r) {
    return column_of<V>(load_lanes<V>(at + k / 2 * 128 + r * kRegBytes<V>), k);
  }
};

template <class V>
struct F32F32 : DenseCode<WeightCode::f32> {
  using Form = F32Form<V>;
  typename V::Reg weight(const std::byte* at, int k, int r) const {
    return Form::load(at + k * 128 + r * kRegBytes<V>);
  }
};

// e4m3, any code.
template <class V>
struct F32AnyE4m3 {
  typename V::Reg weight(const std::byte* at, int k, int r) const {
    const auto lanes = load_lanes<V>(at + k / 4 * 128 + r * kRegBytes<V>);
    return V::e4m3_of(reinterpret_cast<typename V::Int>(lanes >> static_cast<std::uint32_t>(8 * kE4m3Byte[k % 4])));
  }
};

inline constexpr Bf16x12HighBytes kBf16x12High = bf16x12_high_bytes();

}  // namespace moracle::cpu
