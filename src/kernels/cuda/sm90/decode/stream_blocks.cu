#include "kernels/cuda/sm90/decode/decode.cuh"

namespace moracle::cuda {

namespace {

// DeepSeek-V3's sizes under FP8 blocks: all warps share an item of w13.
template <int kTokens>
using Wide =
    DecodePlan<StreamedWeights<RecordKind::e4m3_split, true>, 7168, 2048, kTokens, 14, 2, InputKind::e4m3_group>;

constexpr DecodeInstance kInstances[] = {instance_of<Wide<kFewDecodeTokens>, Wide<kDecodeTokens>>()};

}  // namespace

std::span<const DecodeInstance> block_instances() {
  return kInstances;
}

}  // namespace moracle::cuda
