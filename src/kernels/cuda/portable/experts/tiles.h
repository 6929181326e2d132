// Products of experts by tiles whose codes and inputs are copied ahead.
#pragma once

#include "kernels/cuda/common/launch.h"

namespace moracle::cuda {

// Whether tiles serve a layer: codes of up to 16 bits, scales of whole slices (of E2M1 of 16 columns), one form of
// inputs.
bool takes_expert_tiles(const RoutedExperts& routed);
// `tile_rows`: kFewTileRows or kPairTileRows. `codes_out`: of gated rows, in bf16 of `stride` numbers each as the next
// product takes them; null: rows in f32 to args.out. Returns the runtime's error of the launch.
int launch_expert_tiles(const GemmArgs& args, bool gated, int tile_rows, int row_tiles, std::uint16_t* codes_out,
                        int stride, cudaStream_t stream);

}  // namespace moracle::cuda
