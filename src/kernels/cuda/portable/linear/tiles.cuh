// y = x W^T of several tokens, for up to kMostFused matrices in one launch. Codes and inputs wait in shared memory, a
// few stages ahead; a warp decodes 16 weight rows at a time as `mma.sync` takes them. Codes are exact in bf16; sums of
// at most 128 columns are scaled and added in f32.
//
// The order in which `mma.sync` adds 64 columns, a slice, is free: a lane takes 16 neighbours of them, and of 4-bit
// codes column i beside column i + 4, in which order inputs are formed.
//
// Where tokens are few, warps share the columns of a stage, and on capability 9.0 the blocks of a cluster the stages:
// each leaves its sums in shared memory, and they are added in one order.
#pragma once

#include <cooperative_groups.h>

#include "kernels/cuda/common/arithmetic.h"
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/linear/matrices.cuh"
#include "kernels/cuda/common/linear/numbers.cuh"
#include "kernels/cuda/common/linear/scales.cuh"
#include "kernels/cuda/common/mma.cuh"

namespace moracle::cuda {

inline constexpr int kMostRanks = 8;

struct TileArgs {
  LinearMatrix matrices[kMostFused];
  std::int32_t count;
  std::int32_t tokens;
  std::int32_t padded;       // columns, of each
  std::int32_t stages;       // of all columns
  std::int32_t rank_stages;  // of a block of a cluster
  bool each_slice;           // scales change within a stage
  std::int32_t input_group;  // columns that share an input's scale; 0: a row does, -1: there is none
  std::int32_t input_groups;
  std::uint32_t input_reciprocal;
  const std::uint16_t* codes;  // [tokens, padded], or null
  const float* scales;         // [tokens, input_groups]
  const float* x;              // [tokens, cols], which blocks round where there are no codes
  std::int32_t cols;
};

// Where a plan runs: what shared memory a block has, and whether there are clusters.
enum class Reach : std::uint8_t { sm90, any };

// Warps [kSplits, kTokenWarps, kRowWarps] of kRowTiles x 16 weight rows and kTokenTiles x 8 tokens.
template <Reach kReach_, class Code_, int kRowTiles_, int kTokenTiles_, int kRowWarps_, int kTokenWarps_, int kSplits_,
          bool kRounds_>
struct TilePlan {
  static constexpr Reach kReach = kReach_;
  using Code = Code_;
  using Form = SliceForm<Code>;
  static constexpr bool kRounds = kRounds_;  // inputs, as they are loaded
  static constexpr int kRowTiles = kRowTiles_;
  static constexpr int kTokenTiles = kTokenTiles_;
  static constexpr int kRowWarps = kRowWarps_;
  static constexpr int kTokenWarps = kTokenWarps_;
  static constexpr int kSplits = kSplits_;
  static constexpr int kThreads = 32 * kRowWarps * kTokenWarps * kSplits;
  static constexpr int kRows = 16 * kRowTiles * kRowWarps;
  static constexpr int kTokens = 8 * kTokenTiles * kTokenWarps;
  static constexpr bool kNarrow =
      kReach == Reach::any ? kTokens > 64 || Form::kBits == 16 : Form::kBits == 16 && kTokens <= 64;
  static constexpr int kSlices = kNarrow ? 1 : 2;  // of a warp in a stage
  static constexpr int kStageSlices = kSlices * kSplits;
  static constexpr int kColumns = kSlice * kStageSlices;  // of a stage
  static constexpr int kInputBytes = kStageSlices * kTokens * kInputStride;
  static constexpr int kStageBytes = kInputBytes + kStageSlices * kRows * Form::kStride;
  static constexpr int kBlocks = kReach == Reach::sm90 && kRows <= 64 ? 2 : 1;  // of a multiprocessor
  // Of a stage, 8 inputs each, that a thread loads.
  static constexpr int kUnits = kRounds ? (kTokens * kColumns / 8 + kThreads - 1) / kThreads : 0;
  static constexpr int kFit = (kReach == Reach::sm90 ? 224 * 1024 / kBlocks : kPortableShared) / kStageBytes;
  static constexpr int kStages = kFit < 4 ? kFit : 4;
  static_assert(kStages >= 2);
  static constexpr bool kShares = kSplits > 1 || kTokens <= 64;  // its sums with warps or blocks
  static constexpr int kSumStride = kRows + 4;                   // floats
  static constexpr int kSumBytes = kShares ? kSplits * kTokens * kSumStride * 4 : 0;
  static constexpr int kShared = kStages * kStageBytes > kSumBytes ? kStages* kStageBytes : kSumBytes;
};

// What scales the sums of some columns of a lane's rows.
template <int kRowTiles>
struct RowTerms {
  std::uint32_t scales[kRowTiles][2];
  std::uint32_t zeros[kRowTiles][2];
};

template <class Code, class Plan>
class TileBlock {
 public:
  __device__ TileBlock(const TileArgs& args, const LinearMatrix& of, std::uint8_t* memory)
      : args_(args),
        of_(of),
        memory_(memory),
        first_row_((static_cast<int>(blockIdx.y) - of.first_block) * Plan::kRows),
        first_token_(static_cast<int>(blockIdx.z) * Plan::kTokens),
        begin_(static_cast<int>(blockIdx.x) * args.rank_stages),
        end_(min(begin_ + args.rank_stages, args.stages)),
        global_(__ldg(reinterpret_cast<const float*>(of.weights + of.matrix.global_scale))) {}

