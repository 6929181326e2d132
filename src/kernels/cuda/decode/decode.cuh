// The experts pass of few tokens in one launch: weights are streamed once, in order, by every multiprocessor.
//
//   phase 1  item = (unit, tile of 8 gate and 8 up rows), all columns. Items are dealt evenly and in order to the
//   blocks.
//            A group of warps takes an item; each warp holds its columns of the tokens' inputs in registers. The
//            activation warp adds the warps' sums in their order and stores the hidden rows.
//   phase 2  a block owns tiles of 16 output rows for all units, so that the weighted sum over a token's choices is
//   made
//            in one place and in one order: no atomics, the same bits each time. Of the tiles left over where blocks
//            have no whole one, two blocks halve the units.
//
// Warp 0 produces: it copies records into a ring, through the change of phase, since weights wait for nothing. Hidden
// rows are their own flags: a 16-byte word of all ones means "not there yet". So the grid has no barrier, but all
// blocks must be resident (a cooperative launch), and each makes its part of phase 1 before it waits for others. A
// launch writes one of two buffers of hidden rows, and fills what the launch before wrote in the other with ones again.
#pragma once

#include "kernels/cuda/decode/codes.cuh"
#include "kernels/cuda/decode/plan.cuh"
#include "kernels/cuda/decode/routing.cuh"
#include "kernels/cuda/launch.h"

namespace moracle::cuda {

// Phase 2's part of a block: a tile and the units whose products it adds.
struct DownSegment {
  int tile;
  int begin;
  int end;
  bool shared;  // with the block beside it, whose share of the units is the other one
};

template <class Plan>
class DecodeBlock {
  using Code = typename Plan::Code;
  using Up = typename Plan::Up;
  using Down = typename Plan::Down;
  using Rest = typename Plan::Rest;
  static constexpr int kSlots = Plan::kSlots;
  static constexpr std::uint32_t kOnes = 0xFFFFFFFFU;

 public:
  __device__ __forceinline__ DecodeBlock(const DecodeArgs& args, std::uint8_t* memory)
      : args_(args), rest_(*reinterpret_cast<Rest*>(memory)) {}

  __device__ __forceinline__ void run() {
    uint4 x[2 * Up::kHeld];
    OwnPairs<Plan> own;
    begin(own, x);
    if (warp_id() == 0) {
      if (lane() == 0) produce();
      return;
    }
    if (rest_.repeats != 0) own.merge(args_);
    own.list(rest_);
    sync_threads<1>(Plan::kThreads - 32);
    if (warp_id() <= Plan::kWarps) {
      gate_up(x);
    } else {
      clear_other_hidden();
      activate();
      if (block() == 0 && lane() == 0) advance();
    }
    sync_threads<3>(Plan::kThreads - 32);  // the sums' memory changes hands
    if (segments() > 0 && warp_id() <= Plan::kDownWarps) down();
  }

