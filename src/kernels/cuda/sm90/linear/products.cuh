// y = x W^T of many tokens by warpgroup products, for up to kMostFused matrices in one launch. As in tiles.cuh, codes
// are exact in bf16, and sums of at most 128 columns are scaled and added in f32.
//
//   tile      128 weight rows times 64 or 128 tokens; blocks stay, and take tiles in turn. Where tiles are few, the
//             blocks of a cluster share the columns of one: each leaves its sums in shared memory, and they are added
//             in one order
//   stage     64 columns of a tile: codes as they are stored, and inputs, both by tensor copies
//   producer  one thread, which fills stages ahead, of the next tile too
//   consumers two warpgroups of 64 weight rows: a slice becomes fragments in registers while the one before is
//             multiplied; finished sums go out by a tensor copy under the next tile's products
//
// A lane takes 16 neighbours of a slice's columns; inputs lie in the order in which fragments then have them
// (InputOrder).
#pragma once

#include <cooperative_groups.h>

#include <algorithm>
#include <numeric>

#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/linear/matrices.cuh"
#include "kernels/cuda/common/linear/numbers.cuh"
#include "kernels/cuda/common/linear/scales.cuh"
#include "kernels/cuda/sm90/linear/terms.cuh"
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

// kShares: clusters share columns.
template <class Code_, int kTokens_, bool kShares_>
struct ProductPlan {
  using Code = Code_;
  using Form = SliceForm<Code>;
  static constexpr int kTokens = kTokens_;
  static constexpr bool kShares = kShares_;
  static constexpr bool kSwizzled = Form::kBytes == 128;  // codes, so that rows lie in banks of their own
  static constexpr int kInputBytes = kTokens * kSlice * 2;
  static constexpr int kCodeBytes = kProductRows * Form::kBytes;
  static constexpr int kStageBytes = kInputBytes + kCodeBytes;
  static constexpr int kBoxBytes = kTokens * kOutColumns * 4;
  static constexpr int kGroupBoxes = 2;  // of a warpgroup's 64 rows
  static constexpr int kOutBytes = 2 * kGroupBoxes * kBoxBytes;
  static constexpr int kFit = (kSharedLimit - 1024 - kOutBytes - 256) / kStageBytes;
  static constexpr int kStages = kFit < 8 ? kFit : 8;
  static_assert(kStages >= 3);
  static constexpr int kShared = 1024 + kStages * kStageBytes + kOutBytes + 2 * kStages * 8;
};

template <class Plan>
class ProductBlock {
  using Code = typename Plan::Code;
  using Form = typename Plan::Form;
  static constexpr int kStages = Plan::kStages;
  static constexpr int kSums = Plan::kTokens / 2;
  using Sums = float[kSums];
  using Fragments = std::uint32_t[4][4];  // of 16 columns each

 public:
  __device__ ProductBlock(const ProductArgs& args, std::uint32_t memory)
      : args_(args), base_((memory + 1023) & ~1023U) {}

  __device__ void run() {
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
    if (threadIdx.x < 128) {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
      if (threadIdx.x == 0) produce();
      if constexpr (Plan::kShares) {
        __syncwarp();
        cooperative_groups::this_cluster().sync();
        cooperative_groups::this_cluster().sync();
      }
    } else {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
      consume();
      if constexpr (Plan::kShares) share();
    }
  }

