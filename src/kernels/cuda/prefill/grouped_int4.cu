#include "kernels/cuda/prefill/launch.cuh"

namespace moracle::cuda {

int launch_grouped_int4(const GroupedArgs& args, DeviceScale scale, int blocks, cudaStream_t stream) {
  if (scale == DeviceScale::f16) {
    return launch_grouped_as<StreamedInt4<DeviceScale::f16>>(args, blocks, stream);
  }
  return launch_grouped_as<StreamedInt4<DeviceScale::bf16>>(args, blocks, stream);
}

}  // namespace moracle::cuda
