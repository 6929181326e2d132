#include "kernels/cuda/sm90/linear/products.cuh"
#include "kernels/cuda/sm90/linear/tiles.cuh"

namespace moracle::cuda {

int launch_tiles_int4(const LinearArgs& linear, const FormedInputs& inputs, bool products, cudaStream_t stream) {
  return products ? launch_products<Int4>(linear, inputs, stream) : launch_tiles<Int4>(linear, inputs, stream);
}

}  // namespace moracle::cuda
