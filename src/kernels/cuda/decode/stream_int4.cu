#include "kernels/cuda/decode/decode.cuh"
#include "kernels/cuda/decode/launch.cuh"

namespace moracle::cuda {

// Qwen3-30B-A3B's sizes.
template <DeviceScale kScale, int kTokens>
using Narrow = DecodePlan<StreamedInt4<kScale>, 2048, 768, kTokens, 8, 6>;

int launch_stream_int4(const DecodeArgs& args, DeviceScale scale, cudaStream_t stream) {
  if (scale == DeviceScale::f16) {
    return launch_sized<Narrow<DeviceScale::f16, 16>, Narrow<DeviceScale::f16, kDecodeTokens>>(args, stream);
  }
  return launch_sized<Narrow<DeviceScale::bf16, 16>, Narrow<DeviceScale::bf16, kDecodeTokens>>(args, stream);
}

}  // namespace moracle::cuda
