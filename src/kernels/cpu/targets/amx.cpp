// AMX tiles for many tokens, AVX-512 VNNI and BF16 for few: a tile's time hardly depends on how many of its 16 rows are
// used.
//
// Compiled on x86_64 with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c
// Compiled on x86_64 with -mavx512vbmi -mavx512bf16 -mavx512vnni -mamx-tile -mamx-bf16 -mamx-int8
#include "kernels/cpu/gemm/amx-inl.h"
#include "kernels/cpu/ops/activation_kernels.h"
#include "kernels/cpu/simd/avx512.h"
#include "kernels/cpu/targets/targets.h"
#include "kernels/cpu/weights/codes_amx-inl.h"
#include "kernels/cpu/weights/codes_avx512_f32-inl.h"

namespace moracle::cpu {
namespace {

using namespace avx512;

struct V : Avx512<V> {
  static constexpr bool kInterleaved = true;
};

constexpr std::uint16_t kTilesFrom = 3;
// VPDPBUSD takes int4 at 450 GOP/s a core under groups of 128 and 370 under groups of 32, which tiles pass here.
constexpr std::uint16_t kBytesFrom = 12;
constexpr std::uint16_t kShortBytesFrom = 24;
// Below these, integers of 16 and of 8 bits on vectors beat the decoding to bf16 that tiles need.
constexpr std::uint16_t kAfterWords = 6;
constexpr std::uint16_t kAfterBytes = 16;

constexpr Serves kBytes = Serves::fast | Serves::int8;
constexpr KernelKey words(WeightCode code) {
  return {code, ActDtype::i16, Serves::exact};
}
constexpr KernelKey bytes(WeightCode code, Groups groups = Groups::any) {
  return {code, ActDtype::i8, kBytes, groups};
}
// Two planes spill twice what bf16 does at the end of a group, which short groups do not pay for.
constexpr KernelKey split(WeightCode code) {
  return {code, ActDtype::split_i16, Serves::exact, Groups::longer};
}
constexpr KernelKey bf16(WeightCode code, Serves serves, Groups groups = Groups::any) {
  return {code, ActDtype::bf16, serves, groups};
}

constexpr GemmKernel kGemm[] = {
    running_row<I16Int4<V>, true>(words(WeightCode::int4), 1),
    amx_row<AmxInt4<SignedLines<V>>, true>(split(WeightCode::int4), kAfterWords),
    amx_row<AmxCodes<Bf16Int4<V>>>(bf16(WeightCode::int4, Serves::exact, Groups::up_to_32), kAfterWords),
    any_row<I8Int4<V>>(bytes(WeightCode::int4), 1),
    amx_row<AmxInt4<UnsignedLines<V>>>(bytes(WeightCode::int4, Groups::longer), kBytesFrom),
    amx_row<AmxInt4<UnsignedLines<V>>>(bytes(WeightCode::int4, Groups::up_to_32), kShortBytesFrom),
    number_row<Bf16Int4<V>, true>(bf16(WeightCode::int4, Serves::floats), 1),
    amx_row<AmxCodes<Bf16Int4<V>>>(bf16(WeightCode::int4, Serves::floats), kTilesFrom),

    running_row<I16Int8<V>, true>(words(WeightCode::int8), 1),
    amx_row<AmxInt8<V>, true>(split(WeightCode::int8), kAfterWords),
    amx_row<AmxCodes<Bf16Int8<V>>>(bf16(WeightCode::int8, Serves::exact, Groups::up_to_32), kAfterWords),
    any_row<I8Int8<V>>(bytes(WeightCode::int8), 1),
    amx_row<AmxInt8<V>>(bytes(WeightCode::int8), kTilesFrom),

    running_row<I16E2m1<V>, false>(words(WeightCode::e2m1), 1),
    amx_row<AmxCodes<Bf16E2m1<V>>>(bf16(WeightCode::e2m1, Serves::exact), kAfterWords),
    running_row<I8E2m1<V>, false>({WeightCode::e2m1, ActDtype::i8, Serves::fast}, 1),
    amx_row<AmxCodes<Bf16E2m1<V>>>(bf16(WeightCode::e2m1, Serves::fast), kAfterBytes),
    number_row<Bf16E2m1<V>, false>(bf16(WeightCode::e2m1, Serves::floats), 1),
    amx_row<AmxCodes<Bf16E2m1<V>>>(bf16(WeightCode::e2m1, Serves::floats), kTilesFrom),

    number_row<Bf16E4m3<V>, false>(bf16(WeightCode::e4m3, kAnyActivations), 1),
    amx_row<AmxCodes<Bf16E4m3<V>>>(bf16(WeightCode::e4m3, kAnyActivations), kTilesFrom),
    // Plain bf16 lies as tiles take it, from which many tokens gain more than few do from 12 bits.
    dense_row<Bf16Bf16<V>>(WeightCode::bf16, ActDtype::bf16),
    amx_row<AmxBf16<V>>(bf16(WeightCode::bf16, kAnyActivations), kTilesFrom),
    dense_row<F32F16<V>>(WeightCode::f16, ActDtype::f32),
    dense_row<F32F32<V>>(WeightCode::f32, ActDtype::f32),
};

}  // namespace

template <>
const Target& target_named<"amx">() {
  static constinit const Target kTarget{.name = "amx",
                                        .gemm = kGemm,
                                        .activations = &kAvx512Bf16Activations,
                                        .vector_ops = avx512_vector_ops,
                                        .head = {},
                                        .interleaved = true};
  return kTarget;
}

}  // namespace moracle::cpu
