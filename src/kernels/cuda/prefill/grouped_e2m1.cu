#include "kernels/cuda/prefill/launch.cuh"

namespace moracle::cuda {

int launch_grouped_e2m1(const GroupedArgs& args, int blocks, cudaStream_t stream) {
  return launch_grouped_as<StreamedE2m1>(args, blocks, stream);
}

}  // namespace moracle::cuda
