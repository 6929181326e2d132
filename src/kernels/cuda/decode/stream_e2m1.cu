#include "kernels/cuda/decode/launch.cuh"

#include "kernels/cuda/decode/decode.cuh"

namespace moracle::cuda {

// gpt-oss' sizes.
template <RecordKind kKind, int kTokens, InputKind kInput = InputKind::bf16>
using Square = DecodePlan<StreamedE2m1<kKind>, 2880, 2880, kTokens, 12, 6, kInput>;

int stream_mxfp4_2880x2880(const DecodeArgs& args, cudaStream_t stream) {
  return launch_sized<Square<RecordKind::mxfp4, 16>, Square<RecordKind::mxfp4, kDecodeTokens>>(args, stream);
}
int stream_mxfp4_row_stored_2880x2880(const DecodeArgs& args, cudaStream_t stream) {
  constexpr RecordKind kKind = RecordKind::mxfp4_row;
  constexpr InputKind kInput = InputKind::e4m3_tensor;
  return launch_sized<Square<kKind, 16, kInput>, Square<kKind, kDecodeTokens, kInput>>(args, stream);
}

// Qwen3-30B-A3B's.
template <class Code, int kTokens>
using Narrow = DecodePlan<Code, 2048, 768, kTokens, 8, 6>;

int stream_mxfp4_2048x768(const DecodeArgs& args, cudaStream_t stream) {
  using Code = StreamedE2m1<RecordKind::mxfp4>;
  return launch_sized<Narrow<Code, 16>, Narrow<Code, kDecodeTokens>>(args, stream);
}
int stream_nvfp4_2048x768(const DecodeArgs& args, cudaStream_t stream) {
  using Code = StreamedWeights<RecordKind::nvfp4>;
  return launch_sized<Narrow<Code, 16>, Narrow<Code, kDecodeTokens>>(args, stream);
}

}  // namespace moracle::cuda
