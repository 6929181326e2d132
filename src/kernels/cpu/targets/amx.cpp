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
// Below these, integers on vectors win: they need no decoding to bf16, and read four panels at once from memory.
constexpr std::uint16_t kAfterWords = 6;
constexpr std::uint16_t kAfterBytes = 16;

constexpr ActivationMask kBytes = ActivationMask::fast | ActivationMask::int8;

constexpr GemmKernel kGemm[] = {
    // Split int16 spills twice what bf16 does at the end of a group, which short groups do not pay for.
    gemm_row<I16Int4<V>, ActivationMask::exact>(1),
    amx_row<AmxSplit<AmxInt4<SignedLines<V>>>>(kAfterWords, ActivationMask::exact, Groups::longer),
    amx_row<AmxCodes<Bf16Int4<V>>>(kAfterWords, ActivationMask::exact, Groups::up_to_32),
    gemm_row<I8Int4<V>, kBytes>(1),
    amx_row<AmxInt4<UnsignedLines<V>>>(kBytesFrom, kBytes, Groups::longer),
    amx_row<AmxInt4<UnsignedLines<V>>>(kShortBytesFrom, kBytes, Groups::up_to_32),
    gemm_row<Bf16Int4<V>, ActivationMask::floats>(1),
    amx_row<AmxCodes<Bf16Int4<V>>>(kTilesFrom, ActivationMask::floats),

    gemm_row<I16Int8<V>, ActivationMask::exact>(1),
    amx_row<AmxSplit<AmxInt8<V>>>(kAfterWords, ActivationMask::exact, Groups::longer),
    amx_row<AmxCodes<Bf16Int8<V>>>(kAfterWords, ActivationMask::exact, Groups::up_to_32),
    gemm_row<I8Int8<V>, kBytes>(1),
    amx_row<AmxInt8<V>>(kAfterWords, kBytes),

    gemm_row<I16E2m1<V>, ActivationMask::exact>(1),
    amx_row<AmxCodes<Bf16E2m1<V>>>(kAfterWords, ActivationMask::exact),
    gemm_row<I8E2m1<V>, ActivationMask::fast>(1),
    amx_row<AmxCodes<Bf16E2m1<V>>>(kAfterBytes, ActivationMask::fast),
    gemm_row<Bf16E2m1<V>, ActivationMask::floats>(1),
    amx_row<AmxCodes<Bf16E2m1<V>>>(kTilesFrom, ActivationMask::floats),

    gemm_row<Bf16E4m3<V>>(1),
    amx_row<AmxCodes<Bf16E4m3<V>>>(kTilesFrom),
    // Plain bf16 lies as tiles take it, from which many tokens gain more than few do from 12 bits.
    gemm_row<Bf16Bf16<V>>(1),
    amx_row<AmxBf16<V>>(kTilesFrom),
    gemm_row<F32F16<V>>(1),
    gemm_row<F32F32<V>>(1),
};

}  // namespace

template <>
const Target& target_named<"amx">() {
  static constinit const Target kTarget{.name = "amx",
                                        .gemm = kGemm,
                                        .activations = &kAvx512Bf16Activations,
                                        .vector_ops = avx512_vector_ops,
                                        .interleaved = true};
  return kTarget;
}

}  // namespace moracle::cpu
