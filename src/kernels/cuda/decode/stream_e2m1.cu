#include "kernels/cuda/decode/launch.cuh"

#include "kernels/cuda/decode/decode.cuh"

namespace moracle::cuda {

// gpt-oss' sizes.
template <int kTokens>
using Square = DecodePlan<StreamedE2m1, 2880, 2880, kTokens, 12, 6>;

int launch_stream_e2m1(const DecodeArgs& args, cudaStream_t stream) {
  return launch_sized<Square<16>, Square<kDecodeTokens>>(args, stream);
}

}  // namespace moracle::cuda
