#include "kernels/cuda/sm90/decode/decode.cuh"

namespace moracle::cuda {

namespace {

// Qwen3-30B-A3B's sizes, under codes of 8 and of 16 bits: all warps share an item of w13.
template <RecordKind kKind, InputKind kInput, int kTokens>
using Narrow = DecodePlan<StreamedWeights<kKind, (input_group(kInput) > 0)>, 2048, 768, kTokens, 8, 4, kInput>;

template <RecordKind kKind, InputKind kInput = InputKind::bf16>
constexpr DecodeInstance kNarrow =
    instance_of<Narrow<kKind, kInput, kFewDecodeTokens>, Narrow<kKind, kInput, kDecodeTokens>>();

constexpr DecodeInstance kInstances[] = {kNarrow<RecordKind::int8_row>,
                                         kNarrow<RecordKind::int8_row, InputKind::int8_token>,
                                         kNarrow<RecordKind::int8_split>,
                                         kNarrow<RecordKind::e4m3_row>,
                                         kNarrow<RecordKind::e4m3_row, InputKind::e4m3_token>,
                                         kNarrow<RecordKind::e4m3_row, InputKind::e4m3_tensor>,
                                         kNarrow<RecordKind::e4m3_split>,
                                         kNarrow<RecordKind::e4m3_split, InputKind::e4m3_group>,
                                         kNarrow<RecordKind::bf16>};

}  // namespace

std::span<const DecodeInstance> wide_instances() {
  return kInstances;
}

}  // namespace moracle::cuda
