#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/portable/experts/gemm.cuh"

namespace moracle::cuda {

void launch_gemm_int4(const GemmArgs& args, bool gated, int row_tiles, cudaStream_t stream) {
  launch_gemm<Int4>(args, gated, row_tiles, stream);
}
void launch_gemm_int8(const GemmArgs& args, bool gated, int row_tiles, cudaStream_t stream) {
  launch_gemm<Int8>(args, gated, row_tiles, stream);
}

}  // namespace moracle::cuda
