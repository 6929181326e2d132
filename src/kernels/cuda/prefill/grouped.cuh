// y = x W^T for the rows of every expert, many rows an expert: weights become bf16 fragments in registers, once for up
// to 128 rows, and warpgroup products take the rows from shared memory.
//
//   tile      256 weight rows of an expert times up to 128 of its rows (pairs of token and choice)
//   stage     64 columns of a tile: codes and scales as records hold them, and the rows' inputs, 128 bytes each
//   producer  one warpgroup, whose threads copy 16 bytes at a time and never wait for a copy: records lie too far apart
//             for bulk copies, of which a stage would take 32
//   consumers two warpgroups, 128 weight rows each, as two products of 64; for few rows an expert, where decoding is
//   all,
//             four warpgroups of one product. What comes next is decoded while a product is under way
//
// Blocks stay, and take tiles in turn; tiles are sorted by the width of their products. Columns are permuted as records
// permute them, in x and in hidden rows alike. Each row is multiplied alone: whatever else a tile holds, its bits are
// the same.
#pragma once

#include <limits>

#include "kernels/cuda/decode/ptx.cuh"
#include "kernels/cuda/prefill/list.cuh"
#include "kernels/cuda/prefill/weights.cuh"
#include "kernels/cuda/prefill/wgmma.cuh"

namespace moracle::cuda {

// One of the two matrices for all experts.
struct GroupedArgs {
  const std::uint8_t* weights;  // first tile of 16 rows of expert 0
  std::uint64_t expert_bytes;
  std::uint64_t tile_bytes;
  std::uint64_t record_bytes;
  std::int32_t record_columns;
  std::int32_t columns;         // a multiple of 64
  std::int32_t row_tiles;       // of 16 weight rows
  const std::uint16_t* inputs;  // [rows, columns] in bf16, permuted
  const std::int32_t* pairs;    // null: a row's inputs are its own; else those of token pairs[row] / top_k
  std::int32_t top_k;
  const RowTile* list;
  const std::int32_t* listed;
  std::uint16_t* out;  // [rows, out_columns] in bf16; of gated ones permuted
  std::int32_t out_columns;
  std::int32_t most_rows;  // of a tile
  bool gated;
  GateArgs gate;
};

inline constexpr int kStageColumns = 64;
inline constexpr int kStages = 8;
inline constexpr int kTileWeights = 256;  // weight rows
inline constexpr int kTileTiles = kTileWeights / kTileRows;
inline constexpr int kTileCodes = kTileRows * kStageColumns / 2;  // bytes of a stage
inline constexpr int kTileScales = 32;
inline constexpr int kStageWeightBytes = kTileTiles * (kTileCodes + kTileScales);
inline constexpr float kNoLimit = std::numeric_limits<float>::infinity();

// kHalves products of 64 weight rows a warpgroup.
template <int kHalves>
struct GroupedPlan {
  static constexpr int kMostRows = kHalves == 2 ? kMostTileRows : kFewTileRows;
  static constexpr int kGroups = kTileWeights / (64 * kHalves);
  static constexpr int kThreads = 128 * (1 + kGroups);
  static constexpr int kProducerRegisters = kHalves == 2 ? 40 : 32;
  static constexpr int kConsumerRegisters = kHalves == 2 ? 232 : 112;
  static constexpr int kRowBytes = kMostRows * kStageColumns * 2;  // of a stage
  static constexpr int kShared = 1024 + kStages * (kRowBytes + kStageWeightBytes) + 2 * kStages * 8;
};

// Ring of stages, for one side of it.
struct StageAt {
  std::uint32_t stage = 0;
  std::uint32_t phase = 0;
  __device__ __forceinline__ void step() {
    if (++stage < kStages) return;
    stage = 0;
    phase ^= 1U;
  }
};

template <class Code, bool kGated, int kHalves>
class GroupedBlock {
  using Plan = GroupedPlan<kHalves>;
  using Sums = float[kHalves][Plan::kMostRows / 2];
  using Fragments = std::uint32_t[2][4][4];

 public:
  __device__ __forceinline__ GroupedBlock(const GroupedArgs& args, std::uint32_t memory)
      : args_(args), base_((memory + 1023) & ~1023U) {}

