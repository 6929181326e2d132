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

constexpr KernelKey numbers(WeightCode code) {
  return {code, ActDtype::f32, Serves::floats};
}
constexpr KernelKey all(WeightCode code) {
  return {code, ActDtype::f32, kAnyActivations};
}
constexpr KernelKey bytes(WeightCode code) {
  return {code, ActDtype::i8, Serves::fast | Serves::int8};
}
constexpr KernelKey split(WeightCode code) {
  return {code, ActDtype::split_i16, Serves::exact};
}
constexpr KernelKey kE2m1Numbers{WeightCode::e2m1, ActDtype::f32, Serves::floats | Serves::int8};

constexpr GemmKernel kGemm[] = {
    running_row<Split<I8Int4<V>>, true>(split(WeightCode::int4), 1),
    any_row<I8Int4<V>>(bytes(WeightCode::int4), 1),
    number_row<F32Int4<V>, true>(numbers(WeightCode::int4), 1),
    decoded_row<F32Int4<V>>(numbers(WeightCode::int4), kDecodedFrom),
    running_row<Split<I8Int8<V>>, true>(split(WeightCode::int8), 1),
    any_row<I8Int8<V>>(bytes(WeightCode::int8), 1),
    number_row<F32Int8<V>, true>(numbers(WeightCode::int8), 1),
    decoded_row<F32Int8<V>>(numbers(WeightCode::int8), kDecodedFrom),
    running_row<Split<I8E2m1<V>>, false>(split(WeightCode::e2m1), 1),
    running_row<I8E2m1<V>, false>({WeightCode::e2m1, ActDtype::i8, Serves::fast}, 1),
    number_row<F32E2m1<V>, false>(kE2m1Numbers, 1),
    decoded_row<F32E2m1<V>>(kE2m1Numbers, kDecodedFrom),
    number_row<F32E4m3<V>, false>(all(WeightCode::e4m3), 1),
    decoded_row<F32E4m3<V>>(all(WeightCode::e4m3), kDecodedFrom),
    dense_row<F32Bf16<V>>(WeightCode::bf16, ActDtype::f32),
    dense_row<F32Bf16x12<V>>(WeightCode::bf16x12, ActDtype::f32),
    decoded_row<F32Bf16x12<V>>(all(WeightCode::bf16x12), kDecodedFrom),
    dense_row<F32F16<V>>(WeightCode::f16, ActDtype::f32),
    dense_row<F32F32<V>>(WeightCode::f32, ActDtype::f32),
};

}  // namespace

template <>
const Target& target_named<"neon">() {
  static constinit const Target kTarget{.name = "neon",
                                        .gemm = kGemm,
                                        .activations = &kNeonActivations,
                                        .vector_ops = neon_vector_ops,
                                        .head = {},
                                        .interleaved = false};
  return kTarget;
}

}  // namespace moracle::cpu