  __device__ void run() {
#pragma unroll
    for (int ahead = 0; ahead + 1 < Plan::kStages; ++ahead) copy_weights(begin_ + ahead);
    Terms terms = fetch_terms(column_of(begin_, 0));
    wait_for_last_grid();
    Inputs inputs[Plan::kStages - 1];
#pragma unroll
    for (int ahead = 0; ahead + 1 < Plan::kStages; ++ahead) {
      inputs[ahead].load(*this, begin_ + ahead);
      commit_copies();
    }
#pragma unroll
    for (int ahead = 0; ahead + 1 < Plan::kStages; ++ahead) inputs[ahead].store(*this, begin_ + ahead);
    for (int stage = begin_; stage < end_; ++stage) {
      wait_copies<Plan::kStages - 2>();
      __syncthreads();
      const int next = stage + Plan::kStages - 1;
      if (next < end_) {
        copy_weights(next);
        inputs[0].load(*this, next);
      }
      commit_copies();
      multiply_stage(stage, terms);
      if (next < end_) inputs[0].store(*this, next);
    }
    if (Plan::kShares || gridDim.x > 1) {
      share();
    } else {
      store_own();
    }
  }

 private:
  using Form = SliceForm<Code>;
  using Terms = RowTerms<Plan::kRowTiles>;

  [[nodiscard]] static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  [[nodiscard]] static __device__ int row_warp() { return static_cast<int>(threadIdx.x / 32 % Plan::kRowWarps); }
  [[nodiscard]] static __device__ int token_warp() {
    return static_cast<int>(threadIdx.x / 32 / Plan::kRowWarps % Plan::kTokenWarps);
  }
  [[nodiscard]] static __device__ int split() {
    return static_cast<int>(threadIdx.x / 32 / (Plan::kRowWarps * Plan::kTokenWarps));
  }
  // First of the columns that a warp takes.
  [[nodiscard]] static __device__ int column_of(int stage, int slice) {
    return stage * Plan::kColumns + (split() * Plan::kSlices + slice) * kSlice;
  }
  [[nodiscard]] __device__ std::uint8_t* inputs(int stage) const {
    return memory_ + static_cast<unsigned>(stage) % Plan::kStages * Plan::kStageBytes;
  }
  [[nodiscard]] __device__ std::uint8_t* weights(int stage) const { return inputs(stage) + Plan::kInputBytes; }

  // A thread copies the same 16 bytes of rows that lie kStep apart.
  template <int kRowChunks, int kRows>
  struct Share {
    static constexpr unsigned kChunks = kRowChunks / Plan::kStageSlices;  // of a slice
    static constexpr unsigned kStep = Plan::kThreads / kRowChunks;
    static constexpr int kCopies = (kRows * kRowChunks + Plan::kThreads - 1) / Plan::kThreads;
    static_assert(Plan::kThreads % kRowChunks == 0 && (kRows % kStep == 0 || kRows < kStep));
    unsigned row = threadIdx.x / kRowChunks;  // the first
    unsigned chunk = threadIdx.x % kRowChunks;
    unsigned slice = chunk / kChunks;
    [[nodiscard]] __device__ bool any() const { return kRows % kStep == 0 || row < kRows; }
  };
  using WeightShare = Share<Plan::kStageSlices * Form::kBytes / 16, Plan::kRows>;
  using InputShare = Share<Plan::kStageSlices * kSlice * 2 / 16, Plan::kTokens>;

