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

constexpr KernelKey numbers(WeightCode code) {
  return {code, ActDtype::f32, Serves::floats};
}
constexpr KernelKey all(WeightCode code) {
  return {code, ActDtype::f32, kAnyActivations};
}
constexpr KernelKey words(WeightCode code) {
  return {code, ActDtype::i16, Serves::exact};
}

// int4, int8 and bytes are decoded again as fast as they are stored and loaded.
constexpr GemmKernel kGemm[] = {
    running_row<I16Int4<V>, true>(words(WeightCode::int4), 1),
    any_row<I8Int4<V>>({WeightCode::int4, ActDtype::i8, Serves::fast | Serves::int8}, 1),
    number_row<F32Int4<V>, true>(numbers(WeightCode::int4), 1),
    decoded_row<F32Int4<V>>(numbers(WeightCode::int4), kDecodedFrom),
    // Products of bytes by bytes fill 16 bits, so that VPMADDUBSW would gain nothing.
    any_row<I16Int8<V>>({WeightCode::int8, ActDtype::i16, Serves::exact | Serves::fast | Serves::int8}, 1),
    number_row<F32Int8<V>, true>(numbers(WeightCode::int8), 1),
    decoded_row<F32Int8<V>>(numbers(WeightCode::int8), kDecodedFrom),
    running_row<I16E2m1<V>, false>(words(WeightCode::e2m1), 1),
    decoded_row<I16E2m1<V>>(words(WeightCode::e2m1), kDecodedFrom),
    running_row<I8E2m1<V>, false>({WeightCode::e2m1, ActDtype::i8, Serves::fast}, 1),
    number_row<F32E2m1<V>, false>({WeightCode::e2m1, ActDtype::f32, Serves::floats | Serves::int8}, 1),
    decoded_row<F32E2m1<V>>({WeightCode::e2m1, ActDtype::f32, Serves::floats | Serves::int8}, kDecodedFrom),
    number_row<F32E4m3<V>, false>(all(WeightCode::e4m3), 1),
    decoded_row<F32E4m3<V>>(all(WeightCode::e4m3), kDecodedFrom),
    dense_row<F32Bf16<V>>(WeightCode::bf16, ActDtype::f32),
    dense_row<F32Bf16x12<V>>(WeightCode::bf16x12, ActDtype::f32),
    decoded_row<F32Bf16x12<V>>(all(WeightCode::bf16x12), kBf16x12DecodedFrom),
    dense_row<F32F16<V>>(WeightCode::f16, ActDtype::f32),
    dense_row<F32F32<V>>(WeightCode::f32, ActDtype::f32),
};

}  // namespace

template <>
const Target& target_named<"avx2">() {
  static constinit const Target kTarget{.name = "avx2",
                                        .gemm = kGemm,
                                        .activations = &kAvx2Activations,
                                        .vector_ops = avx2_vector_ops,
                                        .head = {},
                                        .interleaved = false};
  return kTarget;
}

}  // namespace moracle::cpu
