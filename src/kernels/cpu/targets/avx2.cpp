// AVX2: integers where 16-bit activations are quantized here or 8-bit ones published, else f32.
//
// Compiled on x86_64 with -mavx2 -mfma -mf16c
#include "kernels/cpu/simd/avx2.h"
#include "kernels/cpu/gemm/blocked-inl.h"
#include "kernels/cpu/gemm/gemm-inl.h"
#include "kernels/cpu/ops/activation_kernels.h"
#include "kernels/cpu/targets/targets.h"
#include "kernels/cpu/weights/codes_avx2_f32-inl.h"
#include "kernels/cpu/weights/codes_avx2_int-inl.h"

namespace moracle::cpu {
namespace {

using namespace avx2;

struct V : Avx2<V> {};

constexpr std::uint16_t kDecodedFrom = 10;  // two tiles that decode for themselves are as fast
// As fast as tiles that decode so little.
constexpr std::uint16_t kBf16x12DecodedFrom = 32;

// int4, int8 and bytes are decoded again as fast as they are stored and loaded.
constexpr GemmKernel kGemm[] = {
    gemm_row<I16Int4<V>, ActivationMask::exact>(1),
    gemm_row<I8Int4<V>, ActivationMask::fast | ActivationMask::int8>(1),
    gemm_row<F32Int4<V>, ActivationMask::floats>(1),
    decoded_row<F32Int4<V>, ActivationMask::floats>(kDecodedFrom),
    // Products of bytes by bytes fill 16 bits, so that VPMADDUBSW would gain nothing.
    gemm_row<I16Int8<V>, ActivationMask::exact | ActivationMask::fast | ActivationMask::int8>(1),
    gemm_row<F32Int8<V>, ActivationMask::floats>(1),
    decoded_row<F32Int8<V>, ActivationMask::floats>(kDecodedFrom),
    gemm_row<I16E2m1<V>, ActivationMask::exact>(1),
    decoded_row<I16E2m1<V>, ActivationMask::exact>(kDecodedFrom),
    decoded_row<I16ShortE2m1<V>, ActivationMask::exact>(kDecodedFrom, Groups::up_to_16),
    gemm_row<I8E2m1<V>, ActivationMask::fast>(1),
    decoded_row<I8E2m1<V>, ActivationMask::fast>(kDecodedFrom, Groups::up_to_16),
    gemm_row<F32E2m1<V>, ActivationMask::floats | ActivationMask::int8>(1),
    decoded_row<F32E2m1<V>, ActivationMask::floats | ActivationMask::int8>(kDecodedFrom),
    gemm_row<F32E4m3<V>>(1),
    decoded_row<F32E4m3<V>>(kDecodedFrom),
    gemm_row<F32Bf16<V>>(1),
    gemm_row<F32Bf16x12<V>>(1),
    decoded_row<F32Bf16x12<V>>(kBf16x12DecodedFrom),
    gemm_row<F32F16<V>>(1),
    gemm_row<F32F32<V>>(1),
};

}  // namespace

template <>
const Target& target_named<"avx2">() {
  static constinit const Target kTarget{"avx2", kGemm, &kAvx2Activations, avx2_vector_ops};
  return kTarget;
}

}  // namespace moracle::cpu