 private:
  // Registers are short: what is cheap is computed where it is needed.
  [[nodiscard]] static __device__ __forceinline__ int block() { return static_cast<int>(blockIdx.x); }
  [[nodiscard]] static __device__ __forceinline__ int warp_id() { return static_cast<int>(threadIdx.x) / 32; }
  [[nodiscard]] static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  [[nodiscard]] static __device__ __forceinline__ int blocks() { return static_cast<int>(gridDim.x); }
  // Of a tile's upper half; also the column whose inputs the lane holds.
  [[nodiscard]] __device__ __forceinline__ int row() const { return lane() / 4; }
  // Which two columns the lane's sums are of.
  [[nodiscard]] __device__ __forceinline__ int part() const { return lane() % 4; }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t ring() const {
    return shared_address(&rest_) + Plan::kRestBytes;
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t full() const { return shared_address(rest_.full); }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t empty() const { return shared_address(rest_.empty); }
  [[nodiscard]] __device__ __forceinline__ int first_item(int block) const {
    const auto all = static_cast<unsigned>(rest_.unit_count * Plan::kUpTiles);
    return static_cast<int>(static_cast<unsigned>(block) * all / static_cast<unsigned>(blocks()));
  }
  [[nodiscard]] __device__ __forceinline__ int items() const { return first_item(block() + 1) - first_item(block()); }
  // Output tiles of the block alone, blocks that share one of the tiles left over, and the block's tiles in all.
  [[nodiscard]] static __device__ __forceinline__ int whole_tiles() { return Plan::kDownTiles / blocks(); }
  [[nodiscard]] static __device__ __forceinline__ int shares() {
    return whole_tiles() > 0 && Plan::kDownTiles % blocks() * 2 <= blocks() ? 2 : 1;
  }
  [[nodiscard]] static __device__ __forceinline__ int segments() {
    return whole_tiles() + (block() < Plan::kDownTiles % blocks() * shares() ? 1 : 0);
  }

  struct Place {
    std::uint32_t slot;
    std::uint32_t phase;
  };
  static __device__ __forceinline__ Place place(std::uint32_t record) {
    return {record % kSlots, record / kSlots & 1U};
  }
  [[nodiscard]] __device__ __forceinline__ std::uint16_t* hidden() const {
    return args_.hidden + (rest_.launch & 1U) * args_.hidden_buffer;
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t sums_full(int i) const {
    return shared_address(rest_.sums_full) + 8 * static_cast<std::uint32_t>(i);
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t sums_empty(int i) const {
    return shared_address(rest_.sums_empty) + 8 * static_cast<std::uint32_t>(i);
  }
  [[nodiscard]] __device__ __forceinline__ DownSegment segment(int i) const {
    const int units = rest_.unit_count;
    if (i < whole_tiles()) return {block() + i * blocks(), 0, units, false};
    const int share = block() % shares();
    return {whole_tiles() * blocks() + block() / shares(), share * units / shares(), (share + 1) * units / shares(),
            shares() == 2};
  }
  // The place in the pairs of the token whose inputs this lane holds; columns without a token repeat the first.
  [[nodiscard]] __device__ __forceinline__ int own_column(const DecodeUnit& unit) const {
    return unit.first + (row() < unit.tokens ? row() : 0);
  }

  // Barriers and routing. With one token its inputs are loaded meanwhile.
  __device__ __forceinline__ void begin(OwnPairs<Plan>& own, uint4* x) {
    const int tid = static_cast<int>(threadIdx.x);
    if (tid == 0) {
      rest_.launch = ~*static_cast<volatile std::uint32_t*>(args_.header);
      rest_.used = ~*static_cast<volatile std::uint32_t*>(args_.header + 1);
      rest_.hidden_ready = 0;
      rest_.repeats = 0;
    }
    own.read(args_);
    // Inputs come from memory: all blocks ask for them together, before anyone needs them.
    const int line = block() + tid * blocks();
    if (line < args_.tokens * (Plan::kHidden / 32))
      asm volatile("prefetch.global.L2 [%0];" ::"l"(args_.x + static_cast<std::int64_t>(line) * 32));
    if (args_.tokens == 1 && warp_id() > 0 && warp_id() <= Plan::kWarps) load_x(x, 0);
    if (lane() == 0) {
#pragma unroll 1
      for (int i = warp_id(); i < kSlots + Plan::kReductions; i += Plan::kWarps + 2) {
        const bool ring = i < kSlots;
        init_barrier(ring ? full() + 8 * i : sums_full(i - kSlots), ring ? 1 : Up::kWarps);
        init_barrier(ring ? empty() + 8 * i : sums_empty(i - kSlots), ring ? 2 : 1);
      }
      publish_barriers();
    }
    for (int i = tid; i < 2 * args_.experts; i += Plan::kThreads) rest_.marks[i / 2][i % 2] = 0;
    __syncthreads();
    if (own.mark(args_, rest_.marks)) atomicOr(&rest_.repeats, 1);
    __syncthreads();
    if (warp_id() == 0) scan_experts(args_.experts, rest_);
    // This block needs the header no more.
    if (tid == 32) atomicSub(args_.header + 2, 1U);
    __syncthreads();
  }

  // The records of all items, then of all segments.
  __device__ __forceinline__ void produce() {
    Ring ring{.block = *this};
    int unit = first_item(block()) / Plan::kUpTiles;
    int tile = first_item(block()) - unit * Plan::kUpTiles;
#pragma unroll 1
    for (int item = 0; item < items(); ++item) {
      const std::uint8_t* const from = args_.weights + DecodeUnit(rest_.units[unit]).expert * args_.expert_bytes +
                                       static_cast<std::uint64_t>(tile) * Up::kTileBytes;
#pragma unroll 1
      for (int r = 0; r < Up::kRecords; ++r) {
        ring.copy(from + r * Up::kRecordBytes, Up::kRecordBytes + (r + 1 == Up::kRecords ? Up::kTailBytes : 0),
                  kWindow);
      }
      if (++tile == Plan::kUpTiles) {
        tile = 0;
        ++unit;
      }
    }
    const volatile std::int32_t& ready = rest_.hidden_ready;
#pragma unroll 1
    for (int s = 0; s < segments(); ++s) {
      const DownSegment seg = segment(s);
#pragma unroll 1
      for (int u = seg.begin; u < seg.end; ++u) {
        const std::uint8_t* const from = args_.weights + DecodeUnit(rest_.units[u]).expert * args_.expert_bytes +
                                         args_.down + static_cast<std::uint64_t>(seg.tile) * Down::kTileBytes;
#pragma unroll 1
        for (int r = 0; r < Down::kRecords; ++r) {
          ring.copy(from + r * Down::kRecordBytes,
                    Down::kRecordBytes + (r + 1 == Down::kRecords ? Down::kTailBytes : 0),
                    args_.tokens > 2 || ready != 0 ? kWindow : kEarlyWindow);
        }
      }
    }
  }

  // The producer's side of the ring: a record into the next slot once it is empty and fewer than `window` are under
  // way.
  struct Ring {
    const DecodeBlock& block;
    std::uint32_t issued = 0;
    std::uint32_t slot = 0;
    std::uint32_t phase = 0;
    std::uint32_t arrived = 0;
    std::uint32_t arrived_slot = 0;
    std::uint32_t arrived_phase = 0;

    __device__ __forceinline__ void copy(const std::uint8_t* from, int bytes, std::uint32_t window) {
      if (issued >= kSlots) wait_barrier(block.empty() + 8 * slot, phase ^ 1U);
      while (issued - arrived >= window) {
        wait_barrier(block.full() + 8 * arrived_slot, arrived_phase);
        ++arrived;
        step(arrived_slot, arrived_phase);
      }
      copy_bulk(block.ring() + slot * Plan::kSlotBytes, from, static_cast<std::uint32_t>(bytes),
                block.full() + 8 * slot);
      ++issued;
      step(slot, phase);
    }
    static __device__ __forceinline__ void step(std::uint32_t& slot, std::uint32_t& phase) {
      if (++slot < kSlots) return;
      slot = 0;
      phase ^= 1U;
    }
  };

  // This lane's words of a token's inputs in the columns of its warp.
  __device__ __forceinline__ void load_x(uint4* x, int token) const {
    const int warp = (warp_id() - 1) % Up::kWarps;
    const float* const from =
        args_.x + static_cast<std::int64_t>(token) * Plan::kHidden + Up::first_column(warp) + part() * 8;
    constexpr float kFactor = Plan::kInputFactor;
#pragma unroll
    for (int i = 0; i < 2 * Up::kHeld; ++i) {
      if (Up::lacks(i / 2, warp % 2)) continue;
      const float4 a = __ldg(reinterpret_cast<const float4*>(from + i * 32));
      const float4 b = __ldg(reinterpret_cast<const float4*>(from + i * 32) + 1);
      x[i] = make_uint4(bf16_pair(a.x * kFactor, a.y * kFactor), bf16_pair(a.z * kFactor, a.w * kFactor),
                        bf16_pair(b.x * kFactor, b.y * kFactor), bf16_pair(b.z * kFactor, b.w * kFactor));
    }
  }

  template <int kHeld>
  static __device__ __forceinline__ void find_starts(float2* starts, const uint4* inputs) {
    if constexpr (Code::kStartsAtSum) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) starts[i] = start_of(inputs[2 * i], inputs[2 * i + 1]);
    }
  }

  static constexpr int batch(int held) {
    return Plan::kWarps > 8 ? 2 : (held + 1) / 2;
  }

  // Phase 1 of a consumer: items group, group + groups, ... of the block.
  __device__ __forceinline__ void gate_up(uint4* x) {
    const int group = (warp_id() - 1) / Up::kWarps;
    const int warp = (warp_id() - 1) % Up::kWarps;
    if (group >= Plan::kUpGroups) return;
    float2 starts[Up::kHeld];
    int current = -1;
#pragma unroll 1
    for (int item = group; item < items(); item += Plan::kUpGroups) {
      const int unit = (first_item(block()) + item) / Plan::kUpTiles;
      if (current < 0 || (unit != current && args_.tokens > 1)) {
        current = unit;
        if (args_.tokens > 1) load_x(x, token_of(rest_.pairs[own_column(DecodeUnit(rest_.units[unit]))]));
        __syncwarp();
        find_starts<Up::kHeld>(starts, x);
      }
      float sums[4] = {};
      const Place at = place(static_cast<std::uint32_t>(item * Up::kRecords + warp / 2));
      wait_together(full() + 8 * at.slot, at.phase);
      multiply_half<Code, Up::kPairs, batch(Up::kHeld)>(sums, ring() + at.slot * Plan::kSlotBytes, warp % 2, lane(), x,
                                                        starts, warp + 1 == Up::kWarps);
      give_back(empty() + 8 * at.slot, lane());
      const int sums_at = static_cast<int>(static_cast<unsigned>(item) % Plan::kReductions);
      wait_together(sums_empty(sums_at), (static_cast<unsigned>(item) / Plan::kReductions & 1U) ^ 1U);
      rest_.sums.gate_up[sums_at][warp][lane()] = make_float4(sums[0], sums[1], sums[2], sums[3]);
      arrive_warp(sums_full(sums_at), lane());
    }
  }

  // The activation warp: sums of an item's warps in their order, the gate, hidden rows in bf16.
  __device__ __forceinline__ void activate() {
    std::uint16_t* const to = hidden();
    int unit = first_item(block()) / Plan::kUpTiles;
    int tile = first_item(block()) - unit * Plan::kUpTiles;
    int sums_at = 0;
    std::uint32_t sums_phase = 0;
#pragma unroll 1
    for (int item = 0; item < items(); ++item) {
      const DecodeUnit tokens(rest_.units[unit]);
      const int pair = lane() < tokens.tokens ? pair_of(rest_.pairs[tokens.first + lane()]) : 0;
      wait_together(sums_full(sums_at), sums_phase);
      float4 sums[Up::kWarps];
#pragma unroll
      for (int i = 0; i < Up::kWarps; ++i) sums[i] = rest_.sums.gate_up[sums_at][i][lane()];
      arrive_warp(sums_empty(sums_at), lane());
      if (++sums_at == Plan::kReductions) {
        sums_at = 0;
        sums_phase ^= 1U;
      }
#pragma unroll
      for (int i = 1; i < Up::kWarps; ++i) {
        sums[0].x += sums[i].x;
        sums[0].y += sums[i].y;
        sums[0].z += sums[i].z;
        sums[0].w += sums[i].w;
      }
      const std::uint32_t both = bf16_pair(gated_by_sigmoid(args_.gate, sums[0].x, sums[0].z) * Plan::kInputFactor,
                                           gated_by_sigmoid(args_.gate, sums[0].y, sums[0].w) * Plan::kInputFactor);
      rest_.transposed[2 * part()][row()] = static_cast<std::uint16_t>(both);
      rest_.transposed[2 * part() + 1][row()] = static_cast<std::uint16_t>(both >> 16);
      __syncwarp();
      if (lane() < tokens.tokens) {
        store_whole(to + static_cast<std::int64_t>(pair) * Plan::kIntermediate + tile * 8,
                    *reinterpret_cast<const uint4*>(rest_.transposed[lane()]));
      }
      __syncwarp();
      if (++tile == Plan::kUpTiles) {
        tile = 0;
        ++unit;
      }
    }
  }

  // What the launch before wrote, for the launch after this one. Without units nothing is written, and nothing changes.
  __device__ __forceinline__ void clear_other_hidden() const {
    if (rest_.unit_count == 0) return;
    auto* const words = reinterpret_cast<uint4*>(args_.hidden + ((rest_.launch & 1U) ^ 1U) * args_.hidden_buffer);
    for (std::uint32_t i = static_cast<std::uint32_t>(block() * 32 + lane()); i < rest_.used;
         i += static_cast<std::uint32_t>(blocks() * 32))
      words[i] = make_uint4(kOnes, kOnes, kOnes, kOnes);
  }
  // The header for the next launch, once every block has read it.
  __device__ __forceinline__ void advance() const {
    volatile std::uint32_t* const header = args_.header;
    while (~header[2] != static_cast<std::uint32_t>(blocks())) {
    }
    header[2] = kOnes;
    if (rest_.unit_count == 0) return;
    header[0] = ~(rest_.launch + 1);
    header[1] = ~static_cast<std::uint32_t>(args_.tokens * args_.top_k * (Plan::kIntermediate / 8));
  }

  // Phase 2 of a consumer: units group, group + groups, ... of each segment.
  __device__ __forceinline__ void down() {
    const int group = (warp_id() - 1) / Down::kWarps;
    const int warp = (warp_id() - 1) % Down::kWarps;
    int before = items() * Up::kRecords;  // records
    uint4 h[2 * Down::kHeld];
#pragma unroll 1
    for (int s = 0; s < segments(); ++s) {
      float2* const own = rest_.sums.down[warp_id() - 1];
      int u = segment(s).begin + group;
      const int end = segment(s).end;
      int record = before + group * Down::kRecords + warp / 2;
      if (u < end) load_hidden(h, hidden_row(u, warp), warp);
#pragma unroll 1
      for (int i = lane(); i < args_.tokens * 8; i += 32) own[i] = make_float2(0.0F, 0.0F);
      __syncwarp();
#pragma unroll 1
      for (; u < end; u += Plan::kDownGroups) {
        wait_hidden(h, u, warp);
        float2 starts[Down::kHeld];
        find_starts<Down::kHeld>(starts, h);
        float sums[4] = {};
        const Place at = place(static_cast<std::uint32_t>(record));
        wait_together(full() + 8 * at.slot, at.phase);
        multiply_half<Code, Down::kPairs, batch(Down::kHeld)>(sums, ring() + at.slot * Plan::kSlotBytes, warp % 2,
                                                              lane(), h, starts, warp + 1 == Down::kWarps);
        give_back(empty() + 8 * at.slot, lane());
        if (u + Plan::kDownGroups < end) load_hidden(h, hidden_row(u + Plan::kDownGroups, warp), warp);
        const DecodeUnit unit(rest_.units[u]);
        add_weighted(own, unit, 2 * part(), sums[0], sums[2]);
        add_weighted(own, unit, 2 * part() + 1, sums[1], sums[3]);
        record += Plan::kDownGroups * Down::kRecords;
      }
      before += (end - segment(s).begin) * Down::kRecords;
      sync_threads<2>(Plan::kDownWarps * 32);
      store_tile(segment(s));
      if (s + 1 < segments()) sync_threads<2>(Plan::kDownWarps * 32);
    }
  }

  [[nodiscard]] __device__ __forceinline__ const std::uint16_t* hidden_row(int u, int warp) const {
    const int pair = pair_of(rest_.pairs[own_column(DecodeUnit(rest_.units[u]))]);
    return hidden() + static_cast<std::int64_t>(pair) * Plan::kIntermediate + Down::first_column(warp) + part() * 8;
  }
  static __device__ __forceinline__ void load_hidden(uint4* h, const std::uint16_t* from, int warp) {
#pragma unroll
    for (int i = 0; i < 2 * Down::kHeld; ++i) {
      if (!Down::lacks(i / 2, warp % 2)) h[i] = load_whole(from + i * 32);
    }
  }
  // Until all words of the warp are there.
  __device__ __forceinline__ void wait_hidden(uint4* h, int u, int warp) {
    for (;;) {
      bool missing = false;
#pragma unroll
      for (int i = 0; i < 2 * Down::kHeld; ++i) {
        if (!Down::lacks(i / 2, warp % 2)) missing |= h[i].w == kOnes;
      }
      if (!__any_sync(kOnes, missing)) break;
      load_hidden(h, hidden_row(u, warp), warp);
    }
    *static_cast<volatile std::int32_t*>(&rest_.hidden_ready) = 1;
  }

  // Rows g and g + 8 of the unit's `column`-th token.
  __device__ __forceinline__ void add_weighted(float2* own, const DecodeUnit& unit, int column, float upper,
                                               float lower) const {
    if (column >= unit.tokens) return;
    const std::uint32_t listed = rest_.pairs[unit.first + column];
    const float weight = rest_.pair_weights[pair_of(listed)];
    float2& sum = own[token_of(listed) * 8 + row()];
    sum.x += weight * upper;
    sum.y += weight * lower;
  }

  // The warps' sums in their order. Of a shared tile the first share's sums travel as hidden rows do: 8 bytes that are
  // their own flag, all ones again once they were read.
  __device__ __forceinline__ void store_tile(const DownSegment& seg) const {
    const int count = args_.tokens * 8;
#pragma unroll 1
    for (int i = (warp_id() - 1) * 32 + lane(); i < count; i += Plan::kDownWarps * 32) {
      float2 sum = rest_.sums.down[0][i];
#pragma unroll
      for (int warp = 1; warp < Plan::kDownWarps; ++warp) {
        sum.x += rest_.sums.down[warp][i].x;
        sum.y += rest_.sums.down[warp][i].y;
      }
      if (seg.shared) {
        std::uint64_t* const exchange = args_.shared_sums + (block() / 2 * kDecodeTokens * 8 + i);
        if (block() % 2 == 0) {
          store_whole_8(exchange, static_cast<std::uint64_t>(__float_as_uint(sum.y)) << 32 | __float_as_uint(sum.x));
          continue;
        }
        std::uint64_t other = load_whole_8(exchange);
        while (static_cast<std::uint32_t>(other) == kOnes) other = load_whole_8(exchange);
        *exchange = ~std::uint64_t{0};
        sum.x += __uint_as_float(static_cast<std::uint32_t>(other));
        sum.y += __uint_as_float(static_cast<std::uint32_t>(other >> 32));
      }
      float* const out = args_.out + static_cast<std::int64_t>(i / 8) * Plan::kHidden + seg.tile * kTileRows + i % 8;
      out[0] = sum.x;
      out[8] = sum.y;
    }
  }

  const DecodeArgs& args_;
  Rest& rest_;
};

template <class Plan>
__global__ void __launch_bounds__(Plan::kThreads, 1) stream_experts(const __grid_constant__ DecodeArgs args) {
  extern __shared__ __align__(128) std::uint8_t memory[];
  DecodeBlock<Plan>(args, memory).run();
}

// Enqueues the pass. All blocks are resident at once, one on each multiprocessor.
template <class Plan>
int launch_plan(const DecodeArgs& args, cudaStream_t stream) {
  int blocks = 0;
  if (const cudaError_t error = count_multiprocessors(blocks); error != cudaSuccess) return error;
  if (const cudaError_t error =
          cudaFuncSetAttribute(stream_experts<Plan>, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kSharedBytes);
      error != cudaSuccess)
    return error;
  cudaLaunchAttribute cooperative{};
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(Plan::kThreads);
  config.dynamicSmemBytes = Plan::kSharedBytes;
  config.stream = stream;
  config.attrs = &cooperative;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, stream_experts<Plan>, args);
}

// Few tokens leave more of shared memory to the ring.
template <class Few, class Many>
int launch_sized(const DecodeArgs& args, cudaStream_t stream) {
  return args.tokens <= Few::kTokens ? launch_plan<Few>(args, stream) : launch_plan<Many>(args, stream);
}

}  // namespace moracle::cuda