  __device__ __forceinline__ void copy_weights(int stage) const {
    const WeightShare share;
    if (!share.any()) return;
    const MatrixArgs& matrix = of_.matrix;
    constexpr unsigned kStageBytes = Plan::kColumns * Form::kBits / 8;
    const unsigned row_bytes = static_cast<unsigned>(matrix.padded) * Form::kBits / 8;
    const bool inside = stage < end_ && stage * Plan::kColumns + static_cast<int>(share.slice) * kSlice < matrix.padded;
    const std::uint8_t* from = of_.weights + matrix.codes +
                               static_cast<std::int64_t>(first_row_ + static_cast<int>(share.row)) * row_bytes +
                               static_cast<unsigned>(stage) * kStageBytes + share.chunk * 16;
    std::uint8_t* to = weights(stage) + (share.slice * Plan::kRows + share.row) * Form::kStride +
                       share.chunk % WeightShare::kChunks * 16;
    int left = matrix.rows - first_row_ - static_cast<int>(share.row);
#pragma unroll
    for (int i = 0; i < WeightShare::kCopies; ++i) {
      const bool any = inside && left > 0;
      copy_async(to, any ? from : of_.weights, any);
      from += WeightShare::kStep * row_bytes;
      to += WeightShare::kStep * Form::kStride;
      left -= static_cast<int>(WeightShare::kStep);
    }
  }

  __device__ __forceinline__ void copy_inputs(int stage) const {
    const InputShare share;
    if (!share.any()) return;
    const bool inside = stage < end_ && stage * Plan::kColumns + static_cast<int>(share.slice) * kSlice < args_.padded;
    const std::uint16_t* from = args_.codes +
                                static_cast<std::int64_t>(first_token_ + static_cast<int>(share.row)) * args_.padded +
                                stage * Plan::kColumns + share.chunk * 8;
    std::uint8_t* to = inputs(stage) + (share.slice * Plan::kTokens + share.row) * kInputStride +
                       share.chunk % InputShare::kChunks * 16;
    int left = args_.tokens - first_token_ - static_cast<int>(share.row);
    const unsigned step = InputShare::kStep * static_cast<unsigned>(args_.padded);
#pragma unroll
    for (int i = 0; i < InputShare::kCopies; ++i) {
      const bool any = inside && left > 0;
      copy_async(to, any ? from : args_.codes, any);
      from += step;
      to += InputShare::kStep * kInputStride;
      left -= static_cast<int>(InputShare::kStep);
    }
  }

  // Inputs of a stage: copied, or rounded between load and store.
  struct Inputs {
    float4 units[Plan::kUnits == 0 ? 1 : Plan::kUnits][2];

    static __device__ __forceinline__ int unit_of(int i) { return static_cast<int>(threadIdx.x) + i * Plan::kThreads; }
    __device__ __forceinline__ void load(const TileBlock& block, int stage) {
      if constexpr (!Plan::kRounds) return block.copy_inputs(stage);
#pragma unroll
      for (int i = 0; i < Plan::kUnits; ++i) {
        const int own = unit_of(i) / (Plan::kColumns / 8);
        const int token = block.first_token_ + own;
        const int column = stage * Plan::kColumns + unit_of(i) % (Plan::kColumns / 8) * 8;
        units[i][0] = units[i][1] = {};
        if (own >= Plan::kTokens || token >= block.args_.tokens) continue;
        if (column >= block.args_.cols || stage >= block.end_) continue;
        const auto* const from = reinterpret_cast<const float4*>(
            block.args_.x + static_cast<std::int64_t>(token) * block.args_.cols + column);
        units[i][0] = from[0];
        units[i][1] = from[1];
      }
    }
    __device__ __forceinline__ void store(const TileBlock& block, int stage) const {
      if constexpr (!Plan::kRounds) return;
      std::uint8_t* const to = block.inputs(stage);
#pragma unroll
      for (int i = 0; i < Plan::kUnits; ++i) {
        const int token = unit_of(i) / (Plan::kColumns / 8);
        if (token >= Plan::kTokens) continue;
        const int unit = unit_of(i) % (Plan::kColumns / 8);
        const float4& a = units[i][0];
        const float4& b = units[i][1];
        *reinterpret_cast<uint4*>(to + (unit / 8 * Plan::kTokens + token) * kInputStride + unit % 8 * 16) =
            Form::kBits == 4
                ? uint4{pack_bf16(a.x, b.x), pack_bf16(a.y, b.y), pack_bf16(a.z, b.z), pack_bf16(a.w, b.w)}
                : uint4{pack_bf16(a.x, a.y), pack_bf16(a.z, a.w), pack_bf16(b.x, b.y), pack_bf16(b.z, b.w)};
      }
    }
  };

