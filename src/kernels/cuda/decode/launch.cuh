// Launches of the streaming kernel's instances.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/decode/plan.cuh"

namespace moracle::cuda {

// Whether one launch serves a call over a pack in records; and that launch. The pack's sizes are those of an instance.
bool can_stream(const ExpertsArgs& args);
int launch_streamed(const ExpertsArgs& args, cudaStream_t stream);

int launch_stream_int4(const DecodeArgs& args, DeviceScale scale, cudaStream_t stream);
int launch_stream_e2m1(const DecodeArgs& args, cudaStream_t stream);

}  // namespace moracle::cuda
