// Launches of the grouped products' instances.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/prefill/grouped.cuh"

namespace moracle::cuda {

// The whole pass of a call of any size over a pack in records: six launches.
int launch_grouped(const ExpertsArgs& args, cudaStream_t stream);

int launch_grouped_int4(const GroupedArgs& args, DeviceScale scale, int blocks, cudaStream_t stream);
int launch_grouped_e2m1(const GroupedArgs& args, int blocks, cudaStream_t stream);

}  // namespace moracle::cuda
