// Decoders that are the same operations on every vocabulary.
#pragma once

#include "kernels/cpu/gemm/tile-inl.h"
#include "kernels/cpu/simd/lane.h"

namespace moracle::cpu {

// The number that `bits` bits of each lane, from `first` on, are as two's complement.
template <class V>
inline typename V::Reg number_of(typename V::Words lanes, int first, int bits) {
  const auto on_top = reinterpret_cast<typename V::Ints>(lanes << static_cast<std::uint32_t>(32 - bits - first));
  return V::number(reinterpret_cast<typename V::Int>(on_top >> (32 - bits)));
}

// Nibbles of lanes as bytes: columns 0, 4, 1, 5, or 2, 6, 3, 7.
template <class V>
inline typename V::Int nibble_bytes(const std::byte* at, bool second, int r) {
  const auto bytes = reinterpret_cast<typename V::Bytes>(V::load_words(at + r * kRegBytes<V>));
  return reinterpret_cast<typename V::Int>(second ? bytes >> 4 : bytes & 0x0F);
}

inline constexpr int kNibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};  // of a lane, by column
inline constexpr int kE4m3Byte[4] = {0, 2, 1, 3};            // likewise

// The words of 16 codes, twice: a permute of 32 reads five bits, of which the fifth is a neighbour's.
struct WordTable {
  alignas(64) std::uint16_t of[32] = {};
  consteval explicit WordTable(const int (&words)[16]) {
    for (int i = 0; i < 32; ++i) of[i] = static_cast<std::uint16_t>(words[i % 16]);
  }
};

// int4 as bytes 0 .. 15.
template <class ByteForm>
struct ByteInt4 : ScaledCode<WeightCode::int4, 8> {
  using Form = ByteForm;
  typename Form::Weight weight(const std::byte* at, int k, int r) const {
    return reinterpret_cast<typename Form::Weight>(nibble_bytes<typename Form::V>(at, k == 1, r));
  }
};

// int8 as bytes: as stored, or 0 .. 255 for sums of unsigned codes.
template <class ByteForm>
struct ByteInt8 : ScaledCode<WeightCode::int8, 128> {
  using Form = ByteForm;
  using V = typename Form::V;
  typename Form::Weight weight(const std::byte* at, int k, int r) const {
    const typename V::Words bytes = V::load_words(at + k * 128 + r * kRegBytes<V>);
    return reinterpret_cast<typename Form::Weight>(Form::Sums::kUnsigned ? bytes ^ 0x80808080U : bytes);
  }
};

// e2m1 as bytes: twice the number, or that plus 12, 0 .. 24.
inline constexpr ByteTable kDoubledE2m1 = {
    {0, 1, 2, 3, 4, 6, 8, 12, 0, 0x100 - 1, 0x100 - 2, 0x100 - 3, 0x100 - 4, 0x100 - 6, 0x100 - 8, 0x100 - 12}};
inline constexpr ByteTable kDoubledE2m1Plus12 = {{12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0}};
template <class ByteForm, const ByteTable& kTable, int kPlus>
struct ByteE2m1 : ScaledCode<WeightCode::e2m1, kPlus, 2> {
  using Form = ByteForm;
  using V = typename Form::V;
  typename V::Int table = V::table(kTable.of);
  typename Form::Weight weight(const std::byte* at, int k, int r) const {
    return reinterpret_cast<typename Form::Weight>(V::lookup(table, nibble_bytes<V>(at, k == 1, r)));
  }
};

// For vocabularies without a table of 16 f32. A code with its high bit turned is two's complement.
template <class V>
struct ShiftedF32Int4 : ScaledCode<WeightCode::int4, 8> {
  using Form = F32Form<V>;
  typename V::Reg weight(const std::byte* at, int k, int r) const {
    return number_of<V>(V::load_words(at + r * kRegBytes<V>) ^ 0x88888888U, 4 * kNibble[k], 4);
  }
};

template <class V>
struct F32Int8 : ScaledCode<WeightCode::int8, 128> {
  using Form = F32Form<V>;
  typename V::Reg weight(const std::byte* at, int k, int r) const {
    return number_of<V>(V::load_words(at + k / 4 * 128 + r * kRegBytes<V>), k % 4 * 8, 8);
  }
};

