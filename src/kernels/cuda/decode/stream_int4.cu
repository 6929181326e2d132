#include "kernels/cuda/decode/decode.cuh"
#include "kernels/cuda/decode/launch.cuh"

namespace moracle::cuda {

namespace {

// Qwen3-30B-A3B's sizes.
template <RecordKind kKind, InputKind kInput, int kTokens>
using Narrow = DecodePlan<StreamedInt4<kKind>, 2048, 768, kTokens, 8, 6, kInput>;

template <RecordKind kKind, InputKind kInput = InputKind::bf16>
int launch_narrow(const DecodeArgs& args, cudaStream_t stream) {
  return launch_sized<Narrow<kKind, kInput, 16>, Narrow<kKind, kInput, kDecodeTokens>>(args, stream);
}

// DeepSeek-V3's: all warps share an item of w13, and have no registers for what sums start at.
template <RecordKind kKind, int kTokens>
using Wide = DecodePlan<StreamedInt4<kKind, false>, 7168, 2048, kTokens, 14, 3>;

template <RecordKind kKind>
int launch_wide(const DecodeArgs& args, cudaStream_t stream) {
  return launch_sized<Wide<kKind, 16>, Wide<kKind, kDecodeTokens>>(args, stream);
}

}  // namespace

int stream_int4_bf16_2048x768(const DecodeArgs& args, cudaStream_t stream) {
  return launch_narrow<RecordKind::int4_bf16>(args, stream);
}
int stream_int4_bf16_int8_2048x768(const DecodeArgs& args, cudaStream_t stream) {
  return launch_narrow<RecordKind::int4_bf16, InputKind::int8_token>(args, stream);
}
int stream_int4_bf16_e4m3_2048x768(const DecodeArgs& args, cudaStream_t stream) {
  return launch_narrow<RecordKind::int4_bf16, InputKind::e4m3_token>(args, stream);
}
int stream_int4_f16_2048x768(const DecodeArgs& args, cudaStream_t stream) {
  return launch_narrow<RecordKind::int4_f16>(args, stream);
}
int stream_int4_f16_int8_2048x768(const DecodeArgs& args, cudaStream_t stream) {
  return launch_narrow<RecordKind::int4_f16, InputKind::int8_token>(args, stream);
}
int stream_int4_f16_e4m3_2048x768(const DecodeArgs& args, cudaStream_t stream) {
  return launch_narrow<RecordKind::int4_f16, InputKind::e4m3_token>(args, stream);
}

int stream_int4_bf16_7168x2048(const DecodeArgs& args, cudaStream_t stream) {
  return launch_wide<RecordKind::int4_bf16>(args, stream);
}
int stream_int4_f16_7168x2048(const DecodeArgs& args, cudaStream_t stream) {
  return launch_wide<RecordKind::int4_f16>(args, stream);
}

}  // namespace moracle::cuda
