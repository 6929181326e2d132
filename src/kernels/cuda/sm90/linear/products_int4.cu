#include "kernels/cuda/sm90/linear/products.cuh"

namespace moracle::cuda {

int launch_products_int4(const LinearArgs& linear, const FormedInputs& inputs, cudaStream_t stream) {
  return launch_products<Int4>(linear, inputs, stream);
}

}  // namespace moracle::cuda
