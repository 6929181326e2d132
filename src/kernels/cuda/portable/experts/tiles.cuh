// One tile of y = x W^T for rows of an expert: codes and inputs are copied to shared memory a few stages ahead, and a
// warp decodes 16 weight rows at a time as `mma.sync` takes them. Of gate and up a warp has the same rows, so that a
// thread has both of each number that it activates.
//
// Columns are multiplied 64 at a time, a slice, of which a lane takes 16 neighbours (common/linear/numbers.cuh). Sums
// of 128 columns, or of 64 where scales change, are scaled and added in f32, in the order of columns for any batch.
// E2M1 codes are scaled as they are decoded: E8M0 and E4M3 scales leave them exact in bf16.
#pragma once

#include <cuda_runtime.h>

#include "kernels/args/experts.h"
#include "kernels/cuda/common/arithmetic.h"
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/common/linear/numbers.cuh"
#include "kernels/cuda/common/linear/order.h"
#include "kernels/cuda/common/linear/scales.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/portable/experts/gemm.cuh"

namespace moracle::cuda {

// A product as gemm.cuh has it, and what tiles need beside.
struct TiledGemmArgs {
  GemmArgs gemm;
  std::uint32_t reciprocals[2];    // of columns that share a weight's scale, by slot
  std::uint32_t input_reciprocal;  // of those that share an input's
  bool each_slice;                 // scales change within 128 columns
  std::uint16_t* codes_out;        // gated rows in bf16 as the next product takes them, or null: f32 to gemm.out
  std::int32_t codes_out_stride;   // numbers of such a row
};
int launch_tiles_of_int4(const TiledGemmArgs& args, bool gated, int tile_rows, int row_tiles, cudaStream_t stream);
int launch_tiles_of_int8(const TiledGemmArgs& args, bool gated, int tile_rows, int row_tiles, cudaStream_t stream);
int launch_tiles_of_e2m1(const TiledGemmArgs& args, bool gated, int tile_rows, int row_tiles, cudaStream_t stream);
int launch_tiles_of_e4m3(const TiledGemmArgs& args, bool gated, int tile_rows, int row_tiles, cudaStream_t stream);
int launch_tiles_of_bf16(const TiledGemmArgs& args, bool gated, int tile_rows, int row_tiles, cudaStream_t stream);

// Warps [kSplits, kRowWarps], each of 32 weight rows and all tokens. Of few tokens warps share the columns of a stage.
template <class Code_, bool kGated_, int kTokens_>
struct ExpertTilePlan {
  using Code = Code_;
  using Form = SliceForm<Code>;
  static constexpr bool kGated = kGated_;
  static constexpr bool kFew = kTokens_ <= kFewTileRows;
  static constexpr bool kInline = Code::kCode == DeviceCode::e2m1;  // scales are of numbers
  static constexpr bool kZeros = Code::kCode == DeviceCode::int4;   // those of int8 would need more registers
  static constexpr int kTokens = kTokens_;
  static constexpr int kTokenTiles = kTokens / 8;
  static constexpr int kSplits = kFew ? 4 : 1;
  static constexpr int kRowWarps = kFew ? 1 : 4;
  static constexpr int kThreads = 32 * kSplits * kRowWarps;
  static constexpr int kRows = 32 * kRowWarps;                    // of weights, half of them gate's where gated
  static constexpr int kOwn = kFew || Form::kBits == 16 ? 1 : 2;  // slices of a warp in a stage
  static constexpr int kSlices = kOwn * kSplits;
  static constexpr int kColumns = kSlice * kSlices;
  static constexpr int kInputBytes = kSlices * kTokens * kInputStride;
  static constexpr int kStageBytes = kInputBytes + kSlices * kRows * Form::kStride;
  static constexpr int kBlocks = kFew ? 3 : 2;  // of a multiprocessor, where its shared memory has room
  static constexpr int kFit = (kFew ? kPortableShared / 2 : kPortableShared) / kStageBytes;
  static constexpr int kStages = kFit < 2 ? 2 : kFit > 4 ? 4 : kFit;
  static constexpr int kShared = kStages * kStageBytes;
  static constexpr int kTerms = kInline ? kOwn : 1;  // slices of a stage that have scales of their own
  static_assert(kShared <= kPortableShared && kSplits * kTokens * kRows * 4 <= kShared);
};

// What a tile multiplies of a token: its row, -1 where there is none, and that row's first code.
struct TileInput {
  std::int32_t row;
  std::uint32_t first;
};

template <class Plan>
class ExpertTile {
 public:
  using Code = typename Plan::Code;
  using Form = typename Plan::Form;

