// Stages of a linear's tiles in shared memory: what a tile is, how a producer fills stages, and how finished sums go
// out.
#pragma once

#include "kernels/cuda/common/linear/matrices.cuh"
#include "kernels/cuda/common/linear/numbers.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/sm90/ptx.cuh"
#include "kernels/cuda/sm90/tensor_map.h"
#include "kernels/cuda/sm90/wgmma.cuh"

namespace moracle::cuda {

inline constexpr int kProductRows = 128;
inline constexpr int kProductThreads = 384;  // of a producer and two consumers
inline constexpr int kMostProductRanks = 8;  // blocks of a cluster
inline constexpr int kOutColumns = 32;       // weight rows of a box of finished sums

struct ProductArgs {
  CUtensorMap inputs;             // [tokens, padded] in bf16
  CUtensorMap codes[kMostFused];  // [rows, padded]
  CUtensorMap out[kMostFused];    // [tokens, rows] in f32
  LinearMatrix matrices[kMostFused];
  std::int32_t count;
  std::int32_t tokens;
  std::int32_t padded;
  std::int32_t row_blocks;   // of all matrices
  std::int32_t rank_slices;  // of a block of a cluster; a multiple of fold_slices unless those are all of a row
  std::int32_t fold_slices;  // after which sums are scaled
  std::int32_t input_group;  // columns that share an input's scale; 0: a row does, -1: there is none
  std::int32_t input_groups;
  const float* scales;  // [tokens, input_groups]
};

enum class Sums {
  scaled,  // where a scale of weights or inputs may change
  shared,  // the same, and blocks of a cluster share a tile's columns
  whole,   // of all columns, since weights are products of codes and scales
};

template <class Code_, int kTokens_, Sums kSums_>
struct ProductPlan {
  using Code = Code_;
  using Form = SliceForm<Code>;
  static constexpr int kTokens = kTokens_;
  static constexpr Sums kSums = kSums_;
  static constexpr bool kStored = Code::kCode == DeviceCode::bf16;  // weights are multiplied as they are stored
  static constexpr bool kSwizzled = Form::kBytes == 128;            // codes, so that rows lie in banks of their own
  static constexpr int kInputBytes = kTokens * kSlice * 2;
  static constexpr int kCodeBytes = kProductRows * Form::kBytes;
  static constexpr int kStageBytes = kInputBytes + kCodeBytes;
  static constexpr int kOutTokens = kTokens < 128 ? kTokens : 128;  // that go out at once
  static constexpr int kBoxBytes = kOutTokens * kOutColumns * 4;
  static constexpr int kGroupBoxes = 2;  // of a warpgroup's 64 rows
  static constexpr int kOutBytes = 2 * kGroupBoxes * kBoxBytes;
  static constexpr int kFit = (kSharedLimit - 1024 - kOutBytes - 256) / kStageBytes;
  static constexpr int kStages = kFit < 8 ? kFit : 8;
  static_assert(kStages >= 3);
  static constexpr int kShared = 1024 + kStages * kStageBytes + kOutBytes + 2 * kStages * 8;
};

template <class Plan>
class ProductRing {
 protected:
  using Code = typename Plan::Code;
  using Form = typename Plan::Form;
  static constexpr int kStages = Plan::kStages;
  using Fragments = std::uint32_t[4][4];  // of 16 columns each

  __device__ ProductRing(const ProductArgs& args, std::uint32_t memory)
      : args_(args), base_((memory + 1023) & ~1023U) {}

  // By all threads; behind it what the grid before wrote can be read.
  __device__ __forceinline__ void open() const {
    if (threadIdx.x == 32) {
      prefetch_map(args_.inputs);
      for (int part = 0; part < args_.count; ++part) prefetch_map(args_.codes[part]);
    }
    if (threadIdx.x == 0) {
      for (int stage = 0; stage < kStages; ++stage) {
        init_barrier(full(stage), 1);
        init_barrier(empty(stage), 8);  // warps that read
      }
      publish_barriers();
    }
    __syncthreads();
    wait_for_last_grid();
  }
  // By consumers: shared memory may go.
  static __device__ __forceinline__ void close() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