// Of pairs of bf16, the even or the odd column.
template <class V>
inline typename V::Reg column_of(typename V::Words pairs, int k) {
  return reinterpret_cast<typename V::Reg>(k % 2 == 0 ? pairs << 16U : pairs & 0xFFFF0000U);
}

template <class V>
struct F32Bf16 : DenseCode<WeightCode::bf16> {
  using Form = F32Form<V>;
  static typename V::Reg weight(const std::byte* at, int k, int r) {
    return column_of<V>(V::load_words(at + k / 2 * 128 + r * kRegBytes<V>), k);
  }
};

// A step of a register's rows: a shift, 2 masks and 2 lookups make the high bytes, and 4 zips put low ones beside them.
inline constexpr ByteTable kBf16x12High = bf16x12_high_bytes();
template <class V>
struct Bf16x12Pairs : DenseCode<WeightCode::bf16x12> {
  static constexpr bool kExceptions = true;
  typename V::Int table = V::table(kBf16x12High.of);
  // Columns 2k and 2k + 1 as bf16.
  typename V::Words pairs(const std::byte* at, int k, int r) const {
    const auto low = reinterpret_cast<typename V::Int>(V::load_words(at + k / 2 * 128 + r * kRegBytes<V>));
    const typename V::Int high = V::lookup(table, nibble_bytes<V>(at + 256, k / 2 == 1, r));
    return reinterpret_cast<typename V::Words>(V::zip(low, high, k % 2 == 1));
  }
};
template <class V>
struct F32Bf16x12 : Bf16x12Pairs<V> {
  using Form = F32Form<V>;
  typename V::Reg weight(const std::byte* at, int k, int r) const { return column_of<V>(this->pairs(at, k / 2, r), k); }
};

template <class V>
struct F32F32 : DenseCode<WeightCode::f32> {
  using Form = F32Form<V>;
  typename V::Reg weight(const std::byte* at, int k, int r) const {
    return Form::load(at + k * 128 + r * kRegBytes<V>);
  }
};

// e4m3, any code. Exponent and mantissa go to the place of f32's, 120 added to the exponent; subnormal codes come out
// as 2^-7 (1 + m / 8) then and are to be 2^-6 m / 8. (A multiply by 2^120 stalls on its subnormal operands.)
template <class V>
struct F32AnyE4m3 {
  typename V::Reg weight(const std::byte* at, int k, int r) const {
    using Words = typename V::Words;
    using Reg = typename V::Reg;
    const Words codes =
        V::load_words(at + k / 4 * 128 + r * kRegBytes<V>) >> static_cast<std::uint32_t>(8 * kE4m3Byte[k % 4]);
    const Words magnitude = codes & 0x7FU;
    const auto value = reinterpret_cast<Reg>((magnitude << 20U) + (120U << 23U));
    const Reg small = V::fma(value, V::set1(2.0F), V::set1(-0x1p-6F));
    const Reg whole = reinterpret_cast<typename V::Ints>(magnitude) < 8 ? small : value;
    return reinterpret_cast<Reg>(reinterpret_cast<Words>(whole) | (codes & 0x80U) << 24U);
  }
};

// e4m3 without zeros and subnormal numbers: exponent and mantissa go to their place, and the exponent gets the larger
// bias. About one weight in ten thousand is subnormal under the scales that publishers choose.
template <class V>
struct NormalE4m3 : ScaledCode<WeightCode::e4m3, 0> {
  bool plain(const std::byte* at) const { return V::template all_normal_e4m3<kBytes>(at); }
  // Columns 2k and 2k + 1 as bf16.
  static typename V::Words pairs(const std::byte* at, int k, int r) {
    const auto codes = reinterpret_cast<typename V::Shorts>(V::load_words(at + k / 2 * 128 + r * kRegBytes<V>));
    const typename V::Shorts bits = (k % 2 == 0 ? codes << 8 : codes) >> 4 & static_cast<std::int16_t>(0x87F0);
    return reinterpret_cast<typename V::Words>(bits + std::int16_t{120 << 7});
  }
};
template <class V>
struct NormalF32E4m3 : NormalE4m3<V> {
  using Form = F32Form<V>;
  using Careful = F32AnyE4m3<V>;
  typename V::Reg weight(const std::byte* at, int k, int r) const { return column_of<V>(this->pairs(at, k / 2, r), k); }
};

}  // namespace moracle::cpu