  // `expert`: its weights; `tokens`: of the tile, in shared memory.
  __device__ ExpertTile(const TiledGemmArgs& args, const std::uint8_t* expert, int first_row, const TileInput* tokens,
                        std::uint8_t* memory)
      : args_(args), expert_(expert), first_row_(first_row), tokens_(tokens), memory_(memory) {}

  __device__ void multiply() {
    const int stages = (padded() + Plan::kColumns - 1) / Plan::kColumns;
#pragma unroll
    for (int ahead = 0; ahead + 1 < Plan::kStages; ++ahead) {
      copy_stage(ahead);
      commit_copies();
    }
    Terms terms[Plan::kTerms];
    fetch_stage(terms, 0);
#pragma unroll 1
    for (int stage = 0; stage < stages; ++stage) {
      wait_copies<Plan::kStages - 2>();
      __syncthreads();
      copy_stage(stage + Plan::kStages - 1);
      commit_copies();
      Terms next[Plan::kTerms];
      fetch_stage(next, stage + 1);
#pragma unroll
      for (int s = 0; s < Plan::kOwn; ++s) {
        const int column = column_of(stage, s);
        if (column >= padded()) break;
        Terms& own = terms[Plan::kInline ? s : 0];
        multiply_slice(stage % Plan::kStages, split() * Plan::kOwn + s, own);
        const bool last = s + 1 == Plan::kOwn || column + kSlice >= padded();
        if (!args_.each_slice && !last) continue;
        fold(column, own);
        if (!Plan::kInline && !last) own = fetch_terms(column + kSlice);
      }
#pragma unroll
      for (int s = 0; s < Plan::kTerms; ++s) terms[s] = next[s];
    }
    wait_copies<0>();
  }

  // visit(token of the tile, row of the matrix, number, up's number where gated)
  template <class Visit>
  __device__ void each(const Visit& visit) {
    if constexpr (Plan::kSplits > 1) {
      each_shared(visit);
    } else {
#pragma unroll
      for (int m = 0; m < (Plan::kGated ? 1 : 2); ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = own_row(m, half);
          if (row >= matrix(m).rows) continue;
#pragma unroll
          for (int n = 0; n < Plan::kTokenTiles; ++n) {
#pragma unroll
            for (int i = 0; i < 2; ++i)
              visit(n * 8 + lane() % 4 * 2 + i, row, sums_[m][n][2 * half + i], sums_[1][n][2 * half + i]);
          }
        }
      }
    }
  }

 private:
  // What scales the columns of a slice, of a lane's rows.
  struct Terms {
    std::uint32_t scales[2][2];
    std::uint32_t zeros[2][2];
  };

  [[nodiscard]] static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  [[nodiscard]] static __device__ int row_warp() { return static_cast<int>(threadIdx.x) / 32 % Plan::kRowWarps; }
  [[nodiscard]] static __device__ int split() { return static_cast<int>(threadIdx.x) / 32 / Plan::kRowWarps; }
  [[nodiscard]] static __device__ int column_of(int stage, int slice) {
    return stage * Plan::kColumns + (split() * Plan::kOwn + slice) * kSlice;
  }
  [[nodiscard]] __device__ int padded() const { return args_.gemm.slots[0].padded; }
  [[nodiscard]] __device__ const MatrixArgs& matrix(int m) const { return args_.gemm.slots[Plan::kGated ? m : 0]; }
  // Row `local` of the tile's kRows: 16 of each matrix in turns where gated.
  [[nodiscard]] __device__ int row_of(int local) const {
    return first_row_ + (Plan::kGated ? local / 32 * 16 + local % 16 : local);
  }
  [[nodiscard]] static __device__ int own_local(int m, int half) {
    return row_warp() * 32 + m * 16 + half * 8 + lane() / 4;
  }
  [[nodiscard]] __device__ int own_row(int m, int half) const { return row_of(own_local(m, half)); }
  [[nodiscard]] __device__ std::uint8_t* inputs(int stage) const { return memory_ + stage * Plan::kStageBytes; }
  [[nodiscard]] __device__ std::uint8_t* weights(int stage) const { return inputs(stage) + Plan::kInputBytes; }

