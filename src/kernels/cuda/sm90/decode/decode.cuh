// The experts pass of few tokens in one launch: weights are streamed once, in order, by every multiprocessor.
//
//   phase 1  item = (unit, tile of 8 gate and 8 up rows), all columns. Items are spread evenly and in order to the
//            blocks. A group of warps takes an item; each warp holds its columns of the tokens' inputs in registers.
//            Activation warps add the warps' sums in their order and store the intermediate rows.
//   phase 2  a block owns tiles of 16 output rows for all units, so that the weighted sum over a token's choices is
//            made in one place and in one order: no atomics, the same bits each time. Of the tiles left over where
//            blocks have no whole one, two blocks halve the units.
//
// Warp 0 produces: it copies records into a ring, through the change of phase, since weights wait for nothing. Hidden
// rows are their own flags: a 16-byte word of all ones means "not there yet". So the grid has no barrier, but all
// blocks must be resident (a cooperative launch), and each makes its part of phase 1 before it waits for others. A
// launch writes one of two buffers of rows, and fills what the launch before wrote in the other with ones again.
//
// Quantized activations are numbers of codes in bf16. Under a stored scale they are made where inputs are loaded and
// intermediate rows are stored. Else the warps of an item find the scales of its inputs together as they load these;
// where they lack registers, an activation warp makes a row of inputs for all blocks, before its items. Intermediate
// rows travel in f32, and between the phases one warp makes a row's scales and numbers for all blocks.
#pragma once

