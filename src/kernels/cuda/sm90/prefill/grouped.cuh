// y = x W^T for the rows of every expert, many rows an expert: weights become fragments in registers, once for up to
// 128 rows, and warpgroup products take the rows from shared memory.
//
//   tile      256 weight rows of an expert times up to 128 of its rows (pairs of token and choice)
//   stage     one or two panels of 64 columns of a tile: codes and scales as records hold them, and the rows' inputs,
//             bf16 or a byte each
//   producer  one warpgroup: a tensor copy for a panel's codes of all 16 tiles, which lie a tile's records apart, and
//             16 bytes a thread of inputs and scales; none waits for a copy
//   consumers two warpgroups, 128 weight rows each, as two products of 64; for few rows an expert, which decoding
//             bounds, four warpgroups of one product (bf16_products.cuh, byte_products.cuh)
//
// Blocks stay, and take tiles in turn; tiles are sorted by the width of their products. Columns are permuted as records
// permute them, in x and in intermediate rows alike. Each row is multiplied alone: whatever else a tile holds, its bits
// are the same.
#pragma once

#include "kernels/cuda/sm90/prefill/bf16_products.cuh"
#include "kernels/cuda/sm90/prefill/byte_products.cuh"
#include "kernels/cuda/sm90/prefill/launch.cuh"
#include "kernels/cuda/sm90/prefill/store.cuh"

namespace moracle::cuda {

template <class Plan, Epilogue kEpilogue>
class GroupedBlock {
  using Ring = GroupedRing<Plan>;
  using Place = typename Ring::Place;
  using Products = typename GroupedProducts<Plan>::Type;
  using Sums = typename Products::Sums;
  using Sum = typename Products::Sum;
  using Scales = typename Plan::Scales;
  static constexpr RecordForm kForm = Plan::kForm;
  static constexpr int kHalves = Plan::kHalves;
  static constexpr int kTileCodes = Plan::kTileCodes;
  static constexpr int kChunks = kPairColumns * Plan::kInputBytes / 16;  // of a panel's row
  static constexpr int kRowsAtOnce = 128 / kChunks;
  static constexpr int kRowSteps = Plan::kMostRows / kRowsAtOnce;
  // Of a column and of a tile of weight rows in what is stored.
  static constexpr int kOutBytes = kEpilogue == Epilogue::whole_hidden   ? 4
                                   : kEpilogue == Epilogue::coded_hidden ? 1
                                                                         : 2;
  static constexpr int kTileBytes = kOutBytes * (kEpilogue == Epilogue::out ? kTileRows : kTileRows / 2);
  using Stored = StoredRows<Plan, 4 * kHalves * kTileBytes>;

 public:
  __device__ __forceinline__ GroupedBlock(const GroupedArgs& args, std::uint32_t memory)
      : args_(args), ring_{(memory + 1023) & ~1023U} {}