  // The sums of all splits, in their order, by way of shared memory.
  template <class Visit>
  __device__ void each_shared(const Visit& visit) {
    auto* const shared = reinterpret_cast<float*>(memory_);
    __syncthreads();
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < Plan::kTokenTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int token = split() * Plan::kTokens + n * 8 + lane() % 4 * 2 + i % 2;
          shared[token * Plan::kRows + own_local(m, i / 2)] = sums_[m][n][i];
        }
      }
    }
    __syncthreads();
    constexpr int kOut = Plan::kGated ? Plan::kRows / 2 : Plan::kRows;
    for (int at = static_cast<int>(threadIdx.x); at < Plan::kTokens * kOut; at += Plan::kThreads) {
      const int token = at / kOut;
      const int row = first_row_ + at % kOut;
      if (row >= matrix(0).rows) continue;
      const int local = Plan::kGated ? at % kOut / 16 * 32 + at % 16 : at % kOut;
      const auto sum_of = [&](int place) {
        float sum = 0.0F;
#pragma unroll
        for (int s = 0; s < Plan::kSplits; ++s) sum += shared[(s * Plan::kTokens + token) * Plan::kRows + place];
        return sum;
      };
      visit(token, row, sum_of(local), Plan::kGated ? sum_of(local + 16) : 0.0F);
    }
  }

  // A thread copies the same 16 bytes of rows, and of tokens, that lie a step apart.
  __device__ __forceinline__ void copy_stage(int stage) const {
    const int first = stage * Plan::kColumns;
    if (first >= padded()) return;
    const int place = stage % Plan::kStages;
    constexpr int kChunks = Form::kBytes / 16;  // of a row's slice
    constexpr int kRowChunks = kChunks * Plan::kSlices;
    constexpr int kStep = Plan::kThreads / kRowChunks;
    static_assert(Plan::kThreads % kRowChunks == 0 && Plan::kRows % kStep == 0);
    const int thread = static_cast<int>(threadIdx.x);
    {
      const int slice = thread % kRowChunks / kChunks;
      const int chunk = thread % kChunks;
      const int column = first + slice * kSlice;
      const std::uint8_t* const from = expert_ + column * Form::kBits / 8 + chunk * 16;
      std::uint8_t* const to =
          weights(place) + (slice * Plan::kRows + thread / kRowChunks) * Form::kStride + chunk * 16;
      const auto row_bytes = static_cast<unsigned>(padded()) * Form::kBits / 8;
#pragma unroll Plan::kFew ? 8 : 1
      for (int i = 0; i < Plan::kRows / kStep; ++i) {
        const int local = thread / kRowChunks + i * kStep;
        const MatrixArgs& of = matrix(local / 16 % 2);
        const int row = row_of(local);
        const bool any = row < of.rows && column < padded();
        copy_async(to + i * kStep * Form::kStride,
                   any ? from + of.codes + static_cast<unsigned>(row) * row_bytes : expert_, any);
      }
    }
    constexpr int kTokenChunks = 2 * kSlice / 16 * Plan::kSlices;
    constexpr int kTokenStep = Plan::kThreads / kTokenChunks;
    static_assert(Plan::kThreads % kTokenChunks == 0 && Plan::kTokens % kTokenStep == 0);
    const int slice = thread % kTokenChunks / 8;
    const int chunk = thread % 8;
    const int column = first + slice * kSlice;
    const std::uint16_t* const from = args_.gemm.codes + column + chunk * 8;
    std::uint8_t* const to =
        inputs(place) + (slice * Plan::kTokens + thread / kTokenChunks) * kInputStride + chunk * 16;
#pragma unroll Plan::kFew ? 4 : 1
    for (int i = 0; i < Plan::kTokens / kTokenStep; ++i) {
      const TileInput token = tokens_[thread / kTokenChunks + i * kTokenStep];
      const bool any = token.row >= 0 && column < padded();
      copy_async(to + i * kTokenStep * kInputStride, any ? from + token.first : args_.gemm.codes, any);
    }
  }

  __device__ __forceinline__ void fetch_stage(Terms (&terms)[Plan::kTerms], int stage) const {
#pragma unroll
    for (int s = 0; s < Plan::kTerms; ++s) terms[s] = fetch_terms(column_of(stage, s));
  }
  // Behind the last columns those of the last ones.
  [[nodiscard]] __device__ Terms fetch_terms(int column) const {
    Terms terms{};
    if constexpr (Form::kScaled) {
      const int own = min(column, padded() - kSlice) + (Plan::kInline ? lane() % 4 * 16 : 0);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const MatrixArgs& of = matrix(m);
        const auto group = __umulhi(static_cast<unsigned>(own), args_.reciprocals[Plan::kGated ? m : 0]);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const std::int64_t at = static_cast<std::int64_t>(min(own_row(m, half), of.rows - 1)) * of.groups + group;
          if (of.scales != kAbsent) terms.scales[m][half] = fetch_scale(args_.gemm.pack.scale, expert_ + of.scales, at);
          terms.zeros[m][half] = neutral_zero(Code::kCode);
          if (Plan::kZeros && of.zeros != kAbsent) terms.zeros[m][half] = __ldg(expert_ + of.zeros + at);
        }
      }
    }
    return terms;
  }
  // A scale in bf16, twice.
  [[nodiscard]] __device__ std::uint32_t number_scale(std::uint32_t bits) const {
    return exact_bf16(fetched_scale(args_.gemm.pack.scale, bits)) * 0x10001U;
  }

  __device__ __forceinline__ void multiply_slice(int stage, int slice, const Terms& terms) {
    const int part = lane() % 4;
    std::uint32_t words[2][2][Form::kWords];
    const std::uint8_t* const rows =
        weights(stage) + (slice * Plan::kRows + row_warp() * 32 + lane() / 4) * Form::kStride + part * Form::kWords * 4;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) load_words(words[m][half], rows + (m * 16 + half * 8) * Form::kStride);
    }
    std::uint32_t scales[2][2] = {};
    if constexpr (Plan::kInline) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) scales[m][half] = number_scale(terms.scales[m][half]);
      }
    }
    const std::uint8_t* const tokens = inputs(stage) + (slice * Plan::kTokens + lane() / 4) * kInputStride + part * 32;
    multiply_tokens(parts_, tokens, [&](int m, int half, int pair) {
      const std::uint32_t number =
          number_pair<Code>(words[m][half], pair, Plan::kZeros ? terms.zeros[m][half] : neutral_zero(Code::kCode));
      return Plan::kInline ? mul_bf16x2(number, scales[m][half]) : number;
    });
  }

  // Scales what the columns that end with the slice at `column` have summed.
  __device__ __forceinline__ void fold(int column, const Terms& terms) {
    float scales[2][2];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const MatrixArgs& of = matrix(m);
      const float global = __ldg(reinterpret_cast<const float*>(expert_ + of.global_scale));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        scales[m][half] = global;
        if (Form::kScaled && !Plan::kInline && of.scales != kAbsent)
          scales[m][half] *= fetched_scale(args_.gemm.pack.scale, terms.scales[m][half]);
      }
    }
    const int width = args_.gemm.input_group;
    const unsigned group = width > 0 ? __umulhi(static_cast<unsigned>(column), args_.input_reciprocal) : 0U;