 private:
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
  [[nodiscard]] __device__ int rank() const { return Plan::kShares ? static_cast<int>(blockIdx.y) : 0; }
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
  static __device__ __forceinline__ void decode(Fragments& to, const Words& words, const std::uint32_t (&zeros)[2]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int r = 0; r < 4; ++r) to[i][r] = number_pair<Code>(words[r % 2], 2 * i + r / 2, zeros[r % 2]);
    }
  }
  // They are ready before the next products open.
  static __device__ __forceinline__ void settle(Fragments& fragments) {
#pragma unroll
    for (int i = 0; i < 16; ++i) asm volatile("" : "+r"(fragments[i / 4][i % 4])::"memory");
  }
  static __device__ __forceinline__ void settle(Sums& sums) {
#pragma unroll
    for (float& sum : sums) asm volatile("" : "+f"(sum)::"memory");
  }

  [[nodiscard]] static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  [[nodiscard]] static __device__ int part() { return lane() % 4; }
  [[nodiscard]] static __device__ int group() { return static_cast<int>(threadIdx.x / 128) - 1; }
  [[nodiscard]] static __device__ int warp() { return static_cast<int>(threadIdx.x / 32 % 4); }
  // The upper of the lane's two, of the tile's.
  [[nodiscard]] static __device__ int own_row() { return group() * 64 + warp() * 16 + lane() / 4; }

  // A tile on its way through its slices.
  struct Walk {
    const LinearMatrix& of;
    int token;
    float global;
    int left;  // slices of the fold
    TermReader<Code> reader;
    LaneTerms now;
    LaneTerms next;
  };

  __device__ void consume() const {
    Place at;
    Sums parts;
    Sums sums;
    Fragments fragments[2];
#pragma unroll 1
    for (int item = static_cast<int>(blockIdx.x); item < tiles(); item += static_cast<int>(gridDim.x)) {
      const Tile tile = tile_of(item);
      const LinearMatrix& of = args_.matrices[tile.part];
      Walk walk{.of = of,
                .token = tile.token,
                .global = __ldg(reinterpret_cast<const float*>(of.weights + of.matrix.global_scale)),
                .left = args_.fold_slices,
                .reader = TermReader<Code>(of, tile.row + own_row(), first_slice()),
                .now = {},
                .next = {}};
      walk.now = walk.reader.next(args_.fold_slices);
      walk.next = walk.reader.next(args_.fold_slices);
#pragma unroll
      for (float& sum : sums) sum = 0.0F;
      const int end = end_slice();
      if (first_slice() < end) take(at, fragments[0], walk.now.zeros);
#pragma unroll 1
      for (int slice = first_slice(); slice < end; slice += 2) {
        multiply<0>(at, parts, sums, fragments, walk, slice, end);
        if (slice + 1 < end) multiply<1>(at, parts, sums, fragments, walk, slice + 1, end);
      }
      if constexpr (Plan::kShares) {
        put(sums, {0.0F, 0.0F});
      } else {
        store(sums, tile);
      }
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");  // shared memory may go
  }

  // The fragments of the stage at `at`, once it is there.
  __device__ __forceinline__ void take(const Place& at, Fragments& to, const std::uint32_t (&zeros)[2]) const {
    wait_barrier(full(at.stage), at.phase);
    __syncwarp();
    Words words;
    load_words(words, at.stage);
    decode(to, words, zeros);
    settle(to);
  }

  // Multiplies the slice in fragments[kBuffer], and takes the next one meanwhile.
  template <int kBuffer>
  __device__ __forceinline__ void multiply(Place& at, Sums& parts, Sums& sums, Fragments (&fragments)[2], Walk& walk,
                                           int slice, int end) const {
    const std::uint64_t rows = swizzled_rows(inputs(at.stage));
    const bool opens = walk.left == args_.fold_slices;
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i)
      wgmma_bf16<Plan::kTokens>(parts, fragments[kBuffer][i], rows + i * 2, i > 0 || !opens ? 1 : 0);
    wgmma_commit();
    const int own = at.stage;
    at.step();
    --walk.left;
    const bool folds = walk.left == 0 || slice + 1 == end;
    const std::uint32_t zeros[2] = {folds ? walk.next.zeros[0] : walk.now.zeros[0],
                                    folds ? walk.next.zeros[1] : walk.now.zeros[1]};
    if (slice + 1 < end) take(at, fragments[1 - kBuffer], zeros);
    wgmma_wait<0>();
    settle(parts);
    give_back(empty(own), lane());
    if (!folds) return;
    fold(parts, sums, walk, slice);
    walk.left = args_.fold_slices;
    walk.now = walk.next;
    walk.next = walk.reader.next(args_.fold_slices);
  }

  // Scales what the columns that end with `slice` have summed.
  __device__ __forceinline__ void fold(const Sums& parts, Sums& sums, const Walk& walk, int slice) const {
    float scales[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      scales[half] = walk.global;
      if (Form::kScaled && walk.of.matrix.scales != kAbsent)
        scales[half] *= fetched_scale(walk.of.scale, walk.now.scales[half]);
    }
    if (args_.input_group < 0) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums[i] = fmaf(parts[i], scales[i / 2 % 2], sums[i]);
      return;
    }
    const int group = args_.input_group == 0 ? 0 : slice * kSlice / args_.input_group;
    const float* const first = args_.scales + group;
