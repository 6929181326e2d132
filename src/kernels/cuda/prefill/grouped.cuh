// y = x W^T for the rows of every expert, many rows an expert: weights become fragments in registers, once for up to 128
// rows, and warpgroup products take the rows from shared memory.
//
//   tile      256 weight rows of an expert times up to 128 of its rows (pairs of token and choice)
//   stage     64 columns of a tile: codes and scales as records hold them, and the rows' inputs, bf16 or a byte each
//   producer  one warpgroup, whose threads copy 16 bytes at a time and never wait for a copy: records lie too far apart
//             for bulk copies, of which a stage would take 32
//   consumers two warpgroups, 128 weight rows each, as two products of 64; for few rows an expert, which decoding
//             bounds, four warpgroups of one product (bf16_products.cuh, byte_products.cuh)
//
// Blocks stay, and take tiles in turn; tiles are sorted by the width of their products. Columns are permuted as records
// permute them, in x and in hidden rows alike. Each row is multiplied alone: whatever else a tile holds, its bits are
// the same.
#pragma once

#include "kernels/cuda/prefill/bf16_products.cuh"
#include "kernels/cuda/prefill/byte_products.cuh"
#include "kernels/cuda/prefill/launch.cuh"

namespace moracle::cuda {

template <class Plan, Epilogue kEpilogue>
class GroupedBlock {
  using Ring = GroupedRing<Plan>;
  using Place = typename Ring::Place;
  using Products = typename GroupedProducts<Plan>::Type;
  using Sums = typename Products::Sums;
  using Scales = typename Plan::Scales;
  static constexpr RecordForm kForm = Plan::kForm;
  static constexpr int kHalves = Plan::kHalves;
  static constexpr int kTileCodes = Plan::kTileCodes;
  static constexpr int kChunks = kStageColumns * Plan::kInputBytes / 16;  // of a row
  static constexpr int kRowsAtOnce = 128 / kChunks;
  static constexpr int kRowSteps = Plan::kMostRows / kRowsAtOnce;

 public:
  __device__ __forceinline__ GroupedBlock(const GroupedArgs& args, std::uint32_t memory)
      : args_(args), ring_{(memory + 1023) & ~1023U} {}

