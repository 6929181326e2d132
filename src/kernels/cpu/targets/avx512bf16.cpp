// AVX-512 BF16: 16-bit activations, bf16 products, f32 accumulation.
//
// Compiled on x86_64 with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
// Compiled on x86_64 with -mavx512vbmi -mavx512bf16
#include "kernels/cpu/gemm/gemm-inl.h"
#include "kernels/cpu/ops/activation_kernels.h"
#include "kernels/cpu/simd/avx512.h"
#include "kernels/cpu/targets/targets.h"
#include "kernels/cpu/weights/codes_avx512_bf16-inl.h"
#include "kernels/cpu/weights/codes_avx512_f32-inl.h"

namespace moracle::cpu {
namespace {

using namespace avx512;

struct V : Avx512<V> {};

constexpr std::uint16_t kDecodedFrom = 24;  // tokens; int4 and E2M1 are decoded again as fast as they are loaded

constexpr GemmKernel kGemm[] = {
    gemm_row<Bf16Int4<V>>(1), gemm_row<Bf16Int8<V>>(1),    decoded_row<Bf16Int8<V>>(kDecodedFrom),
    gemm_row<Bf16E2m1<V>>(1), gemm_row<Bf16E4m3<V>>(1),    decoded_row<Bf16E4m3<V>>(kDecodedFrom),
    gemm_row<Bf16Bf16<V>>(1), gemm_row<Bf16Bf16x12<V>>(1), gemm_row<F32F16<V>>(1),
    gemm_row<F32F32<V>>(1),
};

}  // namespace

// Every CPU with BF16 has VNNI.
template <>
const Target& target_named<"avx512bf16">() {
  static constinit const Target kTarget{"avx512bf16", kGemm, &kAvx512Bf16Activations, avx512_vector_ops, "avx512vnni"};
  return kTarget;
}

}  // namespace moracle::cpu