#pragma unroll
    for (int i = 0; i < kSums; i += 4) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int token = min(walk.token + i * 2 + part() * 2 + j, args_.tokens - 1);
        const float input = __ldg(first + static_cast<std::int64_t>(token) * args_.input_groups);
        sums[i + j] = fmaf(parts[i + j], scales[0] * input, sums[i + j]);
        sums[i + j + 2] = fmaf(parts[i + j + 2], scales[1] * input, sums[i + j + 2]);
      }
    }
  }

  [[nodiscard]] static __device__ float bias_of(const LinearMatrix& of, int row) {
    if (of.matrix.bias == kAbsent || row >= of.matrix.rows) return 0.0F;
    return __ldg(reinterpret_cast<const float*>(of.weights + of.matrix.bias) + row);
  }

  // Into boxes of [tokens, 32 rows], swizzled so that a warp's tokens lie in banks of their own.
  static __device__ __forceinline__ std::uint32_t box_place(int token, int column) {
    return static_cast<std::uint32_t>(token * 128 + ((column / 4 ^ token % 8) * 16 + column % 4 * 4));
  }
  __device__ __forceinline__ void put(const Sums& sums, const float (&biases)[2]) const {
    const std::uint32_t box = out_of(group()) + static_cast<std::uint32_t>(warp() / 2) * Plan::kBoxBytes;
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      const int token = i / 4 * 8 + part() * 2 + i % 2;
      const int column = warp() % 2 * 16 + lane() / 4 + i / 2 % 2 * 8;  // of the box
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(box + box_place(token, column)), "f"(sums[i] + biases[i / 2 % 2])
                   : "memory");
    }
  }
  __device__ __forceinline__ void store(const Sums& sums, const Tile& tile) const {
    const LinearMatrix& of = args_.matrices[tile.part];
    const float biases[2] = {bias_of(of, tile.row + own_row()), bias_of(of, tile.row + own_row() + 8)};
    const bool leads = threadIdx.x % 128 == 0;
    // Until the box before has been read.
    if (leads) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    sync_group(1 + group(), 128);
    put(sums, biases);
    fence_proxy_async();
    sync_group(1 + group(), 128);
    if (!leads) return;
#pragma unroll
    for (int i = 0; i < Plan::kGroupBoxes; ++i) {
      const int row = tile.row + group() * 64 + i * kOutColumns;
      if (row >= of.matrix.rows) break;
      asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
                       &args_.out[tile.part]),
                   "r"(row * 4), "r"(tile.token), "r"(out_of(group()) + static_cast<std::uint32_t>(i) * Plan::kBoxBytes)
                   : "memory");
    }
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }

  // The consumers of each block add its share of the cluster's tile, ranks in their order.
  __device__ void share() const {
    auto cluster = cooperative_groups::this_cluster();
    cluster.sync();
    const Tile tile = tile_of(static_cast<int>(blockIdx.x));
    const LinearMatrix& of = args_.matrices[tile.part];
    const auto ranks = static_cast<int>(gridDim.y);
    constexpr int kConsumers = kProductThreads - 128;
    constexpr int kFours = kProductRows / 4;  // of a token
    for (int i = rank() * kConsumers + static_cast<int>(threadIdx.x) - 128; i < Plan::kTokens * kFours;
         i += ranks * kConsumers) {
      const int token = tile.token + i / kFours;
      const int row = i % kFours * 4;
      if (token >= args_.tokens || tile.row + row >= of.matrix.rows) continue;
      const std::uint32_t at = out_of(0) + static_cast<std::uint32_t>(row / kOutColumns) * Plan::kBoxBytes +
                               box_place(i / kFours, row % kOutColumns);
      float4 found[kMostProductRanks];
#pragma unroll
      for (int other = 0; other < kMostProductRanks; ++other)
        found[other] = other < ranks ? load_of_rank(at, other) : float4{};
      float4 sum{bias_of(of, tile.row + row), bias_of(of, tile.row + row + 1), bias_of(of, tile.row + row + 2),
                 bias_of(of, tile.row + row + 3)};
#pragma unroll
      for (const float4& each : found) {
        sum.x += each.x;
        sum.y += each.y;
        sum.z += each.z;
        sum.w += each.w;
      }
      // Rows are a multiple of four.
      *reinterpret_cast<float4*>(of.out + static_cast<std::int64_t>(token) * of.matrix.rows + tile.row + row) = sum;
    }
    cluster.sync();  // a block's sums stay until all have read them
  }
  static __device__ __forceinline__ float4 load_of_rank(std::uint32_t at, int rank) {
    std::uint32_t there = 0;
    float4 four;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
                 : "r"(there)
                 : "memory");
    return four;
  }

  const ProductArgs& args_;
  std::uint32_t base_;
};

template <class Plan>
__global__ void __launch_bounds__(kProductThreads, 1) multiply_products(const __grid_constant__ ProductArgs args) {
  extern __shared__ __align__(128) std::uint8_t product_memory[];
  allow_next_grid();
  ProductBlock<Plan>(args, shared_address(product_memory)).run();
}

// Slices after which sums are scaled: wherever a scale of weights or inputs may change.
inline std::int32_t fold_slices(const LinearArgs& linear, const FormedInputs& inputs) {
  std::int32_t slices = inputs.group > 0 ? inputs.group / kSlice : 0;
  for (int part = 0; part < linear.count; ++part) {
    const MatrixArgs& matrix = linear.parts[part].matrix;
    if (matrix.group < matrix.padded) slices = std::gcd(slices, matrix.group / kSlice);
  }
  return slices == 0 ? linear.parts[0].matrix.padded / kSlice : slices;
}

