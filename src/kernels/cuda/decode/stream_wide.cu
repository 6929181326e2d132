#include "kernels/cuda/decode/decode.cuh"
#include "kernels/cuda/decode/launch.cuh"

namespace moracle::cuda {

namespace {

// Qwen3-30B-A3B's sizes, under codes of 8 and of 16 bits: all warps share an item of w13.
template <RecordKind kKind, InputKind kInput, int kTokens>
using Narrow = DecodePlan<StreamedWeights<kKind, (input_group(kInput) > 0)>, 2048, 768, kTokens, 8, 4, kInput>;

template <RecordKind kKind, InputKind kInput = InputKind::bf16>
int launch_narrow(const DecodeArgs& args, cudaStream_t stream) {
  return launch_sized<Narrow<kKind, kInput, 16>, Narrow<kKind, kInput, kDecodeTokens>>(args, stream);
}

}  // namespace

int stream_int8_row_2048x768(const DecodeArgs& args, cudaStream_t stream) {
  return launch_narrow<RecordKind::int8_row>(args, stream);
}
int stream_int8_row_int8_2048x768(const DecodeArgs& args, cudaStream_t stream) {
  return launch_narrow<RecordKind::int8_row, InputKind::int8_token>(args, stream);
}
int stream_int8_split_2048x768(const DecodeArgs& args, cudaStream_t stream) {
  return launch_narrow<RecordKind::int8_split>(args, stream);
}
int stream_e4m3_row_2048x768(const DecodeArgs& args, cudaStream_t stream) {
  return launch_narrow<RecordKind::e4m3_row>(args, stream);
}
int stream_e4m3_row_e4m3_2048x768(const DecodeArgs& args, cudaStream_t stream) {
  return launch_narrow<RecordKind::e4m3_row, InputKind::e4m3_token>(args, stream);
}
int stream_e4m3_row_stored_2048x768(const DecodeArgs& args, cudaStream_t stream) {
  return launch_narrow<RecordKind::e4m3_row, InputKind::e4m3_tensor>(args, stream);
}
int stream_e4m3_split_2048x768(const DecodeArgs& args, cudaStream_t stream) {
  return launch_narrow<RecordKind::e4m3_split>(args, stream);
}
int stream_e4m3_split_groups_2048x768(const DecodeArgs& args, cudaStream_t stream) {
  return launch_narrow<RecordKind::e4m3_split, InputKind::e4m3_group>(args, stream);
}
int stream_bf16_2048x768(const DecodeArgs& args, cudaStream_t stream) {
  return launch_narrow<RecordKind::bf16>(args, stream);
}

}  // namespace moracle::cuda