  // What the blocks take in turn: tokens change fastest, so that those at work at once share weights.
  struct Tile {
    int part;
    int row;    // the first, of its matrix
    int token;  // the first
  };
  [[nodiscard]] __device__ int tiles() const { return args_.row_blocks * token_tiles(); }
  [[nodiscard]] __device__ int token_tiles() const { return (args_.tokens + Plan::kTokens - 1) / Plan::kTokens; }
  [[nodiscard]] __device__ Tile tile_of(int item) const {
    const int block = item / token_tiles();
    const int part = part_of_block(args_.matrices, args_.count, block);
    return {part, (block - args_.matrices[part].first_block) * kProductRows, item % token_tiles() * Plan::kTokens};
  }
  // Slices of a tile: [first, end), of this block's rank.
  [[nodiscard]] __device__ int rank() const { return Plan::kSums == Sums::shared ? static_cast<int>(blockIdx.y) : 0; }
  [[nodiscard]] __device__ int first_slice() const { return rank() * args_.rank_slices; }
  [[nodiscard]] __device__ int end_slice() const {
    return min(first_slice() + args_.rank_slices, args_.padded / kSlice);
  }

  struct Place {
    int stage = 0;
    std::uint32_t phase = 0;
    __device__ __forceinline__ void step() {
      if (++stage < kStages) return;
      stage = 0;
      phase ^= 1U;
    }
    [[nodiscard]] __device__ __forceinline__ int before() const { return stage == 0 ? kStages - 1 : stage - 1; }
  };
  [[nodiscard]] __device__ std::uint32_t inputs(int stage) const {
    return base_ + static_cast<std::uint32_t>(stage) * Plan::kStageBytes;
  }
  [[nodiscard]] __device__ std::uint32_t codes(int stage) const { return inputs(stage) + Plan::kInputBytes; }
  [[nodiscard]] __device__ std::uint32_t out_of(int group) const {
    return base_ + kStages * Plan::kStageBytes +
           static_cast<std::uint32_t>(group * Plan::kGroupBoxes) * Plan::kBoxBytes;
  }
  [[nodiscard]] __device__ std::uint32_t full(int stage) const {
    return base_ + kStages * Plan::kStageBytes + Plan::kOutBytes + 8 * static_cast<std::uint32_t>(stage);
  }
  [[nodiscard]] __device__ std::uint32_t empty(int stage) const { return full(stage) + 8 * kStages; }

