#include "kernels/cuda/sm90/linear/products.cuh"

namespace moracle::cuda {

int launch_products_e4m3(const LinearArgs& linear, const FormedInputs& inputs, cudaStream_t stream) {
  return launch_products<E4m3>(linear, inputs, stream);
}

}  // namespace moracle::cuda
