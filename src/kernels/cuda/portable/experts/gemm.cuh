// One tile of y = x W^T for the rows of an expert or of a linear: weights become bf16 in shared memory, `mma.sync`
// multiplies, sums of at most 128 columns are scaled and added in f32.
//
// Codes are exact in bf16, so that nothing is rounded but f32 sums. Columns are added in one order whatever the batch.
#pragma once

#include <cuda_runtime.h>

#include "kernels/args/experts.h"
#include "kernels/cuda/common/arithmetic.h"

namespace moracle::cuda {

// What one GEMM multiplies and where its results go.
struct GemmArgs {
  PackArgs pack;
  MatrixArgs slots[2];  // gate and up; else one matrix twice
  GateArgs gate;
  const std::int32_t* tiles;    // count, then (expert, first pair) of each; null: a linear
  const std::int32_t* offsets;  // [experts + 1]
  const std::int32_t* pairs;    // where input rows are tokens: pair of each row; else null
  std::int32_t top_k;
  std::int32_t rows;  // of a linear
  const std::uint16_t* codes;
  const float* scales;
  std::int64_t plane_codes;  // from gate's form of the input to up's; 0: they share one
  std::int64_t plane_scales;
  std::int64_t part_codes;  // from part to part
  std::int32_t input_group;
  std::int32_t input_groups;
  float* out;
};

inline constexpr int kGemmThreads = 128;
inline constexpr int kSlotRows = 32;                 // weight rows of a slot, 8 for each warp
inline constexpr int kTileStride = kColumnStep + 8;  // in shared memory: no bank conflicts for ldmatrix
inline constexpr int kFoldColumns = 128;

struct GemmTile {
  std::uint16_t inputs[2][kPairTileRows][kTileStride];
  std::uint16_t weights[2 * kSlotRows][kTileStride];
  float weight_scales[2 * kSlotRows][4];
  float input_scales[2][kPairTileRows][4];
  std::int32_t input_rows[kPairTileRows];  // -1: none
};

__device__ __forceinline__ void load_matrix_x4(std::uint32_t (&to)[4], const std::uint16_t* from) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(from));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_matrix_x2(std::uint32_t (&to)[2], const std::uint16_t* from) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(from));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(to[0]), "=r"(to[1])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void multiply_add(float (&sum)[4], const std::uint32_t (&a)[4],
                                             const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Columns [first, first + 64) of the tile's input rows.
__device__ __forceinline__ void load_inputs(GemmTile& tile, const GemmArgs& args, int first, int part) {
  const std::int64_t stride = args.slots[0].padded;
  const int planes = args.plane_codes != 0 ? 2 : 1;
  for (int i = static_cast<int>(threadIdx.x); i < planes * kPairTileRows * 8; i += kGemmThreads) {
    const int plane = i / (kPairTileRows * 8);
    const int row = i / 8 % kPairTileRows;
    const int column = i % 8 * 8;
    uint4 values = make_uint4(0, 0, 0, 0);
    if (tile.input_rows[row] >= 0) {
      values = *reinterpret_cast<const uint4*>(args.codes + plane * args.plane_codes + part * args.part_codes +
                                               tile.input_rows[row] * stride + first + column);
    }
    *reinterpret_cast<uint4*>(&tile.inputs[plane][row][column]) = values;
  }
}

// What one thread holds of the same columns of weights: half of a row.
template <class Code>
struct HeldWeights {
  static constexpr int kBits = bits_of(Code::kCode);
  std::uint32_t words[kBits];  // 32 columns
  int zeros[2];                // of 16 columns each
  bool present;                // the matrix has the row
};

// Two threads a row. What is fetched is first needed a step later, so that memory works while tensor cores do.
template <class Code, bool kGated>
__device__ __forceinline__ void fetch_weights(HeldWeights<Code>& held, const GemmArgs& args, const std::uint8_t* expert,
                                              int first_row, int first) {
  constexpr int kBits = HeldWeights<Code>::kBits;
  const int line = static_cast<int>(threadIdx.x) / 2;
  const int half = static_cast<int>(threadIdx.x) % 2 * 32;
  const MatrixArgs& matrix = args.slots[line / kSlotRows];
  const int row = first_row + (kGated ? line % kSlotRows : line);
  held.present = row < matrix.rows;
  if (!held.present) return;
  const std::uint8_t* const from =
      expert + matrix.codes + (static_cast<std::int64_t>(row) * matrix.padded + first + half) * kBits / 8;
#pragma unroll
  for (int i = 0; i < kBits / 4; ++i) {
    const uint4 four = __ldg(reinterpret_cast<const uint4*>(from) + i);
    held.words[4 * i] = four.x;
    held.words[4 * i + 1] = four.y;
    held.words[4 * i + 2] = four.z;
    held.words[4 * i + 3] = four.w;
  }
  held.zeros[0] = neutral_zero(Code::kCode);
  held.zeros[1] = held.zeros[0];
  if (matrix.zeros != kAbsent) {
    const std::uint8_t* const stored = expert + matrix.zeros + static_cast<std::int64_t>(row) * matrix.groups;
    held.zeros[0] = stored[(first + half) / matrix.group];
    held.zeros[1] = stored[(first + half + 16) / matrix.group];
  }
}

template <class Code>
__device__ __forceinline__ void store_weights(GemmTile& tile, const HeldWeights<Code>& held, int part) {
  const int line = static_cast<int>(threadIdx.x) / 2;
  const int half = static_cast<int>(threadIdx.x) % 2 * 32;
  uint4* const to = reinterpret_cast<uint4*>(&tile.weights[line][half]);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    std::uint32_t pairs[4] = {};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (!held.present) continue;
      const int at = 8 * i + 2 * j;
      const std::uint32_t low = Code::decode(held.words, at, held.zeros[i / 2], part);
      const std::uint32_t high = Code::decode(held.words, at + 1, held.zeros[i / 2], part);
      pairs[j] = low | high << 16U;
    }
    to[i] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  }
}

