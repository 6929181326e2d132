// y = x W^T for the rows of every expert, many rows an expert: weights become bf16 fragments in registers, once for up
// to 128 rows, and warpgroup products take the rows from shared memory.
//
//   tile      256 weight rows of an expert times up to 128 of its rows (pairs of token and choice)
//   stage     64 columns of a tile: codes and scales as records hold them, and the rows' inputs, 128 bytes each
//   producer  one warpgroup, whose threads copy 16 bytes at a time and never wait for a copy: records lie too far apart
//             for bulk copies, of which a stage would take 32
//   consumers two warpgroups, 128 weight rows each, as two products of 64; for few rows an expert, which decoding
//             bounds, four warpgroups of one product. What comes next is decoded while a product is under way
//
// Blocks stay, and take tiles in turn; tiles are sorted by the width of their products. Columns are permuted as records
// permute them, in x and in hidden rows alike. Each row is multiplied alone: whatever else a tile holds, its bits are
// the same.
#pragma once

#include <limits>

#include "kernels/cuda/decode/weights.cuh"
#include "kernels/cuda/prefill/launch.cuh"
#include "kernels/cuda/prefill/list.cuh"
#include "kernels/cuda/prefill/wgmma.cuh"

namespace moracle::cuda {

inline constexpr int kStageColumns = kPairColumns;
inline constexpr int kMostStages = 8;
inline constexpr int kTileWeights = 256;  // weight rows
inline constexpr int kTileTiles = kTileWeights / kTileRows;
inline constexpr float kNoLimit = std::numeric_limits<float>::infinity();

// kHalves products of 64 weight rows a warpgroup.
template <RecordKind kKind, int kHalves>
struct GroupedPlan {
  static constexpr RecordForm kForm = record_form(kKind);
  using Scales = ScalePlace<kKind>;
  static constexpr int kColumnBytes = code_bytes(kForm, 1);
  static constexpr int kTileCodes = kColumnBytes * kStageColumns;  // of a stage
  static constexpr int kStageWeightBytes = kTileTiles * (kTileCodes + Scales::kBytes);
  static constexpr int kMostRows = kHalves == 2 ? kMostTileRows : kFewTileRows;
  static constexpr int kGroups = kTileWeights / (64 * kHalves);
  static constexpr int kThreads = 128 * (1 + kGroups);
  static constexpr int kProducerRegisters = kHalves == 2 ? 40 : 32;
  static constexpr int kConsumerRegisters = kHalves == 2 ? 232 : 112;
  // What a block starts with is all that its warpgroups can have: one that asks for more waits for ever.
  static constexpr int kStartRegisters = 65536 / kThreads / 8 * 8;
  static_assert(kProducerRegisters + kGroups * kConsumerRegisters <= (1 + kGroups) * kStartRegisters);
  static constexpr int kRowBytes = kMostRows * kStageColumns * 2;  // of a stage
  static constexpr int kRest = 1024 + 2 * kMostStages * 8;
  static constexpr int kFit = (kSharedLimit - kRest) / (kRowBytes + kStageWeightBytes);
  static constexpr int kStages = kFit < kMostStages ? kFit : kMostStages;
  static constexpr int kShared = kRest + kStages * (kRowBytes + kStageWeightBytes);
};

// Ring of stages, for one side of it.
template <int kStages>
struct RingPlace {
  std::uint32_t stage = 0;
  std::uint32_t phase = 0;
  __device__ __forceinline__ void step() {
    if (++stage < kStages) return;
    stage = 0;
    phase ^= 1U;
  }
};

template <RecordKind kKind, Epilogue kEpilogue, int kHalves>
class GroupedBlock {
  using Plan = GroupedPlan<kKind, kHalves>;
  using Scales = typename Plan::Scales;
  using Sums = float[kHalves][Plan::kMostRows / 2];
  static constexpr RecordForm kForm = Plan::kForm;
  static constexpr int kStages = Plan::kStages;
  static constexpr int kTileCodes = Plan::kTileCodes;
  static constexpr int kStageWeightBytes = Plan::kStageWeightBytes;
  using StageAt = RingPlace<kStages>;

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
      // 16 bytes a thread of every kTogether tiles' codes; a few threads a tile's scales.
      constexpr int kTogether = kTileCodes < 2048 ? 2048 / kTileCodes : 1;
      constexpr int kOfTile = 128 / kTogether;            // threads
      constexpr int kScaleThreads = Scales::kBytes / 16;  // of a tile
      const std::uint8_t* const records = args_.weights + tile.expert * args_.expert_bytes;
      const std::uint8_t* const codes = records +
                                        static_cast<std::uint64_t>(first_tile + thread / kOfTile) * args_.tile_bytes +
                                        thread % kOfTile * 16;
      const std::uint8_t* scales = nullptr;
      if constexpr (kScaleThreads > 0) {
        scales = records + static_cast<std::uint64_t>(first_tile + thread / kScaleThreads) * args_.tile_bytes +
                 args_.record_columns * Plan::kColumnBytes + thread % kScaleThreads * 16;
      }
      const std::uint32_t to = chunk_address(thread / 8, chunk);
      int inside = 0;
      std::uint64_t offset = 0;
#pragma unroll 1
      for (int column = 0; column < args_.columns; column += kStageColumns) {
        wait_barrier(empty(at.stage), at.phase ^ 1U);
        const std::uint32_t weights = weights_at(at.stage) + thread * 16;
        // One address, not one for each copy.
        const std::uint8_t* from = codes + offset + inside * Plan::kColumnBytes;
#pragma unroll
        for (int i = 0; i < kTileTiles / kTogether; ++i) {
          if (thread / kOfTile + kTogether * i < tiles) copy_16(weights + i * 2048, from);
          from += kTogether * args_.tile_bytes;
          asm volatile("" : "+l"(from));
        }
        if constexpr (kScaleThreads > 0) {
          if (thread < kScaleThreads * tiles) {
            copy_16(weights + kTileTiles * kTileCodes,
                    scales + offset + inside / (kStageColumns * Scales::kPairs) * Scales::kBytes);
          }
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

  [[nodiscard]] static __device__ __forceinline__ int group() {
    return static_cast<int>(threadIdx.x) / 128 - 1;
  }
  [[nodiscard]] static __device__ __forceinline__ int warp() {
    return static_cast<int>(threadIdx.x) / 32 % 4;
  }
  [[nodiscard]] static __device__ __forceinline__ int lane() {
    return static_cast<int>(threadIdx.x) % 32;
  }

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
      const RowTile* const tile = args_.list + item / weight_tiles();
      if (tile->width != kWidth) return;
      Sums sums;
      multiply<kWidth>(sums, at);
      store<kWidth>(sums, *tile, item % weight_tiles() * kTileTiles + first_tile());
      item += static_cast<int>(gridDim.x);
    }
  }