#pragma unroll
    for (int n = 0; n < Plan::kTokenTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float input = 1.0F;
        if (width >= 0) {
          const int row = tokens_[n * 8 + lane() % 4 * 2 + i].row;
          input = row < 0 ? 0.0F : args_.gemm.scales[static_cast<std::int64_t>(row) * args_.gemm.input_groups + group];
        }
#pragma unroll
        for (int m = 0; m < 2; ++m) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float& part = parts_[m][n][2 * half + i];
            sums_[m][n][2 * half + i] += part * (scales[m][half] * input);
            part = 0.0F;
          }
        }
      }
    }
  }

  const TiledGemmArgs& args_;
  const std::uint8_t* expert_;
  int first_row_;
  const TileInput* tokens_;
  std::uint8_t* memory_;
  float sums_[2][Plan::kTokenTiles][4] = {};
  float parts_[2][Plan::kTokenTiles][4] = {};
};

// Grid: tiles of weight rows, then tiles of pairs.
template <class Plan>
__global__ void __launch_bounds__(Plan::kThreads, Plan::kBlocks)
    multiply_expert_tiles(const __grid_constant__ TiledGemmArgs args) {
  extern __shared__ __align__(128) std::uint8_t expert_memory[];
  __shared__ TileInput tokens[Plan::kTokens];
  const GemmArgs& gemm = args.gemm;
  if (static_cast<int>(blockIdx.y) >= gemm.tiles[0]) return;
  const int index = gemm.tiles[1 + 2 * blockIdx.y];
  const int first_pair = gemm.tiles[2 + 2 * blockIdx.y];
  const int rows = min(Plan::kTokens, gemm.offsets[index + 1] - first_pair);
  for (int row = static_cast<int>(threadIdx.x); row < Plan::kTokens; row += Plan::kThreads) {
    const int pair = first_pair + row;
    const int input = row >= rows ? -1 : gemm.pairs != nullptr ? gemm.pairs[pair] / gemm.top_k : pair;
    tokens[row] = {input, static_cast<std::uint32_t>(max(input, 0)) * static_cast<std::uint32_t>(gemm.slots[0].padded)};
  }
  __syncthreads();
  const std::uint8_t* const expert = gemm.pack.weights + index * gemm.pack.expert_bytes;
  const int first_row = static_cast<int>(blockIdx.x) * (Plan::kGated ? Plan::kRows / 2 : Plan::kRows);
  ExpertTile<Plan> tile(args, expert, first_row, tokens, expert_memory);
  tile.multiply();
  const auto bias_of = [&](const MatrixArgs& of, int row) {
    return of.bias == kAbsent ? 0.0F : reinterpret_cast<const float*>(expert + of.bias)[row];
  };
  tile.each([&](int token, int row, float sum, float up) {
    if (token >= rows) return;
    float value = sum + bias_of(gemm.slots[0], row);
    if constexpr (Plan::kGated) value = gated(gemm.gate, value, up + bias_of(gemm.slots[1], row));
    const std::int64_t to = first_pair + token;
    if (args.codes_out != nullptr) {
      args.codes_out[to * args.codes_out_stride + placed_column({.nibbles = Plan::Form::kBits == 4}, row)] =
          encode_bf16(value);
    } else {
      gemm.out[to * gemm.slots[0].rows + row] = value;
    }
  });
}

