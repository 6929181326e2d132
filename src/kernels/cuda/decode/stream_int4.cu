#include "kernels/cuda/decode/decode.cuh"
#include "kernels/cuda/decode/launch.cuh"

namespace moracle::cuda {

// Qwen3-30B-A3B's sizes.
template <RecordKind kKind, int kTokens>
using Narrow = DecodePlan<StreamedInt4<kKind>, 2048, 768, kTokens, 8, 6>;

int stream_int4_bf16_2048x768(const DecodeArgs& args, cudaStream_t stream) {
  return launch_sized<Narrow<RecordKind::int4_bf16, 16>, Narrow<RecordKind::int4_bf16, kDecodeTokens>>(args, stream);
}
int stream_int4_f16_2048x768(const DecodeArgs& args, cudaStream_t stream) {
  return launch_sized<Narrow<RecordKind::int4_f16, 16>, Narrow<RecordKind::int4_f16, kDecodeTokens>>(args, stream);
}

}  // namespace moracle::cuda
