#include "kernels/cuda/portable/linear/tiles.cuh"

namespace moracle::cuda {

int launch_tiles_e4m3(const LinearArgs& linear, const FormedInputs& inputs, cudaStream_t stream) {
  return launch_tiles<E4m3>(linear, inputs, stream);
}

}  // namespace moracle::cuda
