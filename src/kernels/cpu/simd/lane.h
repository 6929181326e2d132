// What all SIMD vocabularies share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moracle::cpu {

// Four bytes from memory to all lanes. A type of its own, since copies of neighbours would be merged into one wide load
// and reach the lanes by way of two general registers.
using SimdLane [[gnu::may_alias, gnu::aligned(1)]] = std::int32_t;

// Registers of kBytes bytes with the operators of their elements.
template <class T, int kBytes>
struct VectorOf {
  using Type [[gnu::vector_size(kBytes)]] = T;
};

// What all vocabularies say alike, of registers of kBytes bytes: Reg of f32, Int of integers, as intrinsics take them.
// V: the vocabulary itself, which has the rest.
template <class V, int kBytes, class Integer>
struct Lanes {
  using Reg = typename VectorOf<float, kBytes>::Type;
  using Int = typename VectorOf<Integer, kBytes>::Type;
  using Ints = typename VectorOf<std::int32_t, kBytes>::Type;
  using Words = typename VectorOf<std::uint32_t, kBytes>::Type;
  using Shorts = typename VectorOf<std::int16_t, kBytes>::Type;
  using Bytes = typename VectorOf<std::uint8_t, kBytes>::Type;
  static constexpr int kLanes = kBytes / 4;
  static constexpr bool kInterleaved = false;  // few tokens meet several panels at once

  using RegAt [[gnu::vector_size(kBytes), gnu::may_alias, gnu::aligned(1)]] = float;  // in memory
  using IntAt [[gnu::vector_size(kBytes), gnu::may_alias, gnu::aligned(1)]] = Integer;

  static Reg load(const float* p) { return *reinterpret_cast<const RegAt*>(p); }
  static Int load_int(const void* p) { return *static_cast<const IntAt*>(p); }
  static Words load_words(const void* p) { return reinterpret_cast<Words>(load_int(p)); }
  static void store(float* p, Reg v) { *reinterpret_cast<RegAt*>(p) = v; }
  static void store_int(void* p, Int v) { *static_cast<IntAt*>(p) = v; }
  // The first n lanes, 0 < n <= kLanes; V has the same for fewer than all.
  static Reg load_part(const float* p, std::int64_t n) { return n == kLanes ? load(p) : V::load_some(p, n); }
  static void store_part(float* p, Reg v, std::int64_t n) { n == kLanes ? store(p, v) : V::store_some(p, v, n); }

  static Reg zero() { return Reg{}; }
  static Reg add(Reg a, Reg b) { return a + b; }
  static Reg sub(Reg a, Reg b) { return a - b; }
  static Reg mul(Reg a, Reg b) { return a * b; }
  static Reg div(Reg a, Reg b) { return a / b; }
  static Reg number(Int a) { return __builtin_convertvector(reinterpret_cast<Ints>(a), Reg); }
  // 2^n of an integral n within [-126, 127]: the exponent field itself.
  static Reg power_of_two(Reg n) {
    return reinterpret_cast<Reg>((reinterpret_cast<Words>(__builtin_convertvector(n, Ints)) + 127U) << 23U);
  }
  static Reg load_u8(const std::byte* p) { return number(V::bytes(p)); }
  static Reg load_e8m0(const std::byte* p) {  // code 0 is 2^-127, a subnormal: half of the smallest exponent's pattern
    const Words bits = reinterpret_cast<Words>(V::bytes(p)) << 23U;
    const Words least = Words{} + 0x00400000U;
    return reinterpret_cast<Reg>(bits > least ? bits : least);
  }

  static Int no_int() { return Int{}; }
  static Int broadcast_lane(const void* x) { return V::lanes(*static_cast<const SimdLane*>(x)); }
  static Int add(Int a, Int b) {
    return reinterpret_cast<Int>(reinterpret_cast<Words>(a) + reinterpret_cast<Words>(b));
  }
  static Int sub(Int a, Int b) {
    return reinterpret_cast<Int>(reinterpret_cast<Words>(a) - reinterpret_cast<Words>(b));
  }
  static Int mul(Int a, Int b) {
    return reinterpret_cast<Int>(reinterpret_cast<Words>(a) * reinterpret_cast<Words>(b));
  }
  static Int times_256(Int a) { return reinterpret_cast<Int>(reinterpret_cast<Words>(a) << 8U); }

 private:
  Lanes() = default;  // a vocabulary derives from this, of itself
  friend V;
};

}  // namespace moracle::cpu