template <class Plan>
int launch_plan(const TiledGemmArgs& args, int row_tiles, cudaStream_t stream) {
  const auto kernel = multiply_expert_tiles<Plan>;
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kShared);
      error != cudaSuccess)
    return error;
  const int width = Plan::kGated ? Plan::kRows / 2 : Plan::kRows;
  const dim3 grid(grid_of(args.gemm.slots[0].rows, width), static_cast<unsigned>(row_tiles));
  kernel<<<grid, Plan::kThreads, Plan::kShared, stream>>>(args);
  return cudaGetLastError();
}

// `tile_rows`: 16 or 64 pairs of a tile.
template <class Code>
int launch_tiles_of(const TiledGemmArgs& args, bool gated, int tile_rows, int row_tiles, cudaStream_t stream) {
  if (tile_rows <= kFewTileRows) {
    return gated ? launch_plan<ExpertTilePlan<Code, true, kFewTileRows>>(args, row_tiles, stream)
                 : launch_plan<ExpertTilePlan<Code, false, kFewTileRows>>(args, row_tiles, stream);
  }
  return gated ? launch_plan<ExpertTilePlan<Code, true, kPairTileRows>>(args, row_tiles, stream)
               : launch_plan<ExpertTilePlan<Code, false, kPairTileRows>>(args, row_tiles, stream);
}

}  // namespace moracle::cuda
