#include "kernels/cuda/sm90/linear/products.cuh"

namespace moracle::cuda {

int launch_products_int8(const LinearArgs& linear, const FormedInputs& inputs, cudaStream_t stream) {
  return launch_products<Int8>(linear, inputs, stream);
}

}  // namespace moracle::cuda
