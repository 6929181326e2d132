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

constexpr GemmKernel kGemm[] = {
    gemm_row<F32Int4<V>>(1), decoded_row<F32Int4<V>>(kDecodedFrom),
    gemm_row<F32Int8<V>>(1), decoded_row<F32Int8<V>>(kDecodedFrom),
    gemm_row<F32E2m1<V>>(1), decoded_row<F32E2m1<V>>(kDecodedFrom),
    gemm_row<F32E4m3<V>>(1), decoded_row<F32E4m3<V>>(kDecodedFrom),
    gemm_row<F32Bf16<V>>(1), gemm_row<F32F16<V>>(1),
    gemm_row<F32F32<V>>(1),
};

}  // namespace

template <>
const Target& target_named<"avx512">() {
  static constinit const Target kTarget{"avx512", kGemm, &kAvx512Activations, avx512_vector_ops};
  return kTarget;
}

}  // namespace moracle::cpu
