#include "kernels/cuda/decode/decode.cuh"
#include "kernels/cuda/decode/launch.cuh"

namespace moracle::cuda {

namespace {

// Qwen3-30B-A3B's sizes, under codes of 8 and of 16 bits: all warps share an item of w13.
template <RecordKind kKind, int kTokens>
using Narrow = DecodePlan<StreamedWeights<kKind>, 2048, 768, kTokens, 8, 4>;

template <RecordKind kKind>
int launch_narrow(const DecodeArgs& args, cudaStream_t stream) {
  return launch_sized<Narrow<kKind, 16>, Narrow<kKind, kDecodeTokens>>(args, stream);
}

}  // namespace

int stream_int8_row_2048x768(const DecodeArgs& args, cudaStream_t stream) {
  return launch_narrow<RecordKind::int8_row>(args, stream);
}
int stream_int8_split_2048x768(const DecodeArgs& args, cudaStream_t stream) {
  return launch_narrow<RecordKind::int8_split>(args, stream);
}
int stream_e4m3_row_2048x768(const DecodeArgs& args, cudaStream_t stream) {
  return launch_narrow<RecordKind::e4m3_row>(args, stream);
}
int stream_e4m3_split_2048x768(const DecodeArgs& args, cudaStream_t stream) {
  return launch_narrow<RecordKind::e4m3_split>(args, stream);
}
int stream_bf16_2048x768(const DecodeArgs& args, cudaStream_t stream) {
  return launch_narrow<RecordKind::bf16>(args, stream);
}

}  // namespace moracle::cuda
