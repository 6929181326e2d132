#include "kernels/cuda/sm90/prefill/inputs.cuh"

namespace moracle::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

template <int kOfRow>
__global__ void __launch_bounds__(kThreads) quantize(const __grid_constant__ QuantizeArgs args, int rows) {
  const int row = static_cast<int>(blockIdx.x) * (kThreads / kOfRow) + static_cast<int>(threadIdx.x) / kOfRow;
  if (row < rows) quantize_row<kOfRow>(args, row);
}

}  // namespace

void quantize_rows(const QuantizeArgs& args, int rows, cudaStream_t stream) {
  if (rows < kManyRows) {
    quantize<kThreads><<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(args, rows);
  } else {
    quantize<32><<<static_cast<unsigned>((rows + kWarps - 1) / kWarps), kThreads, 0, stream>>>(args, rows);
  }
}

}  // namespace moracle::cuda