  // Behind the last columns those of the last ones, which scale zeros.
  [[nodiscard]] __device__ Terms fetch_terms(int column) const {
    Terms terms{};
    if constexpr (Form::kScaled) {
      const MatrixArgs& matrix = of_.matrix;
      const auto group = __umulhi(static_cast<unsigned>(min(column, args_.padded - 1)), of_.reciprocal);
#pragma unroll
      for (int m = 0; m < Plan::kRowTiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const std::int64_t row = min(own_row(m, half), matrix.rows - 1);
          const std::int64_t at = row * matrix.groups + group;
          if (matrix.scales != kAbsent) terms.scales[m][half] = fetch_scale(of_.scale, of_.weights + matrix.scales, at);
          terms.zeros[m][half] = neutral_zero(Code::kCode);
          if (neutral_zero(Code::kCode) != 0 && matrix.zeros != kAbsent)
            terms.zeros[m][half] = __ldg(of_.weights + matrix.zeros + at);
        }
      }
    }
    return terms;
  }
  [[nodiscard]] __device__ int own_row(int m, int half) const {
    return first_row_ + (row_warp() * Plan::kRowTiles + m) * 16 + half * 8 + lane() / 4;
  }

  __device__ __forceinline__ void multiply_stage(int stage, Terms& terms) {
#pragma unroll
    for (int s = 0; s < Plan::kSlices; ++s) {
      const bool last = s + 1 == Plan::kSlices;
      multiply_slice(stage, split() * Plan::kSlices + s, terms);
      if (!last && !args_.each_slice) continue;
      const Terms next = fetch_terms(last ? column_of(stage + 1, 0) : column_of(stage, s + 1));
      fold(column_of(stage, s), terms);
      terms = next;
    }
  }

  __device__ __forceinline__ void multiply_slice(int stage, int slice, const Terms& terms) {
    const int part = lane() % 4;
    std::uint32_t words[Plan::kRowTiles][2][Form::kWords];
    const std::uint8_t* const rows = weights(stage) + slice * Plan::kRows * Form::kStride + part * Form::kWords * 4;
#pragma unroll
    for (int m = 0; m < Plan::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        load_words(words[m][half],
                   rows + ((row_warp() * Plan::kRowTiles + m) * 16 + half * 8 + lane() / 4) * Form::kStride);
    }
    const std::uint8_t* const tokens =
        inputs(stage) + (slice * Plan::kTokens + token_warp() * Plan::kTokenTiles * 8 + lane() / 4) * kInputStride +
        part * 32;
    multiply_tokens(parts_, tokens, [&](int m, int half, int pair) {
      return number_pair<Code>(words[m][half], pair, terms.zeros[m][half]);
    });
  }