  __device__ __forceinline__ void run() {
    if (threadIdx.x == 0) {
      for (int i = 0; i < kStages; ++i) {
        init_barrier(full(i), 128);                 // threads that copy
        init_barrier(empty(i), 4 * Plan::kGroups);  // warps that read
      }
      publish_barriers();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Plan::kProducerRegisters));
      produce();
    } else {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Plan::kConsumerRegisters));
      consume();
    }
  }

 private:
  [[nodiscard]] __device__ __forceinline__ std::uint32_t rows_at(std::uint32_t stage) const {
    return base_ + stage * Plan::kRowBytes;
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t weights_at(std::uint32_t stage) const {
    return base_ + kStages * Plan::kRowBytes + stage * kStageWeightBytes;
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t full(std::uint32_t stage) const {
    return base_ + kStages * (Plan::kRowBytes + kStageWeightBytes) + 8 * stage;
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t empty(std::uint32_t stage) const {
    return full(stage) + 8 * kStages;
  }
  [[nodiscard]] __device__ __forceinline__ int weight_tiles() const {
    return (args_.row_tiles + kTileTiles - 1) / kTileTiles;
  }
  [[nodiscard]] __device__ __forceinline__ int items() const { return *args_.listed * weight_tiles(); }

  // Copies of a stage, by a warpgroup.
  __device__ __forceinline__ void produce() const {
    const int thread = static_cast<int>(threadIdx.x);
    const int chunk = thread % 8;
    const int count = items();
    StageAt at;
#pragma unroll 1
    for (int item = static_cast<int>(blockIdx.x); item < count; item += static_cast<int>(gridDim.x)) {
      const RowTile tile = args_.list[item / weight_tiles()];
      const int first_tile = item % weight_tiles() * kTileTiles;
      const int tiles = min(kTileTiles, args_.row_tiles - first_tile);
      std::uint32_t row_words[Plan::kMostRows / 16];
#pragma unroll
      for (int i = 0; i < Plan::kMostRows / 16; ++i) {
        const int row = thread / 8 + 16 * i;
        const int source = tile.first + (row < tile.count ? row : 0);
        const int input = args_.pairs != nullptr ? __ldg(args_.pairs + source) / args_.top_k : source;
        row_words[i] = static_cast<std::uint32_t>(input) * static_cast<std::uint32_t>(args_.columns / 8) + chunk;
      }
      // Four of the tiles' codes a thread, 16 bytes of each; two threads a tile's scales.
      const std::uint8_t* const records = args_.weights + tile.expert * args_.expert_bytes;
      const std::uint8_t* const codes =
          records + static_cast<std::uint64_t>(first_tile + thread / 32) * args_.tile_bytes + thread % 32 * 16;
      const std::uint8_t* const scales = records +
                                         static_cast<std::uint64_t>(first_tile + thread / 2) * args_.tile_bytes +
                                         args_.record_columns * 8 + thread % 2 * 16;
      const std::uint32_t to = chunk_address(thread / 8, chunk);
      int inside = 0;
      std::uint64_t offset = 0;
#pragma unroll 1
      for (int column = 0; column < args_.columns; column += kStageColumns) {
        wait_barrier(empty(at.stage), at.phase ^ 1U);
        const std::uint32_t weights = weights_at(at.stage) + thread * 16;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (thread / 32 + 4 * i < tiles)
            copy_16(weights + i * 2048, codes + offset + inside * 8 + 4 * i * args_.tile_bytes);
        }
        if (thread < 2 * tiles) {
          copy_16(weights + kTileTiles * kTileCodes,
                  scales + offset + inside / (kStageColumns * Code::kPairsAScale) * kTileScales);
        }
#pragma unroll
        for (int i = 0; i < Plan::kMostRows / 16; ++i) {
          if (16 * i >= tile.width) break;
          copy_16(rows_at(at.stage) + to + i * 2048,
                  reinterpret_cast<const uint4*>(args_.inputs) + row_words[i] + column / 8);
        }
        // Arrives once what this thread copies is there.
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(full(at.stage)) : "memory");
        at.step();
        inside += kStageColumns;
        if (inside == args_.record_columns) {
          inside = 0;
          offset += args_.record_bytes;
        }
      }
    }
  }
  static __device__ __forceinline__ std::uint32_t chunk_address(int row, int chunk) {
    return static_cast<std::uint32_t>(row * 128 + ((chunk ^ row % 8) << 4));
  }
  static __device__ __forceinline__ void copy_16(std::uint32_t to, const void* from) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  }

  [[nodiscard]] static __device__ __forceinline__ int group() { return static_cast<int>(threadIdx.x) / 128 - 1; }
  [[nodiscard]] static __device__ __forceinline__ int warp() { return static_cast<int>(threadIdx.x) / 32 % 4; }
  [[nodiscard]] static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }

  __device__ __forceinline__ void consume() const {
    StageAt at;
    int item = static_cast<int>(blockIdx.x);
    const int count = items();
    if constexpr (kHalves == 2) {
      take<128>(item, count, at);
      take<112>(item, count, at);
      take<96>(item, count, at);
      take<80>(item, count, at);
    }
    take<64>(item, count, at);
    take<48>(item, count, at);
    take<32>(item, count, at);
    take<16>(item, count, at);
  }

  // The block's tiles of one width: tiles are sorted by it.
  template <int kWidth>
  __device__ __forceinline__ void take(int& item, int count, StageAt& at) const {
#pragma unroll 1
    while (item < count) {
      const RowTile tile = args_.list[item / weight_tiles()];
      if (tile.width != kWidth) return;
      Sums sums;
      multiply<kWidth>(sums, at);
      store<kWidth>(sums, tile, item % weight_tiles() * kTileTiles + first_tile());
      item += static_cast<int>(gridDim.x);
    }
  }

  // Products read rows through the async proxy, which the barrier alone does not order behind the copies.
  __device__ __forceinline__ void wait_stage(const StageAt& at) const {
    wait_barrier(full(at.stage), at.phase);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  // Of 16 weight rows, for the warp's first product; the second is four tiles behind.
  [[nodiscard]] static __device__ __forceinline__ int first_tile() { return group() * 4 * kHalves + warp(); }

  // What four fragments of one of the thread's two products are made of.
  struct Held {
    uint4 words;
    std::uint32_t scales;
  };
  [[nodiscard]] __device__ __forceinline__ Held load(std::uint32_t stage, int half) const {
    const std::uint32_t tile = static_cast<std::uint32_t>(first_tile() + half * 4);
    return {load_shared_16(weights_at(stage) + tile * kTileCodes + lane() * 16),
            load_shared_4(weights_at(stage) + kTileTiles * kTileCodes + tile * kTileScales + lane() / 4 * 4)};
  }

  // The product of stage `s` that fragments[kBuffer] hold, while the fragments of what comes next are decoded.
  template <int kWidth, int kBuffer>
  __device__ __forceinline__ void multiply_batch(Sums& sums, Fragments& fragments, StageAt& at, int s,
                                                 int stages) const {
    constexpr int kHalf = kHalves == 2 ? kBuffer : 0;
    constexpr bool kLast = kHalf == kHalves - 1;  // of the stage
    const std::uint64_t rows = swizzled_rows(rows_at(at.stage));
    const std::uint32_t before = at.stage == 0 ? kStages - 1 : at.stage - 1;
    open_products();
#pragma unroll
    for (int i = 0; i < 4; ++i)
      multiply_group<kWidth>(sums[kHalf], fragments[kBuffer][i], rows + i * 2, i > 0 || s > 0 ? 1 : 0);
    commit_products();
    StageAt next = at;
    if constexpr (kLast) next.step();
    if (kLast && s + 1 < stages) wait_stage(next);
    // Behind the last stage what is read is not used.
    const Held held = load(next.stage, kLast ? 0 : 1);
    wait_products<1>();
    // What was multiplied before is done, the last of the stage before among it.
    if (kHalf == 0 && s > 0) arrive_warp(empty(before), lane());
    ScaledWeights<Code>::decode(fragments[1 - kBuffer], held.words, held.scales);
    at = next;
  }

  template <int kWidth>
  __device__ __forceinline__ void multiply(Sums& sums, StageAt& at) const {
    Fragments fragments;
    wait_stage(at);
    const Held held = load(at.stage, 0);
    ScaledWeights<Code>::decode(fragments[0], held.words, held.scales);
    const int stages = args_.columns / kStageColumns;
#pragma unroll 1
    for (int s = 0; s < stages; s += 3 - kHalves) {
      multiply_batch<kWidth, 0>(sums, fragments, at, s, stages);
      if (kHalves == 2) multiply_batch<kWidth, 1>(sums, fragments, at, s, stages);
      if (kHalves == 1 && s + 1 < stages) multiply_batch<kWidth, 1>(sums, fragments, at, s + 1, stages);
    }
    wait_products<0>();
    // Sums are read behind the wait alone.
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
#pragma unroll
      for (int i = 0; i < kWidth / 2; ++i) asm volatile("" : "+f"(sums[half][i])::"memory");
    }
    arrive_warp(empty(at.stage == 0 ? kStages - 1 : at.stage - 1), lane());
  }

  template <int kWidth>
  __device__ __forceinline__ void store(const Sums& sums, const RowTile& tile, int first_tile) const {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const int row_tile = first_tile + half * 4;
      if (row_tile >= args_.row_tiles) return;
      float upper_bias = 0.0F;
      float lower_bias = 0.0F;
      if constexpr (record_form(Code::kCode).bias) {
        const auto* const bias = reinterpret_cast<const float*>(
            args_.weights + tile.expert * args_.expert_bytes +
            static_cast<std::uint64_t>(row_tile + 1) * args_.tile_bytes - kTileRows * sizeof(float));
        upper_bias = __ldg(bias + lane() / 4);
        lower_bias = __ldg(bias + lane() / 4 + 8);
      }
      const int g = lane() / 4;
      // Neighbours in a column exchange one of two rows, so that each stores two columns at once.
      const int row = lane() % 4 * 2 + g % 2;
      std::uint16_t* const to = args_.out + static_cast<std::int64_t>(tile.first + row) * args_.out_columns +
                                (kGated ? permuted(row_tile * 8 + g / 2 * 2) : row_tile * kTileRows + g / 2 * 2);
#pragma unroll
      for (int i = 0; i < kWidth / 8; ++i) {
        const float* const four = sums[half] + 4 * i;
        std::uint32_t stored[2];
        if constexpr (kGated) {
          stored[0] = exchange(activated(four[0] + upper_bias, four[2] + lower_bias),
                               activated(four[1] + upper_bias, four[3] + lower_bias));
        } else {
          stored[0] = exchange(four[0] + upper_bias, four[1] + upper_bias);
          stored[1] = exchange(four[2] + lower_bias, four[3] + lower_bias);
        }
        if (8 * i + row >= tile.count) continue;
        std::uint16_t* const here = to + static_cast<std::int64_t>(8 * i) * args_.out_columns;
        *reinterpret_cast<std::uint32_t*>(here) = stored[0];
        if constexpr (!kGated) *reinterpret_cast<std::uint32_t*>(here + 8) = stored[1];
      }
    }
  }
  // gated_by_sigmoid by approximate quotient and exponential, whose error bf16 hides.
  [[nodiscard]] __device__ __forceinline__ float activated(float gate, float up) const {
    const float limit = args_.gate.limit > 0.0F ? args_.gate.limit : kNoLimit;
    const float g = gate > limit ? limit : gate;
    const float above = up > limit ? limit : up;
    const float u = above < -limit ? -limit : above;
    return __fdividef(g, 1.0F + __expf(-args_.gate.alpha * g)) * (u + args_.gate.beta) * Code::kInputFactor;
  }
  // Of the lane's column and its neighbour's, in the row that the lane stores.
  [[nodiscard]] static __device__ __forceinline__ std::uint32_t exchange(float first, float second) {
    const bool odd = lane() / 4 % 2 != 0;
    const float other = __shfl_xor_sync(0xFFFFFFFFU, odd ? first : second, 4);
    return odd ? bf16_pair(other, second) : bf16_pair(first, other);
  }

  const GroupedArgs& args_;
  std::uint32_t base_;
};

