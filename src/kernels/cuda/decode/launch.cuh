// Launches of the streaming kernel's instances.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/decode/plan.cuh"

namespace moracle::cuda {

// Whether one launch serves a call over a pack in records; and that launch.
bool can_stream(const StreamedExpertsArgs& args);
int launch_streamed(const StreamedExpertsArgs& args, cudaStream_t stream);

// Instances, by weights, inputs where they are quantized, and hidden x intermediate size.
int stream_int4_bf16_2048x768(const DecodeArgs& args, cudaStream_t stream);
int stream_int4_bf16_int8_2048x768(const DecodeArgs& args, cudaStream_t stream);
int stream_int4_bf16_e4m3_2048x768(const DecodeArgs& args, cudaStream_t stream);
int stream_int4_f16_2048x768(const DecodeArgs& args, cudaStream_t stream);
int stream_int4_f16_int8_2048x768(const DecodeArgs& args, cudaStream_t stream);
int stream_int4_f16_e4m3_2048x768(const DecodeArgs& args, cudaStream_t stream);
int stream_int4_bf16_7168x2048(const DecodeArgs& args, cudaStream_t stream);
int stream_int4_f16_7168x2048(const DecodeArgs& args, cudaStream_t stream);
int stream_int8_row_2048x768(const DecodeArgs& args, cudaStream_t stream);
int stream_int8_row_int8_2048x768(const DecodeArgs& args, cudaStream_t stream);
int stream_int8_split_2048x768(const DecodeArgs& args, cudaStream_t stream);
int stream_e4m3_row_2048x768(const DecodeArgs& args, cudaStream_t stream);
int stream_e4m3_row_e4m3_2048x768(const DecodeArgs& args, cudaStream_t stream);
int stream_e4m3_row_stored_2048x768(const DecodeArgs& args, cudaStream_t stream);
int stream_e4m3_split_2048x768(const DecodeArgs& args, cudaStream_t stream);
int stream_e4m3_split_groups_2048x768(const DecodeArgs& args, cudaStream_t stream);
int stream_mxfp4_2048x768(const DecodeArgs& args, cudaStream_t stream);
int stream_mxfp4_2880x2880(const DecodeArgs& args, cudaStream_t stream);
int stream_mxfp4_row_stored_2880x2880(const DecodeArgs& args, cudaStream_t stream);
int stream_nvfp4_2048x768(const DecodeArgs& args, cudaStream_t stream);
int stream_e4m3_split_groups_7168x2048(const DecodeArgs& args, cudaStream_t stream);
int stream_bf16_2048x768(const DecodeArgs& args, cudaStream_t stream);

}  // namespace moracle::cuda