  __device__ __forceinline__ void run() {
    if (threadIdx.x == 0) {
      for (int i = 0; i < Plan::kStages; ++i) {
        init_barrier(ring_.full(i), 128);                 // threads that copy
        init_barrier(ring_.empty(i), 4 * Plan::kGroups);  // warps that read
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
  [[nodiscard]] __device__ __forceinline__ int weight_tiles() const {
    return (args_.row_tiles + kTileTiles - 1) / kTileTiles;
  }
  [[nodiscard]] __device__ __forceinline__ int items() const { return __ldg(args_.listed) * weight_tiles(); }

  // Copies of a stage, by a warpgroup.
  __device__ __forceinline__ void produce() const {
    const int thread = static_cast<int>(threadIdx.x);
    const int chunk = thread % kChunks;
    const int count = items();
    constexpr int kTogetherColumns = kStageColumns * Plan::kStagesTogether;
    const int columns = (args_.columns + kTogetherColumns - 1) / kTogetherColumns * kTogetherColumns;
    Place at;
#pragma unroll 1
    for (int item = static_cast<int>(blockIdx.x); item < count; item += static_cast<int>(gridDim.x)) {
      const RowTile tile = args_.list[item / weight_tiles()];
      const int first_tile = item % weight_tiles() * kTileTiles;
      const int tiles = min(kTileTiles, args_.row_tiles - first_tile);
      constexpr int kChunkColumns = 16 / Plan::kInputBytes;
      std::uint32_t row_words[kRowSteps];
#pragma unroll
      for (int i = 0; i < kRowSteps; ++i) {
        row_words[i] = static_cast<std::uint32_t>(input_of(tile, thread / kChunks + kRowsAtOnce * i)) *
                           static_cast<std::uint32_t>(args_.columns / kChunkColumns) +
                       chunk;
      }
      const float* input_scales = nullptr;
      if constexpr (Plan::kInputScales) {
        input_scales = args_.scales + static_cast<std::int64_t>(input_of(tile, thread)) * (args_.columns / 128);
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
      const std::uint32_t to = chunk_address(thread / kChunks, chunk);
      int inside = 0;
      std::uint64_t offset = 0;
#pragma unroll 1
      for (int column = 0; column < columns; column += kStageColumns) {
        wait_barrier(ring_.empty(at.stage), at.phase ^ 1U);
        const int size = Plan::kStagesTogether == 1 || column < args_.columns ? 16 : 0;
        const std::uint32_t weights = ring_.weights_at(at.stage) + thread * 16;
        // One address, not one for each copy.
        const std::uint8_t* from = codes + offset + inside * Plan::kColumnBytes;
#pragma unroll
        for (int i = 0; i < kTileTiles / kTogether; ++i) {
          if (thread / kOfTile + kTogether * i < tiles) copy_16(weights + i * 2048, from, size);
          from += kTogether * args_.tile_bytes;
          asm volatile("" : "+l"(from));
        }
        if constexpr (kScaleThreads > 0) {
          if (thread < kScaleThreads * tiles) {
            copy_16(weights + kTileTiles * kTileCodes,
                    scales + offset + inside / (kStageColumns * Scales::kPairs) * Scales::kBytes, size);
          }
        }
#pragma unroll
        for (int i = 0; i < kRowSteps; ++i) {
          if (kRowsAtOnce * i >= tile.width) break;
          copy_16(ring_.rows_at(at.stage) + to + i * 2048,
                  reinterpret_cast<const uint4*>(args_.inputs) + row_words[i] + column / kChunkColumns, size);
        }
        if constexpr (Plan::kInputScales) {
          if (thread < tile.width)
            copy_4(ring_.weights_at(at.stage) + Plan::kWeightBytes + thread * 4, input_scales + column / 128);
        }
        // Arrives once what this thread copies is there.
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(ring_.full(at.stage)) : "memory");
        at.step();
        inside += kStageColumns;
        if (inside == args_.record_columns) {
          inside = 0;
          offset += args_.record_bytes;
        }
      }
    }
  }
  // Row of the inputs; the tile's first one in place of those beyond its count.
  [[nodiscard]] __device__ __forceinline__ int input_of(const RowTile& tile, int row) const {
    const int source = tile.first + (row < tile.count ? row : 0);
    return args_.pairs != nullptr ? __ldg(args_.pairs + source) / args_.top_k : source;
  }
  static __device__ __forceinline__ std::uint32_t chunk_address(int row, int chunk) {
    const int moved = Plan::kBytes ? chunk ^ row / 2 % 4 : chunk ^ row % 8;
    return static_cast<std::uint32_t>(row * kChunks * 16 + (moved << 4));
  }
  // `size` 0: zeros instead.
  static __device__ __forceinline__ void copy_16(std::uint32_t to, const void* from, int size) {
    if constexpr (Plan::kStagesTogether == 1) {
      asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    } else {
      asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(size) : "memory");
    }
  }
  static __device__ __forceinline__ void copy_4(std::uint32_t to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
  }

  // Tiles in turn. Products of bf16, which run on while others begin, take a loop for each width, by which tiles are
  // sorted: in one loop ptxas finds no registers for it and serializes them (C7512). The others need fewer in one loop.
  __device__ __forceinline__ void consume() const {
    Place at;
    int item = static_cast<int>(blockIdx.x);
    if constexpr (Plan::kBytes) {
#pragma unroll 1
      for (; item < items(); item += static_cast<int>(gridDim.x)) take_width<Plan::kMostRows>(width_of(item), item, at);
    } else {
      take_widths<Plan::kMostRows>(item, at);
    }
  }
  template <int kWidth>
  __device__ __forceinline__ void take_widths(int& item, Place& at) const {
#pragma unroll 1
    for (; item < items() && width_of(item) == kWidth; item += static_cast<int>(gridDim.x)) take<kWidth>(item, at);
    if constexpr (kWidth > kWidthStep) take_widths<kWidth - kWidthStep>(item, at);
  }
  template <int kWidth>
  __device__ __forceinline__ void take_width(int width, int& item, Place& at) const {
    if (width == kWidth) {
      take<kWidth>(item, at);
    } else if constexpr (kWidth > kWidthStep) {
      take_width<kWidth - kWidthStep>(width, item, at);
    }
  }
  template <int kWidth>
  __device__ __forceinline__ void take(int& item, Place& at) const {
    Sums sums;
    // What is made of the item is made anew, not held beside sums; beside those of bytes it waits in shared memory.
    const std::uint32_t place = ring_.end() + threadIdx.x * 4;
    if constexpr (Plan::kBytes) asm volatile("st.shared.s32 [%0], %1;" ::"r"(place), "r"(item) : "memory");
    Products(ring_, args_.columns).template multiply<kWidth>(sums, at);
    if constexpr (Plan::kBytes) asm volatile("ld.shared.s32 %0, [%1];" : "=r"(item) : "r"(place) : "memory");
    asm volatile("" : "+r"(item));
    store<kWidth>(sums, args_.list[item / weight_tiles()],
                  item % weight_tiles() * kTileTiles + first_tile_of_warp<kHalves>());
  }
  [[nodiscard]] __device__ __forceinline__ int width_of(int item) const {
    return __ldg(&args_.list[item / weight_tiles()].width);
  }

  // Of the inputs of 32 rows, one a lane.
  [[nodiscard]] __device__ __forceinline__ float load_scale(const RowTile& tile, int rows) const {
    const int row = 32 * rows + lane_of_warp();
    if (Plan::kInputScales || args_.scales == nullptr || row >= tile.count) return 1.0F;
    return load_global(args_.scales + input_of(tile, row));
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
    if constexpr (kHalves == 2 && kEpilogue != Epilogue::hidden && !Plan::kInputScales) {
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
      float upper_scale = Products::kOutputFactor;
      float lower_scale = Products::kOutputFactor;
      float upper_bias = 0.0F;
      float lower_bias = 0.0F;
      if constexpr (kForm.row_scales) {
        const auto* const rows = reinterpret_cast<const float*>(weights + args_.record_bytes) - kTileRows;
        upper_scale *= __ldg(rows + lane_of_warp() / 4);
        lower_scale *= __ldg(rows + lane_of_warp() / 4 + 8);
      }
      if constexpr (kForm.bias) {
        const auto* const bias = reinterpret_cast<const float*>(weights + args_.tile_bytes) - kTileRows;
        upper_bias = __ldg(bias + lane_of_warp() / 4);
        lower_bias = __ldg(bias + lane_of_warp() / 4 + 8);
      }
      const int g = lane_of_warp() / 4;
      int pair = lane_of_warp() % 4 * 2;  // first of the lane's two rows
      asm volatile("" : "+r"(pair));      // what is made of it is made here: sums leave no registers for it
      // Neighbours in a column exchange one of two rows, so that each stores two columns at once.
      const int row = pair + g % 2;
      const int left = tile.count - (kEpilogue == Epilogue::whole_hidden ? pair : row);
      std::uint16_t* to =
          args_.out + static_cast<std::int64_t>(tile.first + row) * args_.out_columns +
          (kEpilogue == Epilogue::out ? row_tile * kTileRows + g / 2 * 2 : permuted(row_tile * 8 + g / 2 * 2));
      float* whole =
          args_.whole + static_cast<std::int64_t>(tile.first + pair) * args_.out_columns + row_tile * 8 + g;
#pragma unroll
      for (int i = 0; i < kWidth / 8; ++i) {
        // Of the lane's two rows, in weight rows g and g + 8.
        float2 inputs = make_float2(1.0F, 1.0F);
        if constexpr (kEpilogue != Epilogue::hidden && !Plan::kInputScales) {
          if (kHalves == 1 && i % 4 == 0) scales[0] = load_scale(tile, i / 4);
          inputs.x = __shfl_sync(0xFFFFFFFFU, scales[kHalves == 2 ? i / 4 : 0], 8 * i % 32 + pair);
          inputs.y = __shfl_sync(0xFFFFFFFFU, scales[kHalves == 2 ? i / 4 : 0], 8 * i % 32 + pair + 1);
        }
        const float four[4] = {Products::number(sums[half][4 * i]) * (upper_scale * inputs.x) + upper_bias,
                               Products::number(sums[half][4 * i + 1]) * (upper_scale * inputs.y) + upper_bias,
                               Products::number(sums[half][4 * i + 2]) * (lower_scale * inputs.x) + lower_bias,
                               Products::number(sums[half][4 * i + 3]) * (lower_scale * inputs.y) + lower_bias};
        if constexpr (kEpilogue == Epilogue::whole_hidden) {
          store_two(whole, left - 8 * i, activated(four[0], four[2]),
                    activated(four[1], four[3]));
          whole += 8 * args_.out_columns;
          asm volatile("" : "+l"(whole));  // one address, not one for each step
          continue;
        }
        std::uint16_t* const here = to;
        to += 8 * args_.out_columns;
        asm volatile("" : "+l"(to));
        std::uint32_t stored[2];
        if constexpr (kEpilogue == Epilogue::hidden) {
          stored[0] = exchange(activated(four[0], four[2]) * kForm.input_factor,
                               activated(four[1], four[3]) * kForm.input_factor);
        } else {
          stored[0] = exchange(four[0], four[1]);
          stored[1] = exchange(four[2], four[3]);
        }
        // What each of the two needs fewer registers for.
        if (Plan::kBytes ? 8 * i >= left : 8 * i + row >= tile.count) continue;
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
    const float limit = args_.gate.limit;
    const float g = gate > limit ? limit : gate;
    const float above = up > limit ? limit : up;
    const float u = above < -limit ? -limit : above;
    return __fdividef(g, 1.0F + __expf(-args_.gate.alpha * g)) * (u + args_.gate.beta);
  }
  // Of the lane's column and its neighbour's, in the row that the lane stores.
  [[nodiscard]] static __device__ __forceinline__ std::uint32_t exchange(float first, float second) {
    const bool odd = lane_of_warp() / 4 % 2 != 0;
    const float other = __shfl_xor_sync(0xFFFFFFFFU, odd ? first : second, 4);
    return odd ? bf16_pair(other, second) : bf16_pair(first, other);
  }

  const GroupedArgs& args_;
  Ring ring_;
};

template <class Plan, Epilogue kEpilogue>
__global__ void __launch_bounds__(Plan::kThreads, 1) multiply_grouped(const __grid_constant__ GroupedArgs args) {
  extern __shared__ __align__(128) std::uint8_t memory[];
  GroupedBlock<Plan, kEpilogue>(args, shared_address(memory)).run();
}

template <class Plan, Epilogue kEpilogue>
int launch_grouped_plan(const GroupedArgs& args, int blocks, cudaStream_t stream) {
  const auto kernel = multiply_grouped<Plan, kEpilogue>;
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kShared);
      error != cudaSuccess)
    return error;
  kernel<<<static_cast<unsigned>(blocks), Plan::kThreads, Plan::kShared, stream>>>(args);
  return cudaGetLastError();
}

// Hidden rows are whole where the next product takes them quantized: as bytes, or E2M1's as bf16.
template <class Plan>
int launch_grouped_sized(const GroupedArgs& args, int blocks, cudaStream_t stream) {
  if (args.epilogue == Epilogue::out) return launch_grouped_plan<Plan, Epilogue::out>(args, blocks, stream);
  if constexpr (Plan::kBytes) return launch_grouped_plan<Plan, Epilogue::whole_hidden>(args, blocks, stream);
  if constexpr (!Plan::kBytes) {
    if (args.epilogue == Epilogue::hidden) return launch_grouped_plan<Plan, Epilogue::hidden>(args, blocks, stream);
    if constexpr (Plan::kForm.code == DeviceCode::e2m1)
      return launch_grouped_plan<Plan, Epilogue::whole_hidden>(args, blocks, stream);
  }
  return cudaErrorInvalidValue;
}

template <RecordKind kKind, Operand kOperand>
int launch_grouped_as(const GroupedArgs& args, int blocks, cudaStream_t stream) {
  return args.most_rows > kFewTileRows ? launch_grouped_sized<GroupedPlan<kKind, kOperand, 2>>(args, blocks, stream)
                                       : launch_grouped_sized<GroupedPlan<kKind, kOperand, 1>>(args, blocks, stream);
}

}  // namespace moracle::cuda
