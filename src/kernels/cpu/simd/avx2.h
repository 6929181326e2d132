// The SIMD vocabulary on 8 lanes. Everything is a member of a template on the target (simd/avx512.h).
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/simd/lane.h"

namespace moracle::cpu {

template <class Tag>
struct Avx2 : Lanes<Avx2<Tag>, 32, long long> {
  using typename Lanes<Avx2<Tag>, 32, long long>::Reg;
  using typename Lanes<Avx2<Tag>, 32, long long>::Int;
  static constexpr int kRegs = 4;
  static constexpr int kRegisters = 16;
  static constexpr int kChains = 1;
  static constexpr int kTileTokens = 5;   // six leave no register to decode in
  static constexpr int kGemmRows = 6;     // of f32 products
  static constexpr int kGemmVectors = 2;  // 6 rows x 2 vectors = 12 accumulators
  // Instructions, since GCC 12 takes a function of nothing but __builtin_prefetch for one without effect and drops its
  // calls.
  static void prefetch_l1(const std::byte* line) { __asm__ volatile("prefetcht0 %0" : : "m"(*line)); }
  static void prefetch_l2(const std::byte* line) { __asm__ volatile("prefetcht1 %0" : : "m"(*line)); }
  static void prefetch_store(const float* line) { __asm__ volatile("prefetchw %0" : : "m"(*line)); }
  static Reg set1(float v) { return _mm256_set1_ps(v); }
  static Reg min(Reg a, Reg b) { return _mm256_min_ps(a, b); }
  static Reg max(Reg a, Reg b) { return _mm256_max_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
  // fma into c: as an instruction, since GCC lets sums wander from register to register, and spills what is in the
  // way.
  static Reg add_product(Reg a, Reg b, Reg c) {
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
    return c;
  }
  // fma where c lies in memory: as an instruction, since GCC loads the totals of a whole tile first and has to spill
  // other registers for them.
  static Reg fma_of_memory(Reg a, Reg b, const Reg& c) {
    __asm__("vfmadd213ps %2, %1, %0" : "+x"(a) : "x"(b), "m"(c));
    return a;
  }
  static Reg round(Reg a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static Reg load_f16(const std::byte* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Reg load_bf16(const std::byte* p) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  static Reg load_i8(const std::byte* p) {
    return Tag::number(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  static __m256i bytes(const std::byte* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  // Whether none of so many e4m3 codes is zero or subnormal.
  template <std::int64_t Bytes>
  static bool all_normal_e4m3(const std::byte* at) {
    const __m256i exponent = _mm256_set1_epi8(0x78);
    __m256i least = exponent;
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < Bytes; i += 32) {
      least = _mm256_min_epu8(least, _mm256_and_si256(Tag::load_int(at + i), exponent));
    }
    const __m256i small = _mm256_cmpeq_epi8(least, _mm256_setzero_si256());
    return _mm256_testz_si256(small, small) != 0;
  }
  // By way of f16, where subnormal codes are subnormal numbers, which this conversion takes at full speed.
  static Reg load_e4m3(const std::byte* p) {
    const __m128i codes = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    const __m128i bits = _mm_and_si128(_mm_slli_epi16(codes, 7), _mm_set1_epi16(static_cast<short>(0xBF80)));
    return _mm256_mul_ps(_mm256_cvtph_ps(bits), _mm256_set1_ps(256.0F));
  }
  static Int lanes(std::int32_t v) { return _mm256_set1_epi32(v); }
  // A table of 16 bytes, and what its bytes are at the low four bits of others.
  static Int table(const void* from) {
    return _mm256_broadcastsi128_si256(_mm_load_si128(static_cast<const __m128i*>(from)));
  }
  static Int lookup(Int table, Int at) { return _mm256_shuffle_epi8(table, at); }
  // Bytes of both in turn, of every 16 the first ones or the last.
  static Int zip(Int a, Int b, bool last) { return last ? _mm256_unpackhi_epi8(a, b) : _mm256_unpacklo_epi8(a, b); }

  static __m256i mask(std::int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Reg load_some(const float* p, std::int64_t n) { return _mm256_maskload_ps(p, mask(n)); }
  static void store_some(float* p, Reg v, std::int64_t n) { _mm256_maskstore_ps(p, mask(n), v); }
  static float sum(Reg a) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
  }
  static float largest(Reg a) {
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
  }

 private:
  Avx2() = default;  // a target's tag derives from this, of itself
  friend Tag;
};

}  // namespace moracle::cpu
