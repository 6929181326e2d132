#include "kernels/cuda/prefill/launch.cuh"

namespace moracle::cuda {

int launch_grouped_e2m1(const GroupedArgs& args, bool gated, int blocks, cudaStream_t stream) {
  return launch_grouped_as<StreamedE2m1>(args, gated, blocks, stream);
}

}  // namespace moracle::cuda
