#include "kernels/cuda/portable/linear/tiles.cuh"

namespace moracle::cuda {

int launch_tiles_bf16(const LinearArgs& linear, const FormedInputs& inputs, cudaStream_t stream) {
  return launch_tiles<Bf16>(linear, inputs, stream);
}

}  // namespace moracle::cuda
