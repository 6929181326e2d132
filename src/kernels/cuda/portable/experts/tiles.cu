// Which layers tiles serve, and whose.
#include "kernels/cuda/portable/experts/tiles.h"

#include "kernels/cuda/portable/experts/tiles.cuh"

namespace moracle::cuda {

namespace {

// Columns that share a scale are whole slices, or those of a lane's, or all; only int4 has zero points.
bool takes_matrix(DeviceCode code, const MatrixArgs& matrix) {
  if (matrix.zeros != kAbsent && code != DeviceCode::int4) return false;
  const int least = code == DeviceCode::e2m1 ? kSlice / 4 : kSlice;
  return matrix.padded <= kMostColumns && (matrix.group >= matrix.padded || matrix.group % least == 0);
}

}  // namespace

bool takes_expert_tiles(const RoutedExperts& routed) {
  const DeviceCode code = routed.pack.code;
  if (code == DeviceCode::f16 || code == DeviceCode::f32 || routed.input_variants == 2) return false;
  const int group = input_group(routed.pack.input);
  if (group > 0 && group % kSlice != 0) return false;
  return takes_matrix(code, routed.gate) && takes_matrix(code, routed.up) && takes_matrix(code, routed.down);
}

int launch_expert_tiles(const GemmArgs& args, bool gated, int tile_rows, int row_tiles, std::uint16_t* codes_out,
                        int stride, cudaStream_t stream) {
  constexpr int kFold = 2 * kSlice;
  const auto changes = [](int group) { return group > 0 && group % kFold != 0; };
  const bool scaled = args.pack.code != DeviceCode::e2m1 && args.pack.code != DeviceCode::bf16;
  const TiledGemmArgs tiled{
      .gemm = args,
      .reciprocals = {reciprocal(args.slots[0].group), reciprocal(args.slots[1].group)},
      .input_reciprocal = args.input_group > 0 ? reciprocal(args.input_group) : 0,
      .each_slice = changes(args.input_group) ||
                    (scaled && args.slots[0].group < args.slots[0].padded && changes(args.slots[0].group)) ||
                    (scaled && args.slots[1].group < args.slots[1].padded && changes(args.slots[1].group)),
      .codes_out = codes_out,
      .codes_out_stride = stride};
  switch (args.pack.code) {
    case DeviceCode::int4:
      return launch_tiles_of_int4(tiled, gated, tile_rows, row_tiles, stream);
    case DeviceCode::int8:
      return launch_tiles_of_int8(tiled, gated, tile_rows, row_tiles, stream);
    case DeviceCode::e2m1:
      return launch_tiles_of_e2m1(tiled, gated, tile_rows, row_tiles, stream);
    case DeviceCode::e4m3:
      return launch_tiles_of_e4m3(tiled, gated, tile_rows, row_tiles, stream);
    case DeviceCode::bf16:
      return launch_tiles_of_bf16(tiled, gated, tile_rows, row_tiles, stream);
    default:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace moracle::cuda
