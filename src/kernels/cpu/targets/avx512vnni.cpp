// AVX-512 VNNI: integer activations.
//
// Compiled on x86_64 with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mavx512vnni
#include "kernels/cpu/gemm/gemm-inl.h"
#include "kernels/cpu/ops/activation_kernels.h"
#include "kernels/cpu/simd/avx512.h"
#include "kernels/cpu/targets/targets.h"
#include "kernels/cpu/weights/codes_vnni-inl.h"

namespace moracle::cpu {
namespace {

using namespace avx512;

struct V : Avx512<V> {};

constexpr ActivationMask kBytes = ActivationMask::fast | ActivationMask::int8;
// Fewer tokens are split int16: a step of nibbles is decoded by half as many operations as to words.
constexpr std::uint16_t kWordsFrom = 4;

// None decodes once for many tokens: decoding to bytes costs less than to store and load them.
constexpr GemmKernel kGemm[] = {
    gemm_row<I8Int4<V>, kBytes>(1),
    gemm_row<I8Int8<V>, kBytes>(1),
    gemm_row<I8E2m1<V>, ActivationMask::fast>(1),
    gemm_row<Split<I8Int4<V>>, ActivationMask::exact>(1),
    gemm_row<I16Int4<V>, ActivationMask::exact>(kWordsFrom),
    gemm_row<Split<I8Int8<V>>, ActivationMask::exact>(1),
    gemm_row<I16Int8<V>, ActivationMask::exact>(kWordsFrom),
    gemm_row<Split<I8E2m1<V>>, ActivationMask::exact>(1),
    gemm_row<I16E2m1<V>, ActivationMask::exact>(kWordsFrom),
};

}  // namespace

template <>
const Target& target_named<"avx512vnni">() {
  static constinit const Target kTarget{"avx512vnni", kGemm, &kAvx512Activations, avx512_vector_ops};
  return kTarget;
}

}  // namespace moracle::cpu
