#include "kernels/cuda/portable/linear/tiles.cuh"

namespace moracle::cuda {

int launch_tiles_int4(const LinearArgs& linear, const FormedInputs& inputs, cudaStream_t stream) {
  return launch_tiles<Int4>(linear, inputs, stream);
}

}  // namespace moracle::cuda
