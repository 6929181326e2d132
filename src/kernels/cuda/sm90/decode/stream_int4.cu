#include "kernels/cuda/sm90/decode/decode.cuh"

namespace moracle::cuda {

namespace {

// Qwen3-30B-A3B's sizes.
template <RecordKind kKind, InputKind kInput, int kTokens>
using Narrow = DecodePlan<StreamedInt4<kKind>, 2048, 768, kTokens, 8, 6, kInput>;

template <RecordKind kKind, InputKind kInput = InputKind::bf16>
constexpr DecodeInstance kNarrow =
    instance_of<Narrow<kKind, kInput, kFewDecodeTokens>, Narrow<kKind, kInput, kDecodeTokens>>();

// DeepSeek-V3's: all warps share an item of w13, and have no registers for what sums start at.
template <RecordKind kKind, int kTokens>
using Wide = DecodePlan<StreamedInt4<kKind, false>, 7168, 2048, kTokens, 14, 3>;

template <RecordKind kKind>
constexpr DecodeInstance kWide = instance_of<Wide<kKind, kFewDecodeTokens>, Wide<kKind, kDecodeTokens>>();

constexpr DecodeInstance kInstances[] = {kNarrow<RecordKind::int4_bf16>,
                                         kNarrow<RecordKind::int4_bf16, InputKind::int8_token>,
                                         kNarrow<RecordKind::int4_bf16, InputKind::e4m3_token>,
                                         kNarrow<RecordKind::int4_f16>,
                                         kNarrow<RecordKind::int4_f16, InputKind::int8_token>,
                                         kNarrow<RecordKind::int4_f16, InputKind::e4m3_token>,
                                         kWide<RecordKind::int4_bf16>,
                                         kWide<RecordKind::int4_f16>};

}  // namespace

std::span<const DecodeInstance> int4_instances() {
  return kInstances;
}

}  // namespace moracle::cuda
