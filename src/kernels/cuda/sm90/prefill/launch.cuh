// Launches of grouped products, and their arguments.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "kernels/cuda/common/tile_layout.h"
#include "kernels/cuda/sm90/prefill/list.cuh"

namespace moracle::cuda {

// What becomes of sums. Intermediate rows that are quantized next stay in f32, or become codes under a stored scale.
enum class Epilogue { hidden, whole_hidden, coded_hidden, out };

// One of the two matrices for all experts.
struct GroupedArgs {
  CUtensorMap codes;            // of all experts' tiles: [experts, row_tiles, words of 8 bytes]
  const std::uint8_t* weights;  // first tile of 16 rows of expert 0
  std::uint64_t expert_bytes;
  std::uint64_t tile_bytes;
  std::uint64_t record_bytes;
  std::int32_t record_columns;
  std::int32_t columns;       // a multiple of 64
  std::int32_t row_tiles;     // of 16 weight rows
  const void* inputs;         // [rows, columns] in bf16, or bytes, permuted
  const std::int32_t* pairs;  // null: a row's inputs are its own; else those of token pairs[row] / top_k
  std::int32_t top_k;
  const float* scales;  // of inputs: one a row, of E4M3 in blocks [rows, columns / 128]; null: they are 1
  const RowTile* list;
  const std::int32_t* listed;
  std::uint64_t input_scale;  // from `weights`, what `scales` would have for all rows of expert 0; or kAbsent
  std::uint64_t code_scale;   // from `weights`, of coded_hidden
  // [rows, out_columns]: bf16, of intermediate rows permuted; f32 of whole_hidden; permuted bytes of coded_hidden.
  void* out;
  std::int32_t out_columns;
  std::int32_t most_rows;  // of a tile
  Epilogue epilogue;
  GateArgs gate;  // a limit of none is infinite
};

// The whole pass of a call of any size over a pack in records.
int launch_grouped(const StreamedExpertsArgs& args, cudaStream_t stream);

// One product for a kind of weights. Files of their own define the instances (grouped.cu.in).
template <RecordKind kKind, Operand kOperand>
int launch_grouped_as(const GroupedArgs& args, int blocks, cudaStream_t stream);

}  // namespace moracle::cuda