  // Products read rows through the async proxy, which the barrier alone does not order behind the copies.
  __device__ __forceinline__ void wait_stage(const StageAt& at) const {
    wait_barrier(full(at.stage), at.phase);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  // Of 16 weight rows, for the warp's first product; the second is four tiles behind.
  [[nodiscard]] static __device__ __forceinline__ int first_tile() {
    return group() * 4 * kHalves + warp();
  }

  // What four fragments of one of the thread's two products are made of.
  struct Held {
    CodeWords<kKind> words;
    uint2 scales;
  };
  __device__ __forceinline__ void load(Held& held, std::uint32_t stage, int half) const {
    const std::uint32_t tile = static_cast<std::uint32_t>(first_tile() + half * 4);
#pragma unroll
    for (int i = 0; i < kCodeWords<kKind>; ++i)
      held.words[i] = load_shared_16(weights_at(stage) + tile * kTileCodes + i * 512 + lane() * 16);
    held.scales = Scales::load(weights_at(stage) + kTileTiles * kTileCodes + tile * Scales::kBytes, lane());
  }

  // The product of stage `s` that fragments[kBuffer] hold, while the fragments of what comes next are decoded.
  template <int kWidth, int kBuffer>
  __device__ __forceinline__ void multiply_batch(Sums& sums, Fragments (&fragments)[2], StageAt& at, int s,
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
    // Behind the last stage what is read is not used. Long codes would be loaded into fragments that are being
    // multiplied.
    Held held;
    if (kCodeWords<kKind> == 1) load(held, next.stage, kLast ? 0 : 1);
    wait_products<1>();
    if (kCodeWords < kKind >> 1) load(held, next.stage, kLast ? 0 : 1);
    // What was multiplied before is done, the last of the stage before among it.
    if (kHalf == 0 && s > 0) arrive_warp(empty(before), lane());
    ScaledWeights<kKind>::decode(fragments[1 - kBuffer], held.words, held.scales);
    // They are ready before the next products open.
#pragma unroll
    for (int i = 0; i < 16; ++i) asm volatile("" : "+r"(fragments[1 - kBuffer][i / 4][i % 4])::"memory");
    at = next;
  }

  template <int kWidth>
  __device__ __forceinline__ void multiply(Sums& sums, StageAt& at) const {
    Fragments fragments[2];
    wait_stage(at);
    Held held;
    load(held, at.stage, 0);
    ScaledWeights<kKind>::decode(fragments[0], held.words, held.scales);
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

  // Of the inputs of 32 rows, one a lane.
  [[nodiscard]] __device__ __forceinline__ float load_scale(const RowTile& tile, int rows) const {
    const int row = 32 * rows + lane();
    if (args_.scales == nullptr || row >= tile.count) return 1.0F;
    const int source = tile.first + row;
    return load_global(args_.scales + (args_.pairs != nullptr ? __ldg(args_.pairs + source) / args_.top_k : source));
  }
  // Where it stands in the code: what is loaded early takes registers.
  static __device__ __forceinline__ float load_global(const float* from) {
    float v = 0.0F;
    asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(from) : "memory");
    return v;
  }

  template <int kWidth>
  __device__ __forceinline__ void store(const Sums& sums, const RowTile& tile, int first_tile) const {
    // Few rows: scales are loaded where they are used, for want of registers.
    float scales[kHalves == 2 ? Plan::kMostRows / 32 : 1];
    if constexpr (kHalves == 2 && kEpilogue != Epilogue::hidden) {
#pragma unroll
      for (int i = 0; i < Plan::kMostRows / 32; ++i) scales[i] = load_scale(tile, i);
    }
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const int row_tile = first_tile + half * 4;
      if (row_tile >= args_.row_tiles) return;
      // What sums are multiplied by, and added to.
      const std::uint8_t* const weights =
          args_.weights + tile.expert * args_.expert_bytes + static_cast<std::uint64_t>(row_tile) * args_.tile_bytes;
      float upper_scale = 1.0F;
      float lower_scale = 1.0F;
      float upper_bias = 0.0F;
      float lower_bias = 0.0F;
      if constexpr (kForm.row_scales) {
        const auto* const rows = reinterpret_cast<const float*>(weights + args_.record_bytes) - kTileRows;
        upper_scale = __ldg(rows + lane() / 4);
        lower_scale = __ldg(rows + lane() / 4 + 8);
      }
      if constexpr (kForm.bias) {
        const auto* const bias = reinterpret_cast<const float*>(weights + args_.tile_bytes) - kTileRows;
        upper_bias = __ldg(bias + lane() / 4);
        lower_bias = __ldg(bias + lane() / 4 + 8);
      }
      const int g = lane() / 4;
      // Neighbours in a column exchange one of two rows, so that each stores two columns at once.
      const int row = lane() % 4 * 2 + g % 2;
      std::uint16_t* const to =
          args_.out + static_cast<std::int64_t>(tile.first + row) * args_.out_columns +
          (kEpilogue == Epilogue::out ? row_tile * kTileRows + g / 2 * 2 : permuted(row_tile * 8 + g / 2 * 2));
      float* whole =
          args_.whole + static_cast<std::int64_t>(tile.first + lane() % 4 * 2) * args_.out_columns + row_tile * 8 + g;
#pragma unroll
      for (int i = 0; i < kWidth / 8; ++i) {
        // Of the lane's two rows, in weight rows g and g + 8.
        float2 inputs = make_float2(1.0F, 1.0F);
        if constexpr (kEpilogue != Epilogue::hidden) {
          if (kHalves == 1 && i % 4 == 0) scales[0] = load_scale(tile, i / 4);
          const int first = 8 * i % 32 + lane() % 4 * 2;
          inputs.x = __shfl_sync(0xFFFFFFFFU, scales[kHalves == 2 ? i / 4 : 0], first);
          inputs.y = __shfl_sync(0xFFFFFFFFU, scales[kHalves == 2 ? i / 4 : 0], first + 1);
        }
        const float four[4] = {sums[half][4 * i] * (upper_scale * inputs.x) + upper_bias,
                               sums[half][4 * i + 1] * (upper_scale * inputs.y) + upper_bias,
                               sums[half][4 * i + 2] * (lower_scale * inputs.x) + lower_bias,
                               sums[half][4 * i + 3] * (lower_scale * inputs.y) + lower_bias};
        if constexpr (kEpilogue == Epilogue::whole_hidden) {
          store_two(whole, tile.count - 8 * i - lane() % 4 * 2, activated(four[0], four[2]),
                    activated(four[1], four[3]));
          whole += 8 * args_.out_columns;
          asm volatile("" : "+l"(whole));  // one address, not one for each step
          continue;
        }
        std::uint32_t stored[2];
        if constexpr (kEpilogue == Epilogue::hidden) {
          stored[0] = exchange(activated(four[0], four[2]) * kForm.input_factor,
                               activated(four[1], four[3]) * kForm.input_factor);
        } else {
          stored[0] = exchange(four[0], four[1]);
          stored[1] = exchange(four[2], four[3]);
        }
        if (8 * i + row >= tile.count) continue;
        std::uint16_t* const here = to + static_cast<std::int64_t>(8 * i) * args_.out_columns;
        *reinterpret_cast<std::uint32_t*>(here) = stored[0];
        if constexpr (kEpilogue == Epilogue::out) *reinterpret_cast<std::uint32_t*>(here + 8) = stored[1];
      }
    }
  }
  // One column of two rows, of which `count` are there.
  __device__ __forceinline__ void store_two(float* to, int count, float first, float second) const {
    if (count > 0) to[0] = first;
    if (count > 1) to[args_.out_columns] = second;
  }
  // gated_by_sigmoid by approximate quotient and exponential, whose error bf16 hides.
  [[nodiscard]] __device__ __forceinline__ float activated(float gate, float up) const {
    const float limit = args_.gate.limit > 0.0F ? args_.gate.limit : kNoLimit;
    const float g = gate > limit ? limit : gate;
    const float above = up > limit ? limit : up;
    const float u = above < -limit ? -limit : above;
    return __fdividef(g, 1.0F + __expf(-args_.gate.alpha * g)) * (u + args_.gate.beta);
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

template <RecordKind kKind, Epilogue kEpilogue, int kHalves>
__global__ void __launch_bounds__(GroupedPlan<kKind, kHalves>::kThreads, 1)
    multiply_grouped(const __grid_constant__ GroupedArgs args) {
  extern __shared__ __align__(128) std::uint8_t memory[];
  GroupedBlock<kKind, kEpilogue, kHalves>(args, shared_address(memory)).run();
}

template <RecordKind kKind, Epilogue kEpilogue, int kHalves>
int launch_grouped_plan(const GroupedArgs& args, int blocks, cudaStream_t stream) {
  using Plan = GroupedPlan<kKind, kHalves>;
  const auto kernel = multiply_grouped<kKind, kEpilogue, kHalves>;
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kShared);
      error != cudaSuccess)
    return error;
  kernel<<<static_cast<unsigned>(blocks), Plan::kThreads, Plan::kShared, stream>>>(args);
  return cudaGetLastError();
}

template <RecordKind kKind, int kHalves>
int launch_grouped_sized(const GroupedArgs& args, int blocks, cudaStream_t stream) {
  switch (args.epilogue) {
    case Epilogue::hidden:
      return launch_grouped_plan<kKind, Epilogue::hidden, kHalves>(args, blocks, stream);
    case Epilogue::whole_hidden:
      return launch_grouped_plan<kKind, Epilogue::whole_hidden, kHalves>(args, blocks, stream);
    case Epilogue::out:
      break;
  }
  return launch_grouped_plan<kKind, Epilogue::out, kHalves>(args, blocks, stream);
}

template <RecordKind kKind>
int launch_grouped_as(const GroupedArgs& args, int blocks, cudaStream_t stream) {
  return args.most_rows > kFewTileRows ? launch_grouped_sized<kKind, 2>(args, blocks, stream)
                                       : launch_grouped_sized<kKind, 1>(args, blocks, stream);
}

}  // namespace moracle::cuda