  // Scales what the columns that end with the slice at `column` have summed.
  __device__ __forceinline__ void fold(int column, const Terms& terms) {
    float scales[Plan::kRowTiles][2];
#pragma unroll
    for (int m = 0; m < Plan::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        scales[m][half] = global_;
        if (Form::kScaled && of_.matrix.scales != kAbsent)
          scales[m][half] *= fetched_scale(of_.scale, terms.scales[m][half]);
      }
    }
    if (args_.input_group < 0) {
      add_parts(scales, [](int, int) { return 1.0F; });
    } else {
      const auto at = static_cast<unsigned>(min(column, args_.padded - 1));
      const unsigned group = args_.input_group == 0 ? 0U : __umulhi(at, args_.input_reciprocal);
      const float* const first = args_.scales + group;
      add_parts(scales,
                [&](int n, int i) { return first[min(own_token(n, i), args_.tokens - 1) * args_.input_groups]; });
    }
  }
  template <class Input>
  __device__ __forceinline__ void add_parts(const float (&scales)[Plan::kRowTiles][2], const Input& input_of) {
#pragma unroll
    for (int n = 0; n < Plan::kTokenTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float input = input_of(n, i);
#pragma unroll
        for (int m = 0; m < Plan::kRowTiles; ++m) {
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
  [[nodiscard]] __device__ int own_token(int n, int i) const {
    return first_token_ + (token_warp() * Plan::kTokenTiles + n) * 8 + lane() % 4 * 2 + i;
  }

  [[nodiscard]] __device__ float bias_of(int row) const {
    return of_.matrix.bias == kAbsent ? 0.0F : reinterpret_cast<const float*>(of_.weights + of_.matrix.bias)[row];
  }

  __device__ void store_own() const {
#pragma unroll
    for (int m = 0; m < Plan::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = own_row(m, half);
        if (row >= of_.matrix.rows) continue;
        const float bias = bias_of(row);
#pragma unroll
        for (int n = 0; n < Plan::kTokenTiles; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int token = own_token(n, i);
            if (token < args_.tokens)
              of_.out[static_cast<std::int64_t>(token) * of_.matrix.rows + row] = sums_[m][n][2 * half + i] + bias;
          }
        }
      }
    }
  }

  // Each block adds its share of the rows, ranks in their order, of each the splits.
  __device__ void share() {
    if constexpr (Plan::kShares) {
      wait_copies<0>();
      __syncthreads();
      auto* const own = reinterpret_cast<float*>(memory_);
#pragma unroll
      for (int m = 0; m < Plan::kRowTiles; ++m) {
#pragma unroll
        for (int n = 0; n < Plan::kTokenTiles; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int token = split() * Plan::kTokens + own_token(n, i % 2) - first_token_;
            own[token * Plan::kSumStride + own_row(m, i / 2) - first_row_] = sums_[m][n][i];
          }
        }
      }
      sync_ranks();
      const int ranks = Plan::kReach == Reach::sm90 ? static_cast<int>(gridDim.x) : 1;
      const int rows = Plan::kRows / ranks;
      for (int i = static_cast<int>(threadIdx.x); i < Plan::kTokens * rows; i += Plan::kThreads) {
        const int token = i / rows;
        const int row = static_cast<int>(blockIdx.x) * rows + i % rows;
        if (first_token_ + token >= args_.tokens || first_row_ + row >= of_.matrix.rows) continue;
        constexpr int kRanks = Plan::kReach == Reach::sm90 ? kMostRanks : 1;
        float found[kRanks][Plan::kSplits];
#pragma unroll
        for (int rank = 0; rank < kRanks; ++rank) {
          const float* const from = of_rank(own, min(rank, ranks - 1));
#pragma unroll
          for (int s = 0; s < Plan::kSplits; ++s)
            found[rank][s] = rank < ranks ? from[(s * Plan::kTokens + token) * Plan::kSumStride + row] : 0.0F;
        }
        float sum = 0.0F;
#pragma unroll
        for (const auto& splits : found) {
#pragma unroll
          for (const float part : splits) sum += part;
        }
        of_.out[static_cast<std::int64_t>(first_token_ + token) * of_.matrix.rows + first_row_ + row] =
            sum + bias_of(first_row_ + row);
      }
      sync_ranks();  // a block's sums stay until all have read them
    }
  }
  // The blocks that share columns: those of a cluster.
  static __device__ __forceinline__ void sync_ranks() {
#if __CUDA_ARCH__ >= 900
    if constexpr (Plan::kReach == Reach::sm90) return cooperative_groups::this_cluster().sync();
#endif
    __syncthreads();
  }
  static __device__ __forceinline__ const float* of_rank(float* own, int rank) {
#if __CUDA_ARCH__ >= 900
    if constexpr (Plan::kReach == Reach::sm90)
      return cooperative_groups::this_cluster().map_shared_rank(own, static_cast<unsigned>(rank));
#endif
    return own;
  }

  const TileArgs& args_;
  const LinearMatrix& of_;
  std::uint8_t* memory_;
  int first_row_;
  int first_token_;
  int begin_;
  int end_;
  float global_;
  float sums_[Plan::kRowTiles][Plan::kTokenTiles][4] = {};
  float parts_[Plan::kRowTiles][Plan::kTokenTiles][4] = {};
};

// Grid: ranks of a cluster, blocks of one matrix after the other, tiles of tokens.
template <class Code, class Plan>
__global__ void __launch_bounds__(Plan::kThreads, Plan::kBlocks) multiply_tiles(const __grid_constant__ TileArgs args) {
#if defined(__CUDA_ARCH__)
  // Each capability has code for the plans that it takes.
  if constexpr ((Plan::kReach == Reach::sm90) != (__CUDA_ARCH__ == 900)) return;
#endif
  extern __shared__ __align__(128) std::uint8_t tile_memory[];
  allow_next_grid();
  TileBlock<Code, Plan>(args, matrix_of_block(args.matrices, args.count, blockIdx.y), tile_memory).run();
}

