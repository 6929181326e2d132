// AVX-512 without BF16 and VNNI: f32 activations, f32 multiply-add.
//
// Compiled on x86_64 with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
#include "kernels/cpu/simd/avx512.h"
#include "kernels/cpu/gemm/gemm-inl.h"
#include "kernels/cpu/ops/activation_kernels.h"
#include "kernels/cpu/targets/targets.h"
#include "kernels/cpu/weights/codes_avx512_f32-inl.h"

namespace moracle::cpu {
namespace {

using namespace avx512;

struct V : Avx512<V> {};

constexpr std::uint16_t kDecodedFrom = 24;  // tokens; fewer are served as fast by tiles that decode for themselves

constexpr KernelKey key(WeightCode code) {
  return {code, ActDtype::f32, kAnyActivations};
}

constexpr GemmKernel kGemm[] = {
    number_row<F32Int4<V>, true>(key(WeightCode::int4), 1),
    decoded_row<F32Int4<V>>(key(WeightCode::int4), kDecodedFrom),
    number_row<F32Int8<V>, true>(key(WeightCode::int8), 1),
    decoded_row<F32Int8<V>>(key(WeightCode::int8), kDecodedFrom),
    number_row<F32E2m1<V>, false>(key(WeightCode::e2m1), 1),
    decoded_row<F32E2m1<V>>(key(WeightCode::e2m1), kDecodedFrom),
    number_row<F32E4m3<V>, false>(key(WeightCode::e4m3), 1),
    decoded_row<F32E4m3<V>>(key(WeightCode::e4m3), kDecodedFrom),
    dense_row<F32Bf16<V>>(WeightCode::bf16, ActDtype::f32),
    dense_row<F32F16<V>>(WeightCode::f16, ActDtype::f32),
    dense_row<F32F32<V>>(WeightCode::f32, ActDtype::f32),
};

}  // namespace

template <>
const Target& target_named<"avx512">() {
  static constinit const Target kTarget{.name = "avx512",
                                        .gemm = kGemm,
                                        .activations = &kAvx512Activations,
                                        .vector_ops = avx512_vector_ops,
                                        .head = {},
                                        .interleaved = false};
  return kTarget;
}

}  // namespace moracle::cpu