  static __device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
  }
  static __device__ __forceinline__ void copy_box(std::uint32_t to, const CUtensorMap& map, int byte, int row,
                                                  std::uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
        "[%4];" ::"r"(to),
        "l"(&map), "r"(byte), "r"(row), "r"(barrier)
        : "memory");
  }

  __device__ void produce() const {
    Place at;
#pragma unroll 1
    for (int item = static_cast<int>(blockIdx.x); item < tiles(); item += static_cast<int>(gridDim.x)) {
      const Tile tile = tile_of(item);
#pragma unroll 1
      for (int slice = first_slice(); slice < end_slice(); ++slice) {
        wait_barrier(empty(at.stage), at.phase ^ 1U);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full(at.stage)),
                     "n"(Plan::kStageBytes)
                     : "memory");
        copy_box(codes(at.stage), args_.codes[tile.part], slice * Form::kBytes, tile.row, full(at.stage));
        copy_box(inputs(at.stage), args_.inputs, slice * kSlice * 2, tile.token, full(at.stage));
        at.step();
      }
    }
  }

  using Words = std::uint32_t[2][Form::kWords];
  __device__ __forceinline__ void load_words(Words& words, int stage) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = own_row() + 8 * half;
      const std::uint32_t first = codes(stage) + static_cast<std::uint32_t>(row) * Form::kBytes;
      if constexpr (Form::kWords == 2) {
        const uint2 two = load_shared_8(first + part() * 8);
        words[half][0] = two.x;
        words[half][1] = two.y;
      } else {
#pragma unroll
        for (int i = 0; i < Form::kWords / 4; ++i) {
          const int chunk = part() * Form::kWords / 4 + i;
          const uint4 four =
              load_shared_16(first + static_cast<std::uint32_t>(Plan::kSwizzled ? chunk ^ row % 8 : chunk) * 16);
          words[half][4 * i] = four.x;
          words[half][4 * i + 1] = four.y;
          words[half][4 * i + 2] = four.z;
          words[half][4 * i + 3] = four.w;
        }
      }
    }
  }

  [[nodiscard]] static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  [[nodiscard]] static __device__ int part() { return lane() % 4; }
  [[nodiscard]] static __device__ int group() { return static_cast<int>(threadIdx.x / 128) - 1; }
  [[nodiscard]] static __device__ int warp() { return static_cast<int>(threadIdx.x / 32 % 4); }
  // The upper of the lane's two, of the tile's.
  [[nodiscard]] static __device__ int own_row() { return group() * 64 + warp() * 16 + lane() / 4; }

  [[nodiscard]] static __device__ float bias_of(const LinearMatrix& of, int row) {
    if (of.matrix.bias == kAbsent || row >= of.matrix.rows) return 0.0F;
    return __ldg(reinterpret_cast<const float*>(of.weights + of.matrix.bias) + row);
  }

  static __device__ __forceinline__ void decode(Fragments& to, const Words& words, const std::uint32_t (&zeros)[2]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int r = 0; r < 4; ++r) to[i][r] = number_pair<Code>(words[r % 2], 2 * i + r / 2, zeros[r % 2]);
    }
  }
  // The products of a slice: of fragments, or of numbers where they lie (ProductPlan::kStored).
  template <int kCount>
  __device__ __forceinline__ void multiply_slice(float (&sums)[kCount], const Fragments& fragments, int stage,
                                                 bool adds) const {
    const std::uint64_t rows = swizzled_rows(inputs(stage));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (Plan::kStored) {
        const std::uint64_t weights =
            swizzled_rows(codes(stage) + static_cast<std::uint32_t>(group()) * 64 * Form::kBytes);
        wgmma_shared_bf16<Plan::kTokens>(sums, weights + i * 2, rows + i * 2, i > 0 || adds ? 1 : 0);
      } else {
        wgmma_bf16<Plan::kTokens>(sums, fragments[i], rows + i * 2, i > 0 || adds ? 1 : 0);
      }
    }
  }
  // The fragments of a slice of codes.
  __device__ __forceinline__ void take_codes(Fragments& to, int stage, const std::uint32_t (&zeros)[2]) const {
    Words words;
    load_words(words, stage);
    decode(to, words, zeros);
  }
  // They are ready before the next products open.
  static __device__ __forceinline__ void settle(Fragments& fragments) {
#pragma unroll
    for (int i = 0; i < 16; ++i) asm volatile("" : "+r"(fragments[i / 4][i % 4])::"memory");
  }
  template <int kCount>
  static __device__ __forceinline__ void settle(float (&sums)[kCount]) {
#pragma unroll
    for (float& sum : sums) asm volatile("" : "+f"(sum)::"memory");
  }

  // Into boxes of [tokens, 32 rows], swizzled so that a warp's tokens lie in banks of their own.
  static __device__ __forceinline__ std::uint32_t box_place(int token, int column) {
    return static_cast<std::uint32_t>(token * 128 + ((column / 4 ^ token % 8) * 16 + column % 4 * 4));
  }
  // Tokens from kFirst on. Each sum is multiplied by its row's factor, and its row's bias is added.
  template <int kFirst, int kCount>
  __device__ __forceinline__ void put(const float (&sums)[kCount], const float (&factors)[2],
                                      const float (&biases)[2]) const {
    const std::uint32_t box = out_of(group()) + static_cast<std::uint32_t>(warp() / 2) * Plan::kBoxBytes;
#pragma unroll
    for (int i = 0; i < Plan::kOutTokens / 2; ++i) {
      const int token = i / 4 * 8 + part() * 2 + i % 2;
      const int column = warp() % 2 * 16 + lane() / 4 + i / 2 % 2 * 8;  // of the box
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(box + box_place(token, column)),
                   "f"(fmaf(sums[kFirst / 2 + i], factors[i / 2 % 2], biases[i / 2 % 2]))
                   : "memory");
    }
  }
  // Of kOutTokens tokens.
  template <int kFirst, int kCount>
  __device__ __forceinline__ void store(const float (&sums)[kCount], const float (&factors)[2],
                                        const Tile& tile) const {
    const LinearMatrix& of = args_.matrices[tile.part];
    const float biases[2] = {bias_of(of, tile.row + own_row()), bias_of(of, tile.row + own_row() + 8)};
    const bool leads = threadIdx.x % 128 == 0;
    // Until the box before has been read.
    if (leads) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    sync_group(1 + group(), 128);
    put<kFirst>(sums, factors, biases);
    fence_proxy_async();
    sync_group(1 + group(), 128);
    if (!leads) return;
#pragma unroll
    for (int i = 0; i < Plan::kGroupBoxes; ++i) {
      const int row = tile.row + group() * 64 + i * kOutColumns;
      if (row >= of.matrix.rows) break;
      asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
                       &args_.out[tile.part]),
                   "r"(row * 4), "r"(tile.token + kFirst),
                   "r"(out_of(group()) + static_cast<std::uint32_t>(i) * Plan::kBoxBytes)
                   : "memory");
    }
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }

  const ProductArgs& args_;
  std::uint32_t base_;
};

}  // namespace moracle::cuda
