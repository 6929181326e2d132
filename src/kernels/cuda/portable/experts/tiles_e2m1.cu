#include "kernels/cuda/portable/experts/tiles.cuh"

namespace moracle::cuda {

int launch_tiles_of_e2m1(const TiledGemmArgs& args, bool gated, int tile_rows, int row_tiles, cudaStream_t stream) {
  return launch_tiles_of<E2m1>(args, gated, tile_rows, row_tiles, stream);
}

}  // namespace moracle::cuda
