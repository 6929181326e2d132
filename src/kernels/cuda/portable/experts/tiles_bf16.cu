#include "kernels/cuda/portable/experts/tiles.cuh"

namespace moracle::cuda {

int launch_tiles_of_bf16(const TiledGemmArgs& args, bool gated, int tile_rows, int row_tiles, cudaStream_t stream) {
  return launch_tiles_of<Bf16>(args, gated, tile_rows, row_tiles, stream);
}

}  // namespace moracle::cuda