template <class Plan>
cudaError_t launch_product_plan(const LinearArgs& linear, const FormedInputs& inputs, int multiprocessors,
                                cudaStream_t stream) {
  const MatrixArgs& first = linear.parts[0].matrix;
  ProductArgs args{.inputs = {},
                   .codes = {},
                   .out = {},
                   .matrices = {},
                   .count = linear.count,
                   .tokens = linear.tokens,
                   .padded = first.padded,
                   .row_blocks = 0,
                   .rank_slices = first.padded / kSlice,
                   .fold_slices = fold_slices(linear, inputs),
                   .input_group = inputs.group,
                   .input_groups = inputs.groups,
                   .scales = linear.x_scales};
  args.row_blocks = static_cast<std::int32_t>(list_matrices(linear, kProductRows, args.matrices));
  const auto tokens = static_cast<std::uint64_t>(linear.tokens);
  int error = map_rows({.first = linear.x_codes,
                        .rows = tokens,
                        .bytes = static_cast<std::uint64_t>(first.padded) * 2,
                        .box_rows = Plan::kTokens,
                        .box_bytes = kSlice * 2,
                        .swizzled = true},
                       args.inputs);
  for (int part = 0; part < linear.count && error == cudaSuccess; ++part) {
    const LinearPart& of = linear.parts[part];
    const auto rows = static_cast<std::uint64_t>(of.matrix.rows);
    error = map_rows({.first = of.pack.weights + of.matrix.codes,
                      .rows = rows,
                      .bytes = static_cast<std::uint64_t>(of.matrix.padded) * Plan::Form::kBits / 8,
                      .box_rows = kProductRows,
                      .box_bytes = Plan::Form::kBytes,
                      .swizzled = Plan::kSwizzled},
                     args.codes[part]);
    if (error != cudaSuccess) break;
    error = map_rows({.first = of.y,
                      .rows = tokens,
                      .bytes = rows * 4,
                      .box_rows = Plan::kTokens,
                      .box_bytes = kOutColumns * 4,
                      .swizzled = true},
                     args.out[part]);
  }
  if (error != cudaSuccess) return static_cast<cudaError_t>(error);
  const auto kernel = multiply_products<Plan>;
  if (const cudaError_t set = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kShared);
      set != cudaSuccess)
    return set;
  const unsigned tiles = static_cast<unsigned>(args.row_blocks) * grid_of(linear.tokens, Plan::kTokens);
  GridShape shape{.grid = dim3(std::min(tiles, static_cast<unsigned>(multiprocessors))),
                  .threads = kProductThreads,
                  .shared = Plan::kShared};
  if constexpr (Plan::kShares) {
    // Rows that one scale serves may be cut anywhere.
    const int unit = args.fold_slices == args.rank_slices ? 2 : args.fold_slices;
    const int folds = (args.rank_slices + unit - 1) / unit;
    int ranks = std::clamp(multiprocessors / static_cast<int>(tiles), 1, std::min(kMostProductRanks, folds));
    const int rank_folds = (folds + ranks - 1) / ranks;
    ranks = (folds + rank_folds - 1) / rank_folds;
    args.rank_slices = rank_folds * unit;
    shape.grid = dim3(tiles, static_cast<unsigned>(ranks));
    shape.cluster = dim3(1, static_cast<unsigned>(ranks));
  }
  return launch_grid(kernel, shape, stream, args);
}

template <class Code>
cudaError_t launch_products(const LinearArgs& linear, const FormedInputs& inputs, cudaStream_t stream) {
  int multiprocessors = 0;
  if (const cudaError_t error = count_multiprocessors(multiprocessors); error != cudaSuccess) return error;
  unsigned blocks = 0;
  for (int part = 0; part < linear.count; ++part) blocks += grid_of(linear.parts[part].matrix.rows, kProductRows);
  const unsigned tiles = blocks * grid_of(linear.tokens, 64);
  if (2 * tiles <= static_cast<unsigned>(multiprocessors))
    return launch_product_plan<ProductPlan<Code, 64, true>>(linear, inputs, multiprocessors, stream);
  // Tiles of 128 tokens read weights half as often; so few of them leave multiprocessors without work.
  if (linear.tokens <= 64 || 4 * blocks * grid_of(linear.tokens, 128) <= 3 * static_cast<unsigned>(multiprocessors))
    return launch_product_plan<ProductPlan<Code, 64, false>>(linear, inputs, multiprocessors, stream);
  return launch_product_plan<ProductPlan<Code, 128, false>>(linear, inputs, multiprocessors, stream);
}

}  // namespace moracle::cuda
