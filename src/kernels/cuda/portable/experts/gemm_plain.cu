#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/portable/experts/gemm.cuh"

namespace moracle::cuda {

void launch_gemm_bf16(const GemmArgs& args, bool gated, int row_tiles, cudaStream_t stream) {
  launch_gemm<Bf16>(args, gated, row_tiles, stream);
}
void launch_gemm_f16(const GemmArgs& args, bool gated, int row_tiles, cudaStream_t stream) {
  launch_gemm<F16>(args, gated, row_tiles, stream);
}
void launch_gemm_f32(const GemmArgs& args, bool gated, int row_tiles, cudaStream_t stream) {
  launch_gemm<F32>(args, gated, row_tiles, stream);
}

}  // namespace moracle::cuda
