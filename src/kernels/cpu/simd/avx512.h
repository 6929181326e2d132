// The SIMD vocabulary on 16 lanes. Everything is a member of a template on the target, so that no function of one
// target's instructions can be linked into another's code.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/simd/lane.h"

namespace moracle::cpu {

template <class Tag>
struct Avx512 {
  using Reg = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kRegs = 2;
  static constexpr int kRegisters = 32;
  static constexpr int kChains = 2;
  static constexpr int kTileTokens = 6;
  static constexpr int kGemmRows = 4;          // of f32 products
  static constexpr int kGemmVectors = 4;       // 4 rows x 4 vectors = 16 accumulators
  static constexpr bool kInterleaved = false;  // few tokens meet several panels at once
  // Instructions, since GCC 12 takes a function of nothing but __builtin_prefetch for one without effect and drops its
  // calls.
  static void prefetch_l1(const std::byte* line) { __asm__ volatile("prefetcht0 %0" : : "m"(*line)); }
  static void prefetch_l2(const std::byte* line) { __asm__ volatile("prefetcht1 %0" : : "m"(*line)); }
  static void prefetch_store(const float* line) { __asm__ volatile("prefetchw %0" : : "m"(*line)); }
  static Reg zero() { return _mm512_setzero_ps(); }
  static Reg set1(float v) { return _mm512_set1_ps(v); }
  static Reg load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Reg v) { _mm512_storeu_ps(p, v); }
  static Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
  static Reg sub(Reg a, Reg b) { return _mm512_sub_ps(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm512_mul_ps(a, b); }
  static Reg div(Reg a, Reg b) { return _mm512_div_ps(a, b); }
  static Reg min(Reg a, Reg b) { return _mm512_min_ps(a, b); }
  static Reg max(Reg a, Reg b) { return _mm512_max_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  static Reg add_product(Reg a, Reg b, Reg c) { return fma(a, b, c); }
  static Reg fma_of_memory(Reg a, Reg b, const Reg& c) { return fma(a, b, c); }
  static Reg round(Reg a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // 2^n of an integral n within [-126, 127]: the exponent field itself.
  static Reg power_of_two(Reg n) {
    const __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23));
  }
  static Reg load_f16(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Reg load_bf16(const std::byte* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  static Reg load_u8(const std::byte* p) { return number(bytes(p)); }
  static Reg load_i8(const std::byte* p) {
    return number(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static __m512i bytes(const std::byte* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  // The byte's exponent and mantissa at the place of f32's, 120 added to the exponent. Subnormal codes come out as
  // 2^-7 (1 + m / 8) then and are to be 2^-6 m / 8. (One multiply by 2^120 would do, but its operand is subnormal for
  // these, which costs a CPU of Intel's more than a hundred cycles.)
  static Reg e4m3_of(__m512i codes) {
    const __m512i magnitude = _mm512_and_si512(codes, _mm512_set1_epi32(0x7F));
    const __m512 value =
        _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(magnitude, 20), _mm512_set1_epi32(120 << 23)));
    const __mmask16 subnormal = _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(8));
    const __m512 whole = _mm512_mask_fmsub_ps(value, subnormal, _mm512_set1_ps(2.0F), _mm512_set1_ps(0x1p-6F));
    const __m512i sign = _mm512_slli_epi32(_mm512_and_si512(codes, _mm512_set1_epi32(0x80)), 24);
    return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(whole), sign));
  }
  // Whether none of so many e4m3 codes is zero or subnormal.
  template <std::int64_t Bytes>
  static bool all_normal_e4m3(const std::byte* at) {
    const __m512i exponent = _mm512_set1_epi8(0x78);
    __mmask64 normal = ~__mmask64{0};
#pragma GCC unroll 4
    for (std::int64_t i = 0; i < Bytes; i += 64) {
      normal = _mm512_mask_test_epi8_mask(normal, _mm512_loadu_si512(at + i), exponent);
    }
    return normal == ~__mmask64{0};
  }
  // By way of f16, where subnormal codes are subnormal numbers, which this conversion takes at full speed.
  static Reg load_e4m3(const std::byte* p) {
    const __m256i codes = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m256i bits = _mm256_and_si256(_mm256_slli_epi16(codes, 7), _mm256_set1_epi16(static_cast<short>(0xBF80)));
    return _mm512_mul_ps(_mm512_cvtph_ps(bits), _mm512_set1_ps(256.0F));
  }
  static Reg load_e8m0(const std::byte* p) {  // code 0 is 2^-127, a subnormal: half of the smallest exponent's pattern
    return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_slli_epi32(bytes(p), 23), _mm512_set1_epi32(0x00400000)));
  }

  using Int = __m512i;
  static Int no_int() { return _mm512_setzero_si512(); }
  static Int load_int(const void* p) { return _mm512_loadu_si512(p); }
  static void store_int(void* p, Int v) { _mm512_storeu_si512(p, v); }
  static Int lanes(std::int32_t v) { return _mm512_set1_epi32(v); }
  static Int broadcast_lane(const void* x) { return lanes(*static_cast<const SimdLane*>(x)); }
  static Int add(Int a, Int b) { return _mm512_add_epi32(a, b); }
  static Int sub(Int a, Int b) { return _mm512_sub_epi32(a, b); }
  static Int mul(Int a, Int b) { return _mm512_mullo_epi32(a, b); }
  static Reg number(Int a) { return _mm512_cvtepi32_ps(a); }

  // The first n lanes, 0 < n <= kLanes.
  static __mmask16 mask(std::int64_t n) { return static_cast<__mmask16>((1U << n) - 1U); }
  static Reg load_part(const float* p, std::int64_t n) {
    return n == kLanes ? load(p) : _mm512_maskz_loadu_ps(mask(n), p);
  }
  static void store_part(float* p, Reg v, std::int64_t n) {
    if (n == kLanes) {
      store(p, v);
    } else {
      _mm512_mask_storeu_ps(p, mask(n), v);
    }
  }
  static float sum(Reg a) { return _mm512_reduce_add_ps(a); }
  static float largest(Reg a) { return _mm512_reduce_max_ps(a); }

 private:
  Avx512() = default;  // a target's tag derives from this, of itself
  friend Tag;
};

}  // namespace moracle::cpu