template <class Code, class Plan>
cudaError_t launch_plan(const LinearArgs& linear, const FormedInputs& inputs, int multiprocessors,
                        cudaStream_t stream) {
  const MatrixArgs& first = linear.parts[0].matrix;
  TileArgs args{.matrices = {},
                .count = linear.count,
                .tokens = linear.tokens,
                .padded = first.padded,
                .stages = (first.padded + Plan::kColumns - 1) / Plan::kColumns,
                .rank_stages = 0,
                .each_slice = inputs.group > 0 && inputs.group % (Plan::kSlices * kSlice) != 0,
                .input_group = inputs.group,
                .input_groups = inputs.groups,
                .input_reciprocal = inputs.group > 0 ? reciprocal(inputs.group) : 0,
                .codes = linear.x_codes,
                .scales = linear.x_scales,
                .x = linear.x,
                .cols = first.cols};
  const unsigned blocks = list_matrices(linear, Plan::kRows, args.matrices);
  for (int part = 0; part < linear.count; ++part) {
    const MatrixArgs& matrix = linear.parts[part].matrix;
    if (matrix.group < matrix.padded && matrix.group % (Plan::kSlices * kSlice) != 0) args.each_slice = true;
  }
  const unsigned token_tiles = grid_of(linear.tokens, Plan::kTokens);
  int ranks = 1;
  if (Plan::kReach == Reach::sm90 && Plan::kShares) {
    // A cluster's sum costs more than a multiprocessor that has nothing to do.
    const int tiles = static_cast<int>(blocks * token_tiles);
    while (ranks < kMostRanks && 4 * tiles * ranks <= 3 * multiprocessors && args.stages >= 2 * ranks) ranks *= 2;
  }
  args.rank_stages = (args.stages + ranks - 1) / ranks;
  const auto kernel = multiply_tiles<Code, Plan>;
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kShared);
      error != cudaSuccess)
    return error;
  const auto cluster = static_cast<unsigned>(ranks);
  return launch_grid(kernel,
                     {.grid = dim3(cluster, blocks, token_tiles),
                      .threads = Plan::kThreads,
                      .shared = Plan::kShared,
                      .cluster = Plan::kReach == Reach::sm90 ? dim3(cluster) : dim3(0, 0, 0)},
                     stream, args);
}

// Without clusters warps share the columns, so that blocks have few rows and all multiprocessors some.
template <Reach kReach, class Code>
cudaError_t launch_tiles_within(const LinearArgs& linear, const FormedInputs& inputs, int multiprocessors,
                                cudaStream_t stream) {
  constexpr int kRowWarps = kReach == Reach::sm90 ? 4 : 1;
  constexpr int kSplits = kReach == Reach::sm90 ? 2 : 4;
  constexpr int kMostSplits = kReach == Reach::sm90 ? 2 : 8;  // of up to 8 tokens
  if (!inputs.formed) {
    if (linear.tokens > 8)
      return launch_plan<Code, TilePlan<kReach, Code, 1, 2, kRowWarps, 1, kSplits, true>>(linear, inputs,
                                                                                          multiprocessors, stream);
    return launch_plan<Code, TilePlan<kReach, Code, 1, 1, kRowWarps, 1, kMostSplits, true>>(linear, inputs,
                                                                                            multiprocessors, stream);
  }
  // Whatever the batch, columns are added in one order.
  if (linear.batch_invariant != 0 || linear.tokens > kMostRounded)
    return launch_plan<Code, TilePlan<kReach, Code, 2, 8, 4, 2, 1, false>>(linear, inputs, multiprocessors, stream);
  return launch_plan<Code, TilePlan<kReach, Code, 1, 2, kRowWarps, 1, kSplits, false>>(linear, inputs, multiprocessors,
                                                                                       stream);
}

template <class Code>
cudaError_t launch_tiles(const LinearArgs& linear, const FormedInputs& inputs, cudaStream_t stream) {
  int multiprocessors = 0;
  if (const cudaError_t error = count_multiprocessors(multiprocessors); error != cudaSuccess) return error;
  return has_sm90() ? launch_tiles_within<Reach::sm90, Code>(linear, inputs, multiprocessors, stream)
                    : launch_tiles_within<Reach::any, Code>(linear, inputs, multiprocessors, stream);
}

}  // namespace moracle::cuda