// Scales of these columns, of up to four groups.
template <bool kGated>
__device__ __forceinline__ void load_scales(GemmTile& tile, const GemmArgs& args, const std::uint8_t* expert,
                                            int first_row, int first) {
  const int group = args.slots[0].group;
  const int groups = group < kColumnStep ? kColumnStep / group : 1;
  for (int i = static_cast<int>(threadIdx.x); i < 2 * kSlotRows * groups; i += kGemmThreads) {
    const int line = i / groups;
    const MatrixArgs& matrix = args.slots[line / kSlotRows];
    const int row = first_row + (kGated ? line % kSlotRows : line);
    float scale = 0.0F;
    if (row < matrix.rows) {
      scale = *reinterpret_cast<const float*>(expert + matrix.global_scale);
      if (matrix.scales != kAbsent) {
        const std::int64_t at = static_cast<std::int64_t>(row) * matrix.groups + first / group + i % groups;
        scale *= decode_scale(args.pack.scale, expert + matrix.scales, at);
      }
    }
    tile.weight_scales[line][i % groups] = scale;
  }
  const int width = args.input_group;  // 0: a row has one scale, -1: none
  const int shares = width > 0 && width < kColumnStep ? kColumnStep / width : 1;
  const int planes = args.plane_codes != 0 ? 2 : 1;
  for (int i = static_cast<int>(threadIdx.x); i < planes * kPairTileRows * shares; i += kGemmThreads) {
    const int plane = i / (kPairTileRows * shares);
    const int row = i / shares % kPairTileRows;
    float scale = 1.0F;
    if (width >= 0 && tile.input_rows[row] >= 0) {
      const int share = width > 0 ? first / width + i % shares : 0;
      scale = args.scales[plane * args.plane_scales +
                          static_cast<std::int64_t>(tile.input_rows[row]) * args.input_groups + share];
    }
    tile.input_scales[plane][row][i % shares] = scale;
  }
}

