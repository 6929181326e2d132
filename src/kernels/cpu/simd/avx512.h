// The SIMD vocabulary on 16 lanes. Everything is a member of a template on the target, so that no function of one
// target's instructions can be linked into another's code.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/simd/lane.h"

namespace moracle::cpu {

template <class Tag>
struct Avx512 : Lanes<Avx512<Tag>, 64, long long> {
  using typename Lanes<Avx512<Tag>, 64, long long>::Reg;
  using typename Lanes<Avx512<Tag>, 64, long long>::Int;
  static constexpr int kRegs = 2;
  static constexpr int kRegisters = 32;
  static constexpr int kChains = 2;
  static constexpr int kTileTokens = 6;
  static constexpr int kGemmRows = 4;     // of f32 products
  static constexpr int kGemmVectors = 4;  // 4 rows x 4 vectors = 16 accumulators
  // Instructions, since GCC 12 takes a function of nothing but __builtin_prefetch for one without effect and drops its
  // calls.
  static void prefetch_l1(const std::byte* line) { __asm__ volatile("prefetcht0 %0" : : "m"(*line)); }
  static void prefetch_l2(const std::byte* line) { __asm__ volatile("prefetcht1 %0" : : "m"(*line)); }
  static void prefetch_store(const float* line) { __asm__ volatile("prefetchw %0" : : "m"(*line)); }
  static Reg set1(float v) { return _mm512_set1_ps(v); }
  static Reg min(Reg a, Reg b) { return _mm512_min_ps(a, b); }
  static Reg max(Reg a, Reg b) { return _mm512_max_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  static Reg add_product(Reg a, Reg b, Reg c) { return fma(a, b, c); }
  static Reg fma_of_memory(Reg a, Reg b, const Reg& c) { return fma(a, b, c); }
  static Reg round(Reg a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static Reg load_f16(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Reg load_bf16(const std::byte* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  static Reg load_i8(const std::byte* p) {
    return Tag::number(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static __m512i bytes(const std::byte* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
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

  static Int lanes(std::int32_t v) { return _mm512_set1_epi32(v); }
  // A table of 16 bytes, and what its bytes are at the low four bits of others.
  static Int table(const void* from) {
    return _mm512_broadcast_i32x4(_mm_load_si128(static_cast<const __m128i*>(from)));
  }
  static Int lookup(Int table, Int at) { return _mm512_shuffle_epi8(table, at); }
  // Bytes of both in turn, of every 16 the first ones or the last.
  static Int zip(Int a, Int b, bool last) { return last ? _mm512_unpackhi_epi8(a, b) : _mm512_unpacklo_epi8(a, b); }

  static __mmask16 mask(std::int64_t n) { return static_cast<__mmask16>((1U << n) - 1U); }
  static Reg load_some(const float* p, std::int64_t n) { return _mm512_maskz_loadu_ps(mask(n), p); }
  static void store_some(float* p, Reg v, std::int64_t n) { _mm512_mask_storeu_ps(p, mask(n), v); }
  static float sum(Reg a) { return _mm512_reduce_add_ps(a); }
  static float largest(Reg a) { return _mm512_reduce_max_ps(a); }

 private:
  Avx512() = default;  // a target's tag derives from this, of itself
  friend Tag;
};

}  // namespace moracle::cpu
