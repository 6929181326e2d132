// NEON with dot product: integers where 16-bit activations are quantized here or 8-bit ones published, else f32.
//
// Compiled on aarch64 with -march=armv8.2-a+dotprod -fno-schedule-insns
#include "kernels/cpu/simd/neon.h"
#include "kernels/cpu/gemm/gemm-inl.h"
#include "kernels/cpu/ops/activation_kernels.h"
#include "kernels/cpu/targets/targets.h"
#include "kernels/cpu/weights/codes_neon-inl.h"

namespace moracle::cpu {
namespace {

using namespace neon;

struct V : Neon<V> {};

constexpr std::uint16_t kDecodedFrom = 12;  // two tiles of six decode once; three tiles of fewer would spend as much

constexpr GemmKernel kGemm[] = {
    gemm_row<Split<I8Int4<V>>, ActivationMask::exact>(1),
    gemm_row<I8Int4<V>, ActivationMask::fast | ActivationMask::int8>(1),
    gemm_row<F32Int4<V>, ActivationMask::floats>(1),
    decoded_row<F32Int4<V>, ActivationMask::floats>(kDecodedFrom),
    gemm_row<Split<I8Int8<V>>, ActivationMask::exact>(1),
    gemm_row<I8Int8<V>, ActivationMask::fast | ActivationMask::int8>(1),
    gemm_row<F32Int8<V>, ActivationMask::floats>(1),
    decoded_row<F32Int8<V>, ActivationMask::floats>(kDecodedFrom),
    gemm_row<Split<I8E2m1<V>>, ActivationMask::exact>(1),
    gemm_row<I8E2m1<V>, ActivationMask::fast>(1),
    gemm_row<F32E2m1<V>, ActivationMask::floats | ActivationMask::int8>(1),
    decoded_row<F32E2m1<V>, ActivationMask::floats | ActivationMask::int8>(kDecodedFrom),
    gemm_row<F32E4m3<V>>(1),
    decoded_row<F32E4m3<V>>(kDecodedFrom),
    gemm_row<F32Bf16<V>>(1),
    gemm_row<F32Bf16x12<V>>(1),
    decoded_row<F32Bf16x12<V>>(kDecodedFrom),
    gemm_row<F32F16<V>>(1),
    gemm_row<F32F32<V>>(1),
};

}  // namespace

template <>
const Target& target_named<"neon">() {
  static constinit const Target kTarget{"neon", kGemm, &kNeonActivations, neon_vector_ops};
  return kTarget;
}

}  // namespace moracle::cpu