// Grid: tiles of weight rows, then tiles of input rows.
template <class Code, bool kGated>
__global__ void __launch_bounds__(kGemmThreads, 2) gemm(const __grid_constant__ GemmArgs args) {
  __shared__ GemmTile tile;
  int expert_index = 0;
  int first_pair = static_cast<int>(blockIdx.y) * kPairTileRows;
  int end = args.rows;
  if (args.tiles != nullptr) {
    if (static_cast<int>(blockIdx.y) >= args.tiles[0]) return;
    expert_index = args.tiles[1 + 2 * blockIdx.y];
    first_pair = args.tiles[2 + 2 * blockIdx.y];
    end = args.offsets[expert_index + 1];
  }
  const int rows = min(kPairTileRows, end - first_pair);
  for (int row = static_cast<int>(threadIdx.x); row < kPairTileRows; row += kGemmThreads) {
    const int pair = first_pair + row;
    tile.input_rows[row] = row >= rows ? -1 : args.pairs != nullptr ? args.pairs[pair] / args.top_k : pair;
  }
  const std::uint8_t* const expert = args.pack.weights + expert_index * args.pack.expert_bytes;
  const int first_row = static_cast<int>(blockIdx.x) * (kGated ? kSlotRows : 2 * kSlotRows);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int blocks = (rows + 15) / 16;
  const int up_plane = args.plane_codes != 0 ? 1 : 0;

  const int padded = args.slots[0].padded;
  const int group = args.slots[0].group;
  const int width = args.input_group > 0 ? args.input_group : padded;
  const int fold_steps = min(kFoldColumns, min(group, width)) / 16;

  float sums[kPairTileRows / 16][2][4] = {};
  float part_sums[kPairTileRows / 16][2][4] = {};
  constexpr int kPasses = Code::kParts == 1 ? 1 : kSplitPasses;
#pragma unroll 1
  for (int pass = 0; pass < kPasses; ++pass) {
    const int parts = kPasses == 1 ? 0 : split_pass(pass);
    int steps = 0;
    HeldWeights<Code> held;
    fetch_weights<Code, kGated>(held, args, expert, first_row, 0);
#pragma unroll 1
    for (int first = 0; first < padded; first += kColumnStep) {
      __syncthreads();
      load_inputs(tile, args, first, parts & 15);
      store_weights(tile, held, parts >> 4);
      load_scales<kGated>(tile, args, expert, first_row, first);
      __syncthreads();
      if (first + kColumnStep < padded) {
        fetch_weights<Code, kGated>(held, args, expert, first_row, first + kColumnStep);
      }
#pragma unroll
      for (int step = 0; step < kColumnStep / 16; ++step) {
        std::uint32_t b[2][2];
#pragma unroll
        for (int slot = 0; slot < 2; ++slot) {
          load_matrix_x2(b[slot], &tile.weights[slot * kSlotRows + warp * 8 + lane % 8][step * 16 + lane / 8 % 2 * 8]);
        }
#pragma unroll
        for (int block = 0; block < kPairTileRows / 16; ++block) {
          if (block >= blocks) continue;
          std::uint32_t a[4];
          load_matrix_x4(a, &tile.inputs[0][block * 16 + lane % 16][step * 16 + lane / 16 * 8]);
          multiply_add(part_sums[block][0], a, b[0]);
          if (up_plane != 0) load_matrix_x4(a, &tile.inputs[1][block * 16 + lane % 16][step * 16 + lane / 16 * 8]);
          multiply_add(part_sums[block][1], a, b[1]);
        }
        ++steps;
        const bool last = first + kColumnStep >= padded && step + 1 == kColumnStep / 16;
        if (steps < fold_steps && !last) continue;
        steps = 0;
        const int weight_group = group < kColumnStep ? step * 16 / group : 0;
        const int input_group = width < kColumnStep ? step * 16 / width : 0;
#pragma unroll
        for (int slot = 0; slot < 2; ++slot) {
          const int line = slot * kSlotRows + warp * 8 + lane % 4 * 2;
          const float weight[2] = {tile.weight_scales[line][weight_group], tile.weight_scales[line + 1][weight_group]};
          const int plane = slot == 0 ? 0 : up_plane;
#pragma unroll
          for (int block = 0; block < kPairTileRows / 16; ++block) {
            const int row = block * 16 + lane / 4;
            const float input[2] = {tile.input_scales[plane][row][input_group],
                                    tile.input_scales[plane][row + 8][input_group]};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              sums[block][slot][i] += part_sums[block][slot][i] * (weight[i % 2] * input[i / 2]);
              part_sums[block][slot][i] = 0.0F;
            }
          }
        }
      }
    }
  }

  const int columns = args.slots[0].rows;
#pragma unroll
  for (int block = 0; block < kPairTileRows / 16; ++block) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = block * 16 + lane / 4 + i / 2 * 8;
      if (row >= rows) continue;
      float* const to = args.out + static_cast<std::int64_t>(first_pair + row) * columns;
#pragma unroll
      for (int slot = 0; slot < (kGated ? 1 : 2); ++slot) {
        const int column = first_row + slot * kSlotRows + warp * 8 + lane % 4 * 2 + i % 2;
        if (column >= columns) continue;
        float value = sums[block][slot][i];
        if (args.slots[0].bias != kAbsent) {
          value += reinterpret_cast<const float*>(expert + args.slots[0].bias)[column];
        }
        if constexpr (kGated) {
          float up = sums[block][1][i];
          if (args.slots[1].bias != kAbsent) up += reinterpret_cast<const float*>(expert + args.slots[1].bias)[column];
          value = gated(args.gate, value, up);
        }
        to[column] = value;
      }
    }
  }
}

// Enqueues one GEMM over `row_tiles` tiles of input rows.
template <class Code>
void launch_gemm(const GemmArgs& args, bool gated, int row_tiles, cudaStream_t stream) {
  const int width = gated ? kSlotRows : 2 * kSlotRows;
  const dim3 grid(static_cast<unsigned>((args.slots[0].rows + width - 1) / width), static_cast<unsigned>(row_tiles));
  if (gated) {
    gemm<Code, true><<<grid, kGemmThreads, 0, stream>>>(args);
  } else {
    gemm<Code, false><<<grid, kGemmThreads, 0, stream>>>(args);
  }
}

}  // namespace moracle::cuda