#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/sm90/decode/codes.cuh"
#include "kernels/cuda/sm90/decode/held.cuh"
#include "kernels/cuda/sm90/decode/launch.cuh"
#include "kernels/cuda/sm90/decode/plan.cuh"
#include "kernels/cuda/sm90/decode/quantize.cuh"
#include "kernels/cuda/sm90/decode/routing.cuh"

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
  using Rows = typename Plan::Rows;
  static constexpr int kSlots = Plan::kSlots;
  static constexpr std::uint32_t kOnes = 0xFFFFFFFFU;

 public:
  __device__ __forceinline__ DecodeBlock(const DecodeArgs& args, std::uint8_t* memory)
      : args_(args), rest_(*reinterpret_cast<Rest*>(memory)) {}

  __device__ __forceinline__ void run() {
    OwnPairs<Plan> own;
    begin(own);
    if (warp_id() == 0) {
      if (lane() == 0) produce();
      return;
    }
    if (rest_.repeats != 0) own.merge(args_);
    own.list(rest_);
    sync_threads<1>(Plan::kThreads - 32);
    if (warp_id() <= Plan::kWarps) {
      gate_up();
    } else {
      if constexpr (Rows::kPassesInputs) quantize_inputs();
      clear_other_rows();
      activate();
      if (block() == 0 && activation_warp() == 0 && lane() == 0) advance();
    }
    sync_threads<3>(Plan::kThreads - 32);  // the sums' memory changes hands
    if constexpr (Rows::kMeasured) quantize_intermediate();
    if (segments() > 0 && warp_id() <= Plan::kDownWarps) down();
  }

 private:
  // Registers are short: what is cheap is computed where it is needed.
  [[nodiscard]] static __device__ __forceinline__ int block() { return rematerialized(static_cast<int>(blockIdx.x)); }
  [[nodiscard]] static __device__ __forceinline__ int warp_id() { return static_cast<int>(threadIdx.x) / 32; }
  [[nodiscard]] static __device__ __forceinline__ int lane() {
    return rematerialized(static_cast<int>(threadIdx.x)) % 32;
  }
  [[nodiscard]] static __device__ __forceinline__ int blocks() { return static_cast<int>(gridDim.x); }
  [[nodiscard]] static __device__ __forceinline__ int activation_warp() { return warp_id() - Plan::kWarps - 1; }
  [[nodiscard]] static __device__ __forceinline__ int rematerialized(int number) {
    return Plan::rematerialized(number);
  }
  // Number of the warp, the producer left out.
  [[nodiscard]] static __device__ __forceinline__ int consumer() {
    return rematerialized(static_cast<int>(threadIdx.x)) / 32 - 1;
  }
  // Of a tile's upper half; also the column whose inputs the lane holds.
  [[nodiscard]] static __device__ __forceinline__ int row() { return lane() / 4; }
  // Which two columns the lane's sums are of.
  [[nodiscard]] static __device__ __forceinline__ int part() { return lane() % 4; }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t ring() const {
    return shared_address(&rest_) + Plan::kRestBytes;
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t full() const { return shared_address(rest_.full); }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t empty() const { return shared_address(rest_.empty); }
  // Of all items behind the last block. What the inverse rounds is the same for every block.
  [[nodiscard]] __device__ __forceinline__ int first_item(int block) const {
    return static_cast<int>(
        __umulhi(static_cast<unsigned>(block * rest_.unit_count * Plan::kUpTiles), args_.schedule.inverse));
  }
  [[nodiscard]] __device__ __forceinline__ int items() const { return first_item(block() + 1) - first_item(block()); }
  // The block's output tiles.
  [[nodiscard]] __device__ __forceinline__ int segments() const {
    return args_.schedule.whole + (block() < args_.schedule.extra_blocks ? 1 : 0);
  }

  struct Place {
    std::uint32_t slot;
    std::uint32_t phase;
  };
  static __device__ __forceinline__ Place place(std::uint32_t record) {
    return {record % kSlots, record / kSlots & 1U};
  }
  [[nodiscard]] __device__ __forceinline__ uint4* rows() const {
    return args_.rows + (rest_.launch & 1U) * args_.rows_buffer;
  }
  [[nodiscard]] __device__ __forceinline__ uint4* input_row(int token) const {
    return rows() + token * Rows::kInputWords;
  }
  [[nodiscard]] __device__ __forceinline__ uint4* intermediate_row(int pair) const {
    return rows() + Rows::intermediate_at(args_.tokens) + pair * Rows::kIntermediateWords;
  }
  [[nodiscard]] __device__ __forceinline__ uint4* f32_row(int pair) const {
    return rows() + Rows::f32_at(args_.tokens, args_.tokens * args_.top_k) + pair * Rows::kF32Words;
  }
  [[nodiscard]] __device__ __forceinline__ float stored_scale(int expert, std::uint64_t at) const {
    return __ldg(reinterpret_cast<const float*>(args_.weights + expert * args_.expert_bytes + at));
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t sums_full(int i) const {
    return shared_address(rest_.sums_full) + 8 * static_cast<std::uint32_t>(i);
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t sums_empty(int i) const {
    return shared_address(rest_.sums_empty) + 8 * static_cast<std::uint32_t>(i);
  }
  [[nodiscard]] __device__ __forceinline__ DownSegment segment(int i) const {
    const TileSchedule& schedule = args_.schedule;
    const int units = rest_.unit_count;
    if (i < schedule.whole) return {block() + i * blocks(), 0, units, false};
    const int share = block() & schedule.halved;
    return {schedule.whole * blocks() + (block() >> schedule.halved), share * units >> schedule.halved,
            (share + 1) * units >> schedule.halved, schedule.halved == 1};
  }
  // The place in the pairs of the token whose inputs this lane holds; columns without a token repeat the first.
  [[nodiscard]] __device__ __forceinline__ int own_column(const DecodeUnit& unit) const {
    return unit.first + (row() < unit.tokens ? row() : 0);
  }

  // Barriers and routing.
  __device__ __forceinline__ void begin(OwnPairs<Plan>& own) {
    const int tid = static_cast<int>(threadIdx.x);
    std::uint32_t launch = 0;
    std::uint32_t used = 0;
    if (tid == 0) {
      launch = *static_cast<volatile std::uint32_t*>(args_.header);
      used = *static_cast<volatile std::uint32_t*>(args_.header + 1);
      rest_.intermediate_ready = 0;
      rest_.repeats = 0;
    }
    own.read(args_);
    // Inputs come from memory: all blocks ask for them together, before anyone needs them.
    const int line = block() + tid * blocks();
    if (line < args_.tokens * (Plan::kHidden / 32))
      asm volatile("prefetch.global.L2 [%0];" ::"l"(args_.x + static_cast<std::int64_t>(line) * 32));
    if (lane() == 0) {
#pragma unroll 1
      for (int i = warp_id(); i < kSlots + Plan::kReductions; i += Plan::kThreads / 32) {
        const bool ring = i < kSlots;
        init_barrier(ring ? full() + 8 * i : sums_full(i - kSlots), ring ? 1 : Up::kWarps);
        init_barrier(ring ? empty() + 8 * i : sums_empty(i - kSlots), ring ? 2 : 1);
      }
      publish_barriers();
    }
    clear_marks(rest_);
    __syncthreads();
    if (own.mark(args_, rest_.marks)) atomicOr(&rest_.repeats, 1);
    if (tid == 0) {
      rest_.launch = ~launch;
      rest_.used = ~used;
    }
    __syncthreads();
    scan_experts<Plan>(rest_);
    // This block needs the header no more.
    if (tid == 32) atomicSub(args_.header + 2, 1U);
    __syncthreads();
  }

  // The records of all items, then of all segments.
  __device__ __forceinline__ void produce() {
    Ring ring{.block = *this};
    const int count = items();
    int unit = first_item(block()) / Plan::kUpTiles;
    int tile = first_item(block()) - unit * Plan::kUpTiles;
#pragma unroll 1
    for (int item = 0; item < count; ++item) {
      const std::uint8_t* const from = args_.weights + DecodeUnit(rest_.units[unit]).expert * args_.expert_bytes +
                                       static_cast<std::uint64_t>(tile) * Up::kTileBytes;
#pragma unroll 1
      for (int r = 0; r < Up::kRecords; ++r) {
        ring.copy(from + r * Up::kRecordBytes, Up::kRecordBytes + (r + 1 == Up::kRecords ? Up::kTailBytes : 0),
                  Plan::kWindow);
      }
      if (++tile == Plan::kUpTiles) {
        tile = 0;
        ++unit;
      }
    }
    const volatile std::int32_t& ready = rest_.intermediate_ready;
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
                    args_.tokens > 2 || ready != 0 ? Plan::kWindow : Plan::kEarlyWindow);
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

  // This lane's first column of a token's inputs among those of its warp.
  [[nodiscard]] __device__ __forceinline__ const float* first_of(int token) const {
    return args_.x + static_cast<std::int64_t>(token) * Plan::kHidden + Up::first_column(consumer() % Up::kWarps) +
           part() * 8;
  }
  // Inputs of a unit's tokens, for the `turn`-th time.
  __device__ __forceinline__ void take_inputs(HeldInputs<Plan, Up>& x, const DecodeUnit& unit, int turn) {
    const int token = token_of(rest_.pairs[own_column(unit)]);
    const int warp = consumer() % Up::kWarps;
    if constexpr (Rows::kPassesInputs) {
      x.load(input_row(token), warp);
      x.wait(input_row(token), warp);
    } else if constexpr (Rows::kGroups) {
      x.load_groups(first_of(token), warp);
    } else if constexpr (Rows::kMeasured) {
      x.load_scaled(first_of(token), warp, of_all_warps(x.largest(first_of(token), warp), turn));
    } else if constexpr (Rows::kStored) {
      x.scale = stored_scale(unit.expert, args_.up_scale);
      x.load(first_of(token), warp, 1.0F / x.scale);
    } else {
      x.load(first_of(token), warp, 1.0F);
    }
    __syncwarp();
    x.find_starts();
  }
  // The largest magnitude of the lane's token in all warps that share the item. Who writes has met the others after
  // they read what was written two turns before.
  __device__ __forceinline__ float of_all_warps(float most, int turn) {
    const int group = consumer() / Up::kWarps;
    auto& maxima = rest_.maxima[turn % 2][group];
    if (part() == 0) maxima[consumer() % Up::kWarps][row()] = most;
    sync_group(4 + group, Up::kWarps * 32);
#pragma unroll
    for (int i = 0; i < Up::kWarps; ++i) most = fmaxf(most, maxima[i][row()]);
    return most;
  }

  static constexpr int batch(int held) { return Plan::kWarps > 12 ? 1 : Plan::kWarps > 8 ? 2 : (held + 1) / 2; }

  // Phase 1 of a consumer: items group, group + groups, ... of the block.
  __device__ __forceinline__ void gate_up() {
    const int group = (warp_id() - 1) / Up::kWarps;
    if (group >= Plan::kUpGroups) return;
    HeldInputs<Plan, Up> x;
    int current = -1;
    int turn = 0;
#pragma unroll 1
    for (int item = group; item < items(); item += Plan::kUpGroups) {
      const int unit = (first_item(block()) + item) / Plan::kUpTiles;
      if (current < 0 || (unit != current && (args_.tokens > 1 || Rows::kStored))) {
        current = unit;
        take_inputs(x, DecodeUnit(rest_.units[unit]), turn++);
      }
      const int warp = consumer() % Up::kWarps;
      float sums[4] = {};
      const Place at = place(static_cast<std::uint32_t>(item * Up::kRecords + warp / 2));
      wait_together(full() + 8 * at.slot, at.phase);
      gemm_half_record<Code, Up::kPairs, batch(Up::kHeld), x.kPairsANumber>(sums, ring() + at.slot * Plan::kSlotBytes,
                                                                            warp % 2, lane(), x.words, x.of_pairs,
                                                                            x.scales(), warp + 1 == Up::kWarps);
      give_back(empty() + 8 * at.slot, lane());
      const int sums_at = static_cast<int>(static_cast<unsigned>(item) % Plan::kReductions);
      wait_together(sums_empty(sums_at), (static_cast<unsigned>(item) / Plan::kReductions & 1U) ^ 1U);
      rest_.sums.gate_up[sums_at][warp][lane()] = make_float4(sums[0], sums[1], sums[2], sums[3]);
      arrive_warp(sums_full(sums_at), lane());
    }
  }

  // An activation warp, of every kActivationWarps-th item: sums of its warps in their order, the gate, intermediate
  // rows as phase 2 or quantize_intermediate takes them.
  __device__ __forceinline__ void activate() {
    constexpr int kWords = Rows::kMeasured ? 2 : 1;  // of a token
    const int count = items();
    const int begin = first_item(block());
    float inverse = 1.0F;
    int scaled = -1;  // unit whose scale that inverts
#pragma unroll 1
    for (int item = activation_warp(); item < count; item += Plan::kActivationWarps) {
      const int unit = (begin + item) / Plan::kUpTiles;
      const int tile = (begin + item) % Plan::kUpTiles;
      const int sums_at = static_cast<int>(static_cast<unsigned>(item) % Plan::kReductions);
      const DecodeUnit tokens(rest_.units[unit]);
      const int column = lane() / kWords;
      const int pair = column < tokens.tokens ? pair_of(rest_.pairs[tokens.first + column]) : 0;
      if (Rows::kStored && unit != scaled) {
        inverse = 1.0F / stored_scale(tokens.expert, args_.down_scale);
        scaled = unit;
      }
      wait_together(sums_full(sums_at), static_cast<unsigned>(item) / Plan::kReductions & 1U);
      float4 sums[Up::kWarps];
#pragma unroll
      for (int i = 0; i < Up::kWarps; ++i) sums[i] = rest_.sums.gate_up[sums_at][i][lane()];
      arrive_warp(sums_empty(sums_at), lane());
#pragma unroll
      for (int i = 1; i < Up::kWarps; ++i) {
        sums[0].x += sums[i].x;
        sums[0].y += sums[i].y;
        sums[0].z += sums[i].z;
        sums[0].w += sums[i].w;
      }
      const float first = gated_by_sigmoid(args_.gate, sums[0].x, sums[0].z);
      const float second = gated_by_sigmoid(args_.gate, sums[0].y, sums[0].w);
      auto& of_tokens = rest_.transposed[activation_warp()];
      if constexpr (Rows::kMeasured) {
        of_tokens[2 * part()][row()] = first;
        of_tokens[2 * part() + 1][row()] = second;
      } else {
        const std::uint32_t both = HeldInputs<Plan, Down>::rounded(first, second, inverse);
        of_tokens[2 * part()][row()] = static_cast<std::uint16_t>(both);
        of_tokens[2 * part() + 1][row()] = static_cast<std::uint16_t>(both >> 16);
      }
      __syncwarp();
      if (column < tokens.tokens) {
        uint4* const to = (Rows::kMeasured ? f32_row(pair) : intermediate_row(pair)) + tile * kWords;
        const int word = lane() % kWords;
        store_whole(to + word, reinterpret_cast<const uint4*>(of_tokens[column])[word]);
      }
      __syncwarp();
    }
  }

  // What the launch before wrote, for the launch after this one. Without units nothing is written, and nothing changes.
  __device__ __forceinline__ void clear_other_rows() const {
    if (rest_.unit_count == 0) return;
    uint4* const words = args_.rows + ((rest_.launch & 1U) ^ 1U) * args_.rows_buffer;
    constexpr int kLanes = Plan::kActivationWarps * 32;
    for (std::uint32_t i = static_cast<std::uint32_t>(block() * kLanes + activation_warp() * 32 + lane());
         i < rest_.used; i += static_cast<std::uint32_t>(blocks() * kLanes))
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
    header[1] = ~static_cast<std::uint32_t>(Rows::all(args_.tokens, args_.tokens * args_.top_k));
  }

  // The block's share of the rows. Without units nobody takes them, and what is written is not cleared.
  __device__ __forceinline__ void quantize_inputs() const {
    if (rest_.unit_count == 0) return;
#pragma unroll 1
    for (int token = block() + activation_warp() * blocks(); token < args_.tokens;
         token += Plan::kActivationWarps * blocks()) {
      const float* const from = args_.x + static_cast<std::int64_t>(token) * Plan::kHidden;
      cuda::quantize_row<Plan, Plan::kHidden, false>(from, input_row(token));
    }
  }
  __device__ __forceinline__ void quantize_intermediate() const {
    if (rest_.unit_count == 0) return;
    const DecodeUnit last(rest_.units[rest_.unit_count - 1]);
#pragma unroll 1
    for (int i = block() + consumer() * blocks(); i < last.first + last.tokens;
         i += (Plan::kThreads / 32 - 1) * blocks()) {
      const int pair = pair_of(rest_.pairs[i]);
      const auto* const from = reinterpret_cast<const float*>(f32_row(pair));
      cuda::quantize_row<Plan, Plan::kIntermediate, true>(from, intermediate_row(pair));
    }
  }

  // Phase 2 of a consumer: units group, group + groups, ... of each segment.
  __device__ __forceinline__ void down() {
    HeldInputs<Plan, Down> h;
#pragma unroll 1
    for (int s = 0; s < segments(); ++s) {
      float2* const own = rest_.sums.down[warp_id() - 1];
      int u = segment(s).begin + consumer() / Down::kWarps;
      const int end = segment(s).end;
      // Two warps a record; all segments before have all units.
      int record = items() * Up::kRecords + s * rest_.unit_count * Down::kRecords + consumer() / 2;
      if (u < end) h.load(intermediate_of(u), consumer() % Down::kWarps);
#pragma unroll 1
      for (int i = lane(); i < args_.tokens * 8; i += 32) own[i] = make_float2(0.0F, 0.0F);
      __syncwarp();
#pragma unroll 1
      for (; u < end; u += Plan::kDownGroups) {
        if constexpr (Rows::kStored) h.scale = stored_scale(DecodeUnit(rest_.units[u]).expert, args_.down_scale);
        const int warp = consumer() % Down::kWarps;
        h.wait(intermediate_of(u), warp);
        *static_cast<volatile std::int32_t*>(&rest_.intermediate_ready) = 1;
        h.find_starts();
        float sums[4] = {};
        const Place at = place(static_cast<std::uint32_t>(record));
        wait_together(full() + 8 * at.slot, at.phase);
        gemm_half_record<Code, Down::kPairs, batch(Down::kHeld), h.kPairsANumber>(
            sums, ring() + at.slot * Plan::kSlotBytes, warp % 2, lane(), h.words, h.of_pairs, h.scales(),
            warp + 1 == Down::kWarps);
        give_back(empty() + 8 * at.slot, lane());
        if (u + Plan::kDownGroups < end) h.load(intermediate_of(u + Plan::kDownGroups), warp);
        const DecodeUnit unit(rest_.units[u]);
        add_weighted(own, unit, 2 * part(), sums[0], sums[2]);
        add_weighted(own, unit, 2 * part() + 1, sums[1], sums[3]);
        record += Plan::kDownGroups * Down::kRecords;
      }
      sync_threads<2>(Plan::kDownWarps * 32);
      store_tile(segment(s));
      if (s + 1 < segments()) sync_threads<2>(Plan::kDownWarps * 32);
    }
  }

  // Of the unit's token whose numbers this lane holds.
  [[nodiscard]] __device__ __forceinline__ const uint4* intermediate_of(int u) const {
    return intermediate_row(pair_of(rest_.pairs[own_column(DecodeUnit(rest_.units[u]))]));
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

  // The warps' sums in their order. Of a shared tile the first share's sums travel as intermediate rows do: 8 bytes
  // that are their own flag, all ones again once they were read.
  __device__ __forceinline__ void store_tile(const DownSegment& seg) const {
    const int count = args_.tokens * 8;
#pragma unroll 1
    for (int i = rematerialized(static_cast<int>(threadIdx.x)) - 32; i < count; i += Plan::kDownWarps * 32) {
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
  DecodeArgs scheduled = args;
  scheduled.schedule = schedule_tiles(Plan::kDownTiles, blocks);
  return cudaLaunchKernelEx(&config, stream_experts<Plan>, scheduled);
}

// Few tokens leave more of shared memory to the ring.
template <class Few, class Many>
constexpr DecodeInstance instance_of() {
  static_assert(Few::kTokens == kFewDecodeTokens && Many::kTokens == kDecodeTokens);
  return {Many::Code::kKind, Many::kInput, Many::kHidden, Many::kIntermediate, launch_plan<Few>, launch_plan<Many>};
}

}  // namespace moracle::cuda