template <class Code, bool kGated, int kHalves>
__global__ void __launch_bounds__(GroupedPlan<kHalves>::kThreads, 1)
    multiply_grouped(const __grid_constant__ GroupedArgs args) {
  extern __shared__ __align__(128) std::uint8_t memory[];
  GroupedBlock<Code, kGated, kHalves>(args, shared_address(memory)).run();
}

template <class Code, bool kGated, int kHalves>
int launch_grouped_plan(const GroupedArgs& args, int blocks, cudaStream_t stream) {
  using Plan = GroupedPlan<kHalves>;
  const auto kernel = multiply_grouped<Code, kGated, kHalves>;
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kShared);
      error != cudaSuccess)
    return error;
  kernel<<<static_cast<unsigned>(blocks), Plan::kThreads, Plan::kShared, stream>>>(args);
  return cudaGetLastError();
}

template <class Code>
int launch_grouped_as(const GroupedArgs& args, int blocks, cudaStream_t stream) {
  if (args.most_rows > kFewTileRows) {
    return args.gated ? launch_grouped_plan<Code, true, 2>(args, blocks, stream)
                      : launch_grouped_plan<Code, false, 2>(args, blocks, stream);
  }
  return args.gated ? launch_grouped_plan<Code, true, 1>(args, blocks, stream)
                    : launch_grouped_plan<Code, false, 1>(args, blocks, stream);
}

}  // namespace moracle::cuda
