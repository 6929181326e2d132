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

// Fewer tokens meet bytes in two planes: a step of nibbles is decoded by half as many operations as to words.
constexpr std::uint16_t kWordsFrom = 4;

constexpr KernelKey bytes(WeightCode code) {
  return {code, ActDtype::i8, Serves::fast | Serves::int8};
}
constexpr KernelKey words(WeightCode code) {
  return {code, ActDtype::i16, Serves::exact};
}
constexpr KernelKey split(WeightCode code) {
  return {code, ActDtype::split_i16, Serves::exact};
}

// None decodes once for many tokens: decoding to bytes costs less than to store and load them.
constexpr GemmKernel kGemm[] = {
    any_row<I8Int4<V>>(bytes(WeightCode::int4), 1),
    any_row<I8Int8<V>>(bytes(WeightCode::int8), 1),
    running_row<I8E2m1<V>, false>(bytes(WeightCode::e2m1), 1),
    running_row<Split<I8Int4<V>>, true>(split(WeightCode::int4), 1),
    running_row<I16Int4<V>, true>(words(WeightCode::int4), kWordsFrom),
    running_row<Split<I8Int8<V>>, true>(split(WeightCode::int8), 1),
    running_row<I16Int8<V>, true>(words(WeightCode::int8), kWordsFrom),
    running_row<Split<I8E2m1<V>>, false>(split(WeightCode::e2m1), 1),
    running_row<I16E2m1<V>, false>(words(WeightCode::e2m1), kWordsFrom),
};

}  // namespace

template <>
const Target& target_named<"avx512vnni">() {
  static constinit const Target kTarget{.name = "avx512vnni",
                                        .gemm = kGemm,
                                        .activations = &kAvx512Activations,
                                        .vector_ops = avx512_vector_ops,
                                        .head = {},
                                        .interleaved = false};
  return kTarget;
}

}  // namespace moracle::cpu
