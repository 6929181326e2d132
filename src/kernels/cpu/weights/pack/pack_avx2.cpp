// Packing of panels for all targets of x86, which need AVX2 at least.
//
// Compiled on x86_64 with -mavx2 -mfma -mf16c
#include <immintrin.h>

#include "kernels/cpu/weights/pack/bf16x12-inl.h"

namespace moracle::cpu {
namespace {

struct V {
  static constexpr int kBytes = 32;
  static bool any(Words<V> words) {
    const auto bits = reinterpret_cast<__m256i>(words);
    return _mm256_testz_si256(bits, bits) == 0;
  }
  static Words<V> halves(const std::byte* at) {
    const auto half = [](const std::byte* from) {
      return _mm256_cvtps_ph(_mm256_loadu_ps(reinterpret_cast<const float*>(from)), _MM_FROUND_TO_NEAREST_INT);
    };
    return reinterpret_cast<Words<V>>(_mm256_set_m128i(half(at + kBytes), half(at)));
  }
};

}  // namespace

constinit const Packing kPacking = packing_on<V>();

}  // namespace moracle::cpu