  __device__ __forceinline__ void run() {
    if (threadIdx.x == 0) {
      for (int i = 0; i < Plan::kStages; ++i) {
        init_barrier(ring_.full(i), 129);                 // threads that copy, and one for the bulk
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
      // One thread copies all codes, a few threads a tile's scales.
      constexpr int kScaleThreads = Scales::kBytes / 16;  // of a tile
      constexpr int kWords = kTileCodes / 8;              // of a tile, as the map counts them
      const std::uint8_t* const records =
          args_.weights + tile.expert * args_.expert_bytes + static_cast<std::uint64_t>(first_tile) * args_.tile_bytes;
      int word = 0;
      const std::uint8_t* scales = nullptr;
      if constexpr (kScaleThreads > 0) {
        scales = records + static_cast<std::uint64_t>(thread / kScaleThreads) * args_.tile_bytes +
                 args_.record_columns * Plan::kColumnBytes + thread % kScaleThreads * 16;
      }
      const std::uint32_t to = chunk_address(thread / kChunks, chunk);
      int inside = 0;
#pragma unroll 1
      for (int column = 0; column < args_.columns; column += Plan::kStageColumns) {
        wait_barrier(ring_.empty(at.stage), at.phase ^ 1U);
        if (thread == 0) expect_codes(ring_.full(at.stage));
#pragma unroll
        for (int panel = 0; panel < Plan::kPanels; ++panel) {
          const std::uint32_t weights = ring_.weights_at(at.stage, panel);
          const int first = column + panel * kPairColumns;
          if (thread == 0) copy_codes(weights, {word, first_tile, tile.expert}, ring_.full(at.stage));
          if (kScaleThreads > 0 && !(Plan::kSharedScales && panel > 0)) {
            if (thread < kScaleThreads * tiles) copy_16(ring_.scales_at(at.stage, panel) + thread * 16, scales, 16);
          }
          const int size = Plan::kPanels == 1 || first < args_.columns ? 16 : 0;
#pragma unroll
          for (int i = 0; i < kRowSteps; ++i) {
            if (kRowsAtOnce * i >= tile.width) break;
            copy_16(ring_.rows_at(at.stage, panel) + to + i * 2048,
                    reinterpret_cast<const uint4*>(args_.inputs) + row_words[i] + first / kChunkColumns, size);
          }
          // Beside inputs that are zero stand the last weights once more: what a slot has left may be NaN.
          if (Plan::kPanels > 1 && first + kPairColumns >= args_.columns) continue;
          inside += kPairColumns;
          word += kWords;
          if (kScaleThreads > 0 && inside % (kPairColumns * Scales::kPairs) == 0) scales += Scales::kBytes;
          if (inside == args_.record_columns) {
            inside = 0;
            word += static_cast<int>(args_.record_bytes) / 8 - args_.record_columns * Plan::kColumnBytes / 8;
            if constexpr (kScaleThreads > 0)
              scales += args_.record_bytes - args_.record_columns / (kPairColumns * Scales::kPairs) * Scales::kBytes;
          }
        }
        if constexpr (Plan::kInputScales) {
          if (thread < tile.width) copy_4(ring_.input_scales_at(at.stage) + thread * 4, input_scales + column / 128);
        }
        // Arrives once what this thread copies is there.
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(ring_.full(at.stage)) : "memory");
        at.step();
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
    if constexpr (Plan::kPanels == 1) {
      asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    } else {
      asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(size) : "memory");
    }
  }
  // The barrier counts the bytes of a stage's codes.
  static __device__ __forceinline__ void expect_codes(std::uint32_t barrier) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                 "n"(Plan::kPanels * kTileTiles * kTileCodes)
                 : "memory");
  }
  // Of 16 tiles; what lies behind the last is zero.
  __device__ __forceinline__ void copy_codes(std::uint32_t to, int3 from, std::uint32_t barrier) const {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
        "[%5];" ::"r"(to),
        "l"(&args_.codes), "r"(from.x), "r"(from.y), "r"(from.z), "r"(barrier)
        : "memory");
  }
  static __device__ __forceinline__ void copy_4(std::uint32_t to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
  }

  // Tiles in turn. Products that run on while others begin take a loop for each width, by which tiles are sorted: in
  // one loop ptxas finds no registers for it and serializes them (C7512). The others need fewer in one loop.
  __device__ __forceinline__ void consume() const {
    Place at;
    int item = static_cast<int>(blockIdx.x);
    if constexpr (Plan::kBytes && !Products::kInPlace) {
#pragma unroll 1
      for (; item < items(); item += static_cast<int>(gridDim.x)) take_width<Plan::kMostRows>(width_of(item), item, at);
    } else {
      take_widths<Plan::kMostRows>(item, at);
    }
    Stored::close();
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
    const std::uint32_t place = ring_.item_at(threadIdx.x);
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
    return load_global(reinterpret_cast<const std::uint8_t*>(args_.scales + input_of(tile, row)));
  }
  // Where it stands in the code: what is loaded early takes registers.
  static __device__ __forceinline__ float load_global(const std::uint8_t* from) {
    float v = 0.0F;
    asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(from) : "memory");
    return v;
  }

  // Finished rows, by way of shared memory (store.cuh).
  template <int kWidth>
  __device__ __forceinline__ void store(const Sums& sums, const RowTile& tile, int first_tile) const {
    float scales[Plan::kMostRows / 32];  // of inputs
    if constexpr (kEpilogue != Epilogue::hidden && !Plan::kInputScales) {
#pragma unroll
      for (int i = 0; i < Plan::kMostRows / 32; ++i) scales[i] = load_scale(tile, i);
    }
    // All loads are under way before the first is waited for.
    RowTerms terms[kHalves];
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const int row_tile = min(first_tile + half * 4, args_.row_tiles - 1);
      terms[half] = load_terms(tile.expert, row_tile);
    }
    const Stored stored(ring_);
    stored.open();
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      if (first_tile + half * 4 < args_.row_tiles) store_half<kWidth>(sums[half], scales, terms[half], half, stored);
    }
    // Of the warpgroup.
    const int first = first_tile - warp_of_group();
    const int tiles = min(4 * kHalves, args_.row_tiles - first);
    const std::int64_t stride = static_cast<std::int64_t>(args_.out_columns) * kOutBytes;
    stored.send(static_cast<std::uint8_t*>(args_.out) + tile.first * stride + first * kTileBytes, stride, tile.count,
                tiles * kTileBytes);
  }
  // What the sums of weight rows g and g + 8 of a tile are multiplied by, and added to.
  struct RowTerms {
    float expert_scale = 1.0F;  // of inputs, or of the codes that are stored
    float2 scale = {1.0F, 1.0F};
    float2 bias = {0.0F, 0.0F};
  };
  [[nodiscard]] __device__ __forceinline__ RowTerms load_terms(int expert, int row_tile) const {
    const std::uint8_t* const first = args_.weights + expert * args_.expert_bytes;
    const std::uint8_t* const weights = first + static_cast<std::uint64_t>(row_tile) * args_.tile_bytes;
    RowTerms terms;
    if constexpr (kEpilogue == Epilogue::coded_hidden) terms.expert_scale = load_global(first + args_.code_scale);
    if (kEpilogue == Epilogue::out && args_.input_scale != kAbsent)
      terms.expert_scale = load_global(first + args_.input_scale);
    if constexpr (kForm.row_scales) {
      const std::uint8_t* const row = weights + args_.record_bytes + (lane_of_warp() / 4 - kTileRows) * 4;
      terms.scale = {load_global(row), load_global(row + 32)};
    }
    if constexpr (kForm.bias) {
      const std::uint8_t* const row = weights + args_.tile_bytes + (lane_of_warp() / 4 - kTileRows) * 4;
      terms.bias = {load_global(row), load_global(row + 32)};
    }
    return terms;
  }
  // 16 weight rows a warp.
  template <int kWidth>
  __device__ __forceinline__ void store_half(const Sum (&sums)[Plan::kMostRows / 2],
                                             const float (&scales)[Plan::kMostRows / 32], const RowTerms& terms,
                                             int half, const Stored& stored) const {
    const float factor = Products::kOutputFactor * (kEpilogue == Epilogue::out ? terms.expert_scale : 1.0F);
    const float upper_scale = factor * terms.scale.x;
    const float lower_scale = factor * terms.scale.y;
    const float code_inverse = 1.0F / (kEpilogue == Epilogue::coded_hidden ? terms.expert_scale : 1.0F);
    const int g = lane_of_warp() / 4;
    const int pair = lane_of_warp() % 4 * 2;  // first of the lane's two rows
    const int warp = warp_of_group() + 4 * half;
    // Where the lane stores; the next eight rows are kNext bytes further.
    constexpr std::uint32_t kNext = 8 * Plan::kStoredRowBytes;
    std::uint32_t to = 0;
    if constexpr (kEpilogue == Epilogue::out) {
      to = stored.row(lane_of_warp() / 16 * 8 + g % 2 * 4 + pair / 2) + warp * 32 + g / 2 % 2 * 16;
    } else if constexpr (kEpilogue == Epilogue::hidden) {
      to = stored.row(pair + g % 2) + permuted(warp * 8 + g / 2 * 2) * 2;
    } else if constexpr (kEpilogue == Epilogue::coded_hidden) {
      to = stored.row(pair) + permuted_byte(warp * 8 + g);
    } else {
      to = stored.row(pair) + (warp * 8 + g) * 4;
    }
    std::uint32_t before[2];
#pragma unroll
    for (int i = 0; i < kWidth / 8; ++i) {
      // Of the lane's two rows, in weight rows g and g + 8.
      float2 inputs = make_float2(1.0F, 1.0F);
      if constexpr (kEpilogue != Epilogue::hidden && !Plan::kInputScales) {
        inputs.x = __shfl_sync(0xFFFFFFFFU, scales[i / 4], 8 * i % 32 + pair);
        inputs.y = __shfl_sync(0xFFFFFFFFU, scales[i / 4], 8 * i % 32 + pair + 1);
      }
      const float four[4] = {Products::number(sums[4 * i]) * (upper_scale * inputs.x) + terms.bias.x,
                             Products::number(sums[4 * i + 1]) * (upper_scale * inputs.y) + terms.bias.x,
                             Products::number(sums[4 * i + 2]) * (lower_scale * inputs.x) + terms.bias.y,
                             Products::number(sums[4 * i + 3]) * (lower_scale * inputs.y) + terms.bias.y};
      if constexpr (kEpilogue == Epilogue::whole_hidden) {
        store_shared_4(to + i * kNext, __float_as_uint(activated(four[0], four[2])));
        store_shared_4(to + i * kNext + Plan::kStoredRowBytes, __float_as_uint(activated(four[1], four[3])));
      } else if constexpr (kEpilogue == Epilogue::coded_hidden) {
        const std::uint32_t codes =
            pack_e4m3x2(activated(four[0], four[2]) * code_inverse, activated(four[1], four[3]) * code_inverse);
        store_shared_1(to + i * kNext, codes);
        store_shared_1(to + i * kNext + Plan::kStoredRowBytes, codes >> 8);
      } else if constexpr (kEpilogue == Epilogue::hidden) {
        // Neighbours in a column exchange one of two rows, so that each stores two columns at once.
        store_shared_4(to + i * kNext, exchange(activated(four[0], four[2]) * kForm.input_factor,
                                                activated(four[1], four[3]) * kForm.input_factor));
      } else if (i % 2 == 0) {
        before[0] = pack_bf16(four[0], four[1]);
        before[1] = pack_bf16(four[2], four[3]);
      } else {
        store_blocks(to + (i - 1) * kNext, before[0], before[1], pack_bf16(four[0], four[1]),
                     pack_bf16(four[2], four[3]));
      }
    }
  }
  // gated_by_sigmoid by approximate reciprocal and power, whose error bf16 hides; what would be subnormal is zero.
  [[nodiscard]] __device__ __forceinline__ float activated(float gate, float up) const {
    const float limit = args_.gate.limit;
    const float g = smaller(gate, limit);
    const float u = larger(smaller(up, limit), -limit);
    constexpr float kLog2OfE = 1.44269504F;
    float power = 0.0F;
    float inverse = 0.0F;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(-kLog2OfE * args_.gate.alpha * g));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0F + power));
    return g * inverse * (u + args_.gate.beta);
  }
  // Of the lane's column and its neighbour's, in the row that the lane stores.
  [[nodiscard]] static __device__ __forceinline__ std::uint32_t exchange(float first, float second) {
    const bool odd = lane_of_warp() / 4 % 2 != 0;
    const float other = __shfl_xor_sync(0xFFFFFFFFU, odd ? first : second, 4);
    return odd ? pack_bf16(other, second) : pack_bf16(first, other);
  }

  const GroupedArgs& args_;
  Ring ring_;
};

