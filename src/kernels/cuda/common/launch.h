// Steps of the passes, enqueued on a stream.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "kernels/args/experts.h"
#include "kernels/args/operations.h"

namespace moracle::cuda {

// Of the current device, times ten, as MORACLE_CUDA_ARCH lowers it; 0: there is none.
int capability();
// Kernels of sm90/ run on capability 9.0 alone; portable ones, with grids that start one after the other, on all
// others.
inline bool has_sm90() {
  return capability() == 90;
}
// Bytes of shared memory that a block of a portable kernel may have on any GPU: 99 KiB less what blocks have beside.
inline constexpr int kPortableShared = 98 * 1024;

// Of the current device: kernels that stay take a block of each.
inline cudaError_t count_multiprocessors(int& count) {
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  return error == cudaSuccess ? cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) : error;
}

struct GemmArgs;
void launch_gemm_int4(const GemmArgs& args, bool gated, int row_tiles, cudaStream_t stream);
void launch_gemm_int8(const GemmArgs& args, bool gated, int row_tiles, cudaStream_t stream);
void launch_gemm_e2m1(const GemmArgs& args, bool gated, int row_tiles, cudaStream_t stream);
void launch_gemm_e4m3(const GemmArgs& args, bool gated, int row_tiles, cudaStream_t stream);
void launch_gemm_bf16(const GemmArgs& args, bool gated, int row_tiles, cudaStream_t stream);
void launch_gemm_f16(const GemmArgs& args, bool gated, int row_tiles, cudaStream_t stream);
void launch_gemm_f32(const GemmArgs& args, bool gated, int row_tiles, cudaStream_t stream);
// Inputs of linears.
struct FormedInputs {
  bool formed = false;          // as codes and scales of the call; else they are formed within
  std::int64_t part_codes = 0;  // from part to part
  std::int32_t group = -1;      // columns that share a scale; 0: a row does, -1: there is none
  std::int32_t groups = 0;      // scales of a row
};
// Linears of few tokens. The bits of a token differ from those of the tiles.
bool are_few(const LinearArgs& linear);
// Linears of few rows, of any number of tokens: the same kernel, a token a block, with the same bits in any batch.
bool are_few_rows(const LinearArgs& linear);
void launch_few(const LinearArgs& linear, const FormedInputs& inputs, cudaStream_t stream);
// Where columns of formed inputs lie.
struct InputOrder {
  bool nibbles = false;    // of 8, the first four each before that four further: pairs of 4-bit codes
  bool fragments = false;  // of 64, as fragments of weights have them that lanes make of 16 neighbours
};
// Linears of several tokens, of codes that bf16 holds and scales of 64 columns or more.
inline constexpr int kMostRounded = 16;  // tokens whose inputs may be rounded within
bool can_round(const LinearArgs& linear);
// Inputs that are rounded to bf16, and no more.
struct RoundedInputs {
  const float* x;        // [rows, cols]
  std::uint16_t* codes;  // [rows, padded]
  std::int32_t rows;
  std::int32_t cols;
  std::int32_t padded;
  InputOrder order;
};
bool can_round(const RoundedInputs& inputs);
int launch_rounding(const RoundedInputs& inputs, cudaStream_t stream);
bool are_tiled(const LinearArgs& linear, const FormedInputs& inputs);
int launch_tiles(const LinearArgs& linear, const FormedInputs& inputs, cudaStream_t stream);
// Of these, those that warpgroup products take.
bool are_products(const LinearArgs& linear);
int launch_products(const LinearArgs& linear, const FormedInputs& inputs, cudaStream_t stream);

// The whole of each: what the table's functions enqueue. They return the runtime's error of the launches.
int launch(const ExpertsArgs& args, cudaStream_t stream);
int launch(const StreamedExpertsArgs& args, cudaStream_t stream);
int launch(const LinearArgs& args, cudaStream_t stream);
// Operations; their workspace is as DeviceOps tells.
#define MORACLE_OPERATION(name, Args) int launch(const Args& args, std::byte* workspace, cudaStream_t stream);
MORACLE_OPERATIONS(MORACLE_OPERATION)
#undef MORACLE_OPERATION

// Tokens of long sequences by products; others are left out. `work`: where DeltaWork lies in the workspace.
struct DeltaWork;
bool has_delta_chunks(const DeltaRuleArgs& args);
int launch_delta_chunks(const DeltaRuleArgs& args, const DeltaWork& work, std::byte* workspace, cudaStream_t stream);

// Blocks of a grid for `count` things, so many a block.
inline unsigned grid_of(std::int64_t count, std::int64_t each = 1) {
  return static_cast<unsigned>((count + each - 1) / each);
}

}  // namespace moracle::cuda
