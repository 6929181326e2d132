#include <immintrin.h>

#include <cstdint>

namespace moracle {
namespace {

struct Lanes {
  using V = __m512;
  static constexpr std::int64_t kWidth = 16;
  static constexpr int kGemmVectors = 4;  // 4 rows x 4 vectors = 16 accumulators of 32 registers
  static constexpr const char* kName = "avx512";

  static __mmask16 mask(std::int64_t n) { return static_cast<__mmask16>((1U << n) - 1U); }
  static V zero() { return _mm512_setzero_ps(); }
  static V set1(float x) { return _mm512_set1_ps(x); }
  static V load(const float* p) { return _mm512_loadu_ps(p); }
  static V load_part(const float* p, std::int64_t n) {
    return n == kWidth ? load(p) : _mm512_maskz_loadu_ps(mask(n), p);
  }
  static void store(float* p, V v) { _mm512_storeu_ps(p, v); }
  static void store_part(float* p, V v, std::int64_t n) {
    if (n == kWidth) {
      store(p, v);
    } else {
      _mm512_mask_storeu_ps(p, mask(n), v);
    }
  }
  static V add(V a, V b) { return _mm512_add_ps(a, b); }
  static V sub(V a, V b) { return _mm512_sub_ps(a, b); }
  static V mul(V a, V b) { return _mm512_mul_ps(a, b); }
  static V div(V a, V b) { return _mm512_div_ps(a, b); }
  static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  static V max(V a, V b) { return _mm512_max_ps(a, b); }
  static V min(V a, V b) { return _mm512_min_ps(a, b); }
  static V round(V a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static V power_of_two(V n) {
    const __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23));
  }
  static float sum(V a) { return _mm512_reduce_add_ps(a); }
  static float largest(V a) { return _mm512_reduce_max_ps(a); }
};

}  // namespace
}  // namespace moracle

#include "kernels/vector/vector_ops_body.inc"

namespace moracle {

const VectorOps& avx512_vector_ops() {
  return kOps;
}

}  // namespace moracle
