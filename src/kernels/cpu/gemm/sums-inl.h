// Sums of code * x, and how zero points and unsigned codes enter them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moracle::cpu {

// In f32: sum of (code - offset) * x, to which (offset - zero) * sum(x) is added where there are zero points.
template <class V>
struct FloatSums {
  using Sum = typename V::Reg;
  static constexpr bool kIntegers = false;
  static constexpr bool kUnsigned = false;  // codes carry their offset into the sums
  static Sum zero() { return V::zero(); }
  static Sum joined(Sum a, Sum b) { return V::add(a, b); }
  static Sum start(const void* const*, std::int64_t, std::int64_t) { return V::zero(); }
  static typename V::Reg shift(const std::byte* zeros, float offset) {
    return V::sub(V::set1(offset), V::load_u8(zeros));
  }
  static Sum shifted(Sum value, typename V::Reg shift, const void* const* sums, std::int64_t t, std::int64_t g) {
    return V::fma(shift, V::set1(static_cast<const float*>(sums[t])[g]), value);
  }
  static typename V::Reg number(Sum sum) { return sum; }
  static Sum load_sum(const float* p) { return V::load(p); }
  static void store_sum(float* p, Sum sum) { V::store(p, sum); }
};

template <class V>
struct IntegerSums {
  using Sum = typename V::Int;
  static constexpr bool kIntegers = true;
  static Sum zero() { return V::no_int(); }
  static Sum add(Sum a, Sum b) { return V::add(a, b); }
  static Sum joined(Sum a, Sum b) { return V::add(a, b); }
  static Sum of_inputs(const void* const* sums, std::int64_t t, std::int64_t g) {
    return V::broadcast_lane(static_cast<const std::int32_t*>(sums[t]) + g);
  }
  static typename V::Reg number(Sum sum) { return V::number(sum); }
  static Sum load_sum(const float* p) { return V::load_int(p); }
  static void store_sum(float* p, Sum sum) { V::store_int(p, sum); }
};

// Of split int16 activations: sums of the high bytes, and of the low ones.
template <class V, class CodeSums>
struct SplitSums : CodeSums {
  using Sum = typename V::Int;
  static Sum joined(Sum high, Sum low) { return V::add(V::times_256(high), low); }
};

// Unsigned codes: their offset is taken back at the start, or the zero point at the end.
template <class V>
struct UnsignedSums : IntegerSums<V> {
  using Sum = typename V::Int;
  static constexpr bool kUnsigned = true;
  static Sum start(const void* const* sums, std::int64_t t, std::int64_t g) {
    return IntegerSums<V>::of_inputs(sums, t, g);
  }
  static Sum shift(const std::byte* zeros, float) { return V::bytes(zeros); }
  static Sum shifted(Sum value, Sum zeros, const void* const* sums, std::int64_t t, std::int64_t g) {
    return V::sub(value, V::mul(zeros, IntegerSums<V>::of_inputs(sums, t, g)));
  }
};

// Signed codes, and blocks that have taken the offset back: (offset - zero) * sum(x) is added where there are zero
// points.
template <class V>
struct SignedSums : IntegerSums<V> {
  using Sum = typename V::Int;
  static constexpr bool kUnsigned = false;
  static Sum start(const void* const*, std::int64_t, std::int64_t) { return V::no_int(); }
  static Sum shift(const std::byte* zeros, float offset) {
    return V::sub(V::lanes(static_cast<std::int32_t>(offset)), V::bytes(zeros));
  }
  static Sum shifted(Sum value, Sum shift, const void* const* sums, std::int64_t t, std::int64_t g) {
    return V::add(value, V::mul(shift, IntegerSums<V>::of_inputs(sums, t, g)));
  }
};

}  // namespace moracle::cpu