template <class Plan, Epilogue kEpilogue>
__global__ void __launch_bounds__(Plan::kThreads, 1) grouped_gemm(const __grid_constant__ GroupedArgs args) {
  extern __shared__ __align__(128) std::uint8_t memory[];
  GroupedBlock<Plan, kEpilogue>(args, shared_address(memory)).run();
}

template <class Plan, Epilogue kEpilogue>
int launch_grouped_plan(const GroupedArgs& args, int blocks, cudaStream_t stream) {
  const auto kernel = grouped_gemm<Plan, kEpilogue>;
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kShared);
      error != cudaSuccess)
    return error;
  kernel<<<static_cast<unsigned>(blocks), Plan::kThreads, Plan::kShared, stream>>>(args);
  return cudaGetLastError();
}

// Intermediate rows are codes or f32 where the next product takes them quantized: as bytes, or E2M1's as bf16.
template <class Plan>
int launch_grouped_sized(const GroupedArgs& args, int blocks, cudaStream_t stream) {
  if (args.epilogue == Epilogue::out) return launch_grouped_plan<Plan, Epilogue::out>(args, blocks, stream);
  if (args.epilogue == Epilogue::coded_hidden) {
    if constexpr (Plan::kCodesHidden) return launch_grouped_plan<Plan, Epilogue::coded_hidden>(args, blocks, stream);
    return cudaErrorInvalidValue;
  }
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
