#include "kernels/cuda/decode/decode.cuh"
#include "kernels/cuda/decode/launch.cuh"

namespace moracle::cuda {

// DeepSeek-V3's sizes under FP8 blocks: all warps share an item of w13.
template <int kTokens>
using Wide =
    DecodePlan<StreamedWeights<RecordKind::e4m3_split, true>, 7168, 2048, kTokens, 14, 2, InputKind::e4m3_group>;

int stream_e4m3_split_groups_7168x2048(const DecodeArgs& args, cudaStream_t stream) {
  return launch_sized<Wide<16>, Wide<kDecodeTokens>>(args, stream);
}

}  // namespace moracle::cuda
