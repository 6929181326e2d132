#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/portable/experts/gemm.cuh"

namespace moracle::cuda {

void launch_gemm_e2m1(const GemmArgs& args, bool gated, int row_tiles, cudaStream_t stream) {
  launch_gemm<E2m1>(args, gated, row_tiles, stream);
}
void launch_gemm_e4m3(const GemmArgs& args, bool gated, int row_tiles, cudaStream_t stream) {
  launch_gemm<E4m3>(args, gated, row_tiles, stream);
}

}  // namespace moracle::cuda
