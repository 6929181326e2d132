// Launches of the grouped products' instances.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/prefill/grouped.cuh"

namespace moracle::cuda {

// The whole pass of a call of any size over a pack in records.
int launch_grouped(const ExpertsArgs& args, cudaStream_t stream);

extern template int launch_grouped_as<RecordKind::int4_bf16>(const GroupedArgs&, int, cudaStream_t);
extern template int launch_grouped_as<RecordKind::int4_f16>(const GroupedArgs&, int, cudaStream_t);
extern template int launch_grouped_as<RecordKind::int8_row>(const GroupedArgs&, int, cudaStream_t);
extern template int launch_grouped_as<RecordKind::int8_split>(const GroupedArgs&, int, cudaStream_t);
extern template int launch_grouped_as<RecordKind::e4m3_row>(const GroupedArgs&, int, cudaStream_t);
extern template int launch_grouped_as<RecordKind::e4m3_split>(const GroupedArgs&, int, cudaStream_t);
extern template int launch_grouped_as<RecordKind::mxfp4>(const GroupedArgs&, int, cudaStream_t);
extern template int launch_grouped_as<RecordKind::nvfp4>(const GroupedArgs&, int, cudaStream_t);
extern template int launch_grouped_as<RecordKind::bf16>(const GroupedArgs&, int, cudaStream_t);

}  // namespace moracle::cuda
