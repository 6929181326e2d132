// Many tokens meet decoded weights: a chunk of columns is decoded once, as much as stays near the core, and every tile
// multiplies it from there. Where registers allow, the first tile decodes the chunk while it multiplies, so that
// decoding hides under its multiply-adds. Sums run in the order of tile-inl.h.
#pragma once

#include <type_traits>

#include "kernels/cpu/gemm/tile-inl.h"

namespace moracle::cpu {

constexpr std::int64_t kChunkBytes = 32768;
constexpr std::int64_t kMaxPieces = 64;
// Tiles prefetch the chunk after the one that they meet, where their multiply-adds take less time than memory does.
template <class V>
constexpr bool kPrefetchesChunk = V::kRegisters > 16;

// Decoded weights of a step: a register of each slot and register of rows.
template <class Form>
constexpr std::int64_t kDecodedBytes = kSlots<Form> * Form::V::kRegs * kRegBytes<typename Form::V>;

// A code whose groups have one step or two, so that a sum begins as its first product: it decodes to weights without an
// offset (kSigned), or its form is Blocked.
template <class D>
concept ShortGroups = Blocked<typename D::Form> || requires { D::kSigned; };

// Whether the first tile of a run decodes what the others read. It needs all rows of the panel at a time.
template <class V>
constexpr bool kFirstDecodes = V::kRegs == 2;

template <class D>
struct Chunk {
  // A group's part inside the chunk. A group that is longer than a chunk is carried over.
  struct Piece {
    std::int64_t steps;
    std::int64_t group;
    const std::byte* codes;    // in the panel
    std::int64_t input_scale;  // of the activations, in force from the group on; 0: as before
    bool begins_group;
    bool ends_group;
  };
  static constexpr std::int64_t kSteps = kChunkBytes / kDecodedBytes<typename D::Form>;

  alignas(64) std::byte weights[kChunkBytes];
  alignas(64) float scales[kMaxPieces][kPanelRows];
  const std::byte* zeros[kMaxPieces];
  Piece pieces[kMaxPieces];
  std::int64_t count;
};

// Walks a panel chunk by chunk.
template <class D>
class ChunkReader {
  using Form = typename D::Form;
  using V = typename Form::V;

 public:
  explicit ChunkReader(const TileArgs& args) : args_(args), at_(args.panels[0]) {}

  [[nodiscard]] bool done() const { return group_ == args_.shape.groups; }
  [[nodiscard]] const std::byte* at() const { return at_; }  // when done, the panel's end

  // Returns the steps of the next chunk, which are decoded unless the first tile does that.
  std::int64_t read(Chunk<D>& chunk) {
    const std::int64_t scale_bytes = Scaled<D> ? kPanelRows * cpu::scale_bytes(args_.shape.scale) : 0;
    std::byte* out = chunk.weights;
    std::int64_t filled = 0;
    chunk.count = 0;
    while (!done() && filled < chunk.kSteps && chunk.count < kMaxPieces) {
      const std::int64_t left = (group_ + 1 == args_.shape.groups ? args_.shape.last_steps : args_.shape.steps) - done_;
      const std::int64_t steps = left < chunk.kSteps - filled ? left : chunk.kSteps - filled;
      for (std::int64_t s = 0; !kFirstDecodes<V> && s < steps; ++s) {
        Prefetch<V>::panel(args_, at_ + s * D::kBytes, D::kBytes, kPrefetchBytes);
        decode(at_ + s * D::kBytes, out);
        out += kDecodedBytes<Form>;
      }
      const std::byte* const scales = at_ + left * D::kBytes;
      if constexpr (Scaled<D>) {
        for (int r = 0; r < V::kRegs; ++r) {
          V::store(chunk.scales[chunk.count] + r * V::kLanes, load_scale<V>(args_.shape.scale, scales, r));
        }
      }
      chunk.zeros[chunk.count] = scales + scale_bytes;
      const std::int64_t shared = args_.shape.scale_groups;
      const std::int64_t scale = shared > 0 && group_ % shared == 0 ? group_ / shared : 0;
      chunk.pieces[chunk.count++] = {steps, group_, at_, scale, done_ == 0, steps == left};
      filled += steps;
      done_ += steps;
      at_ += steps * D::kBytes;
      if (steps == left) {
        at_ = scales + scale_bytes + (args_.shape.zeros ? kPanelRows : 0);
        done_ = 0;
        ++group_;
      }
    }
    return filled;
  }

 private:
  // One step. All columns of a register's rows before any is stored: a store could change what is read.
  void decode(const std::byte* at, std::byte* out) const {
    decoding(decoder_, at, [&](const auto& chosen) __attribute__((always_inline)) {
#pragma GCC unroll 4
      for (int r = 0; r < V::kRegs; ++r) {
        typename Form::Weight w[kSlots<Form>];
#pragma GCC unroll 8
        for (int k = 0; k < kSlots<Form>; ++k) w[k] = chosen.weight(at, k, r);
#pragma GCC unroll 8
        for (int k = 0; k < kSlots<Form>; ++k) Form::store(out + (k * V::kRegs + r) * kRegBytes<V>, w[k]);
      }
    });
  }

  const TileArgs& args_;
  const std::byte* at_;
  const D decoder_{};
  std::int64_t group_ = 0;
  std::int64_t done_ = 0;  // steps of the group
};

// Sums of a group that goes on in the next chunk.
struct Carry {
  alignas(64) float sums[kMaxTokens][2][kPanelRows];
};

// Which part of the chunk's work one tile covers.
template <class V>
struct ChunkPart {
  std::int64_t token;   // first of the tile
  std::int64_t column;  // first of the chunk
  bool first;           // chunk of the panel: nothing to add to
  bool last;
  float unit;  // of the decoded numbers; known at the last chunk
  NextLines<V> next;
};

// T tokens times registers [reg, reg + R) of one chunk, which is decoded before, or here. A function of its own: inside
// one with all other tiles, GCC spills more registers.
template <class D, int T, int R, bool Decodes>
[[gnu::noinline]] void chunk_tile(const TileArgs& args, Chunk<D>& chunk, Carry& carry,
                                  const ChunkPart<typename D::Form::V>& part, int reg) {
  using Form = typename D::Form;
  using V = typename Form::V;
  using Reg = typename V::Reg;
  using Sums = typename Form::Sums;
  using Acc = Accumulators<Form, T, R>;
  constexpr bool kTotalsWait = ShortGroups<D> && 2 * T * R > V::kRegisters - 4;  // in memory while a group is summed up
  const typename Form::Input* x[T];
  float* out[T];
  Reg total[T][R];
#pragma GCC unroll 6
  for (int t = 0; t < T; ++t) {
    x[t] = static_cast<const typename Form::Input*>(args.x[part.token + t]) + part.column;
    out[t] = args.out[0] + (part.token + t) * args.out_stride + reg * V::kLanes;
  }
  for_sums<T, R>([&](int t, int r) __attribute__((always_inline)) {
    total[t][r] = part.first ? V::zero() : V::load(out[t] + r * V::kLanes);
  });
  std::byte* at = chunk.weights + reg * kRegBytes<V>;
  [[maybe_unused]] const D decoder{};
  [[maybe_unused]] NextLines<V> next = part.next;
  std::int64_t column = 0;
  for (std::int64_t p = 0; p < chunk.count; ++p) {
    const typename Chunk<D>::Piece& piece = chunk.pieces[p];
    Acc acc;
    const auto multiply_step = [&]([[maybe_unused]] std::int64_t s, auto begins) __attribute__((always_inline)) {
      const auto multiply = [&](const typename Form::Weight(&w)[R], int k) __attribute__((always_inline)) {
#pragma GCC unroll 6
        for (int t = 0; t < T; ++t) {
          const auto value = Form::broadcast(x[t] + column + k * Form::kWidth);
#pragma GCC unroll 2
          for (int r = 0; r < R; ++r) {
            typename Form::Sum& sum = acc.value[t][r][k % Acc::kChains];
            const bool alone = begins && k == 0;
            if constexpr (ShortGroups<D>) sum = alone ? Form::multiply(w[r], value) : Form::madd(w[r], value, sum);
            if constexpr (!ShortGroups<D>) sum = Form::madd(w[r], value, sum);
          }
        }
      };
      if constexpr (Decodes) {
        const std::byte* const step = piece.codes + s * D::kBytes;
        Prefetch<V>::panel(args, step, D::kBytes, kPrefetchBytes);
        decoding(decoder, step, [&](const auto& chosen) __attribute__((always_inline)) {
#pragma GCC unroll 8
          for (int k = 0; k < kSlots<Form>; ++k) {
            typename Form::Weight w[R];
#pragma GCC unroll 2
            for (int r = 0; r < R; ++r) {
              w[r] = chosen.weight(step, k, r);
              Form::store(at + (k * R + r) * kRegBytes<V>, w[r]);
            }
            multiply(w, k);
          }
        });
      } else {
        if constexpr (kPrefetchesChunk<V>) next.until(at);
#pragma GCC unroll 8
        for (int k = 0; k < kSlots<Form>; ++k) {
          typename Form::Weight w[R];
#pragma GCC unroll 2
          for (int r = 0; r < R; ++r) w[r] = Form::load(at + (k * V::kRegs + r) * kRegBytes<V>);
          multiply(w, k);
        }
      }
      column += kStepColumns;
      at += kDecodedBytes<Form>;
    };
    if constexpr (ShortGroups<D>) {
      static_assert(Chunk<D>::kSteps % 2 == 0 && !Decodes);  // no chunk cuts a group
      if constexpr (kTotalsWait) __asm__ volatile("" : : "r"(&total) : "memory");
      multiply_step(0, std::true_type{});
      __asm__ volatile("" : "+r"(column));  // as in tile-inl.h
      if (piece.steps > 1) multiply_step(1, std::false_type{});
    } else {
      for_sums<T, R>([&](int t, int r) __attribute__((always_inline)) {
#pragma GCC unroll 2
        for (int c = 0; c < Acc::kChains; ++c) {
          if (!piece.begins_group) {
            acc.value[t][r][c] = Sums::load_sum(carry.sums[part.token + t][c] + (reg + r) * V::kLanes);
          } else if (Sums::kUnsigned && !args.shape.zeros && c + 1 == Acc::kChains) {
            acc.value[t][r][c] = Sums::start(args.sums, part.token + t, piece.group);
          } else {
            acc.value[t][r][c] = Sums::zero();
          }
        }
      });
      for (std::int64_t s = 0; s < piece.steps; ++s) multiply_step(s, std::false_type{});
      if (!piece.ends_group) {
        for_sums<T, R>([&](int t, int r) __attribute__((always_inline)) {
#pragma GCC unroll 2
          for (int c = 0; c < Acc::kChains; ++c)
            Sums::store_sum(carry.sums[part.token + t][c] + (reg + r) * V::kLanes, acc.value[t][r][c]);
        });
        continue;
      }
    }
    if constexpr (Sums::kIntegers) {
      if (piece.input_scale > 0) change_scale<V>(total, args.input_scales + part.token, piece.input_scale);
    }
    for_sums<T, R>([&](int t, int r) __attribute__((always_inline)) {
      typename Form::Sum sum = acc.sum(t, r);
      if constexpr (!Scaled<D>) {
        total[t][r] = Sums::number(sum);
      } else {
        if constexpr (Blocked<Form>)
          sum = Form::widened(Form::add(sum, Form::start(args.sums, part.token + t, piece.group)));
        if (has_zero_points(D::kCode) && args.shape.zeros) {
          const auto shift = Sums::shift(chunk.zeros[p] + (reg + r) * V::kLanes, D::kOffset);
          sum = Sums::shifted(sum, shift, args.sums, part.token + t, piece.group);
        }
        Reg value = Sums::number(sum);
        if (!Sums::kIntegers && args.shape.scaling == ActScaling::per_group)
          value = V::mul(value, V::set1(args.input_scales[part.token + t][piece.group]));
        const auto scale = V::load(chunk.scales[p] + (reg + r) * V::kLanes);
        if constexpr (kTotalsWait) total[t][r] = V::fma_of_memory(value, scale, total[t][r]);
        if constexpr (!kTotalsWait) total[t][r] = V::fma(value, scale, total[t][r]);
      }
    });
  }
#pragma GCC unroll 6
  for (int t = 0; t < T; ++t) {
    const auto factor =
        V::set1(part.last ? part.unit * (args.panel_scale[0] * args.token_scale[part.token + t]) : 1.0F);
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r) V::store(out[t] + r * V::kLanes, V::mul(total[t][r], factor));
  }
}

// args.tokens >= 3 tokens against one panel, in near-equal tiles.
template <class D>
void gemm_chunks(const TileArgs& args) {
  using Form = typename D::Form;
  using V = typename Form::V;
  constexpr int kHalf = 2;  // registers of rows at a time: 6 tokens x 2 sums fit 16 registers
  // Blocked groups have few products beside their end: 3 tokens leave registers for their totals, too.
  constexpr int kTile = Blocked<Form> ? 3 : static_cast<int>(kMaxTile);
  Chunk<D> chunk;
  Carry carry;
  ChunkReader<D> reader(args);
  const std::int64_t tiles = (args.tokens + kTile - 1) / kTile;
  const std::int64_t prefetching = kFirstDecodes<V> ? tiles - 1 : tiles;
  const bool prefetches = kPrefetchesChunk<V> && args.prefetch.panels == nullptr && prefetching > 0;
  for (std::int64_t t = 0; t < args.tokens; ++t) Prefetch<V>::results(args.out[0] + t * args.out_stride);
  ChunkPart<V> part{.token = 0, .column = 0, .first = true, .last = false, .unit = D::kUnit, .next = {}};
  while (!reader.done()) {
    const std::int64_t steps = reader.read(chunk);
    part.last = reader.done();
    if constexpr (WithExceptions<D>) {
      if (part.last) part.unit *= reinterpret_cast<const Bf16x12Tail*>(reader.at())->factor;
    }
    const std::int64_t share =
        prefetches ? steps * D::kBytes / prefetching / 64 * 64 : 0;  // of each tile that prefetches
    part.next = {.line = reader.at(), .from = reader.at(), .walked = chunk.weights, .share = 0};
    if (prefetches) part.next.share = 1 + (share << kShareBits) / (steps * kDecodedBytes<Form>);
    for (std::int64_t i = 0; i < tiles; ++i) {
      part.token = args.tokens * i / tiles;
      const std::int64_t tile = args.tokens * (i + 1) / tiles - part.token;
      for (int reg = 0; reg < V::kRegs; reg += kHalf) {
        with_tokens<(kTile + 1) / 2, kTile>(tile, [&]<int kTokens>(Tokens<kTokens>) {
          constexpr auto kFirst = chunk_tile<D, kTokens, kHalf, kFirstDecodes<V>>;
          (i == 0 ? kFirst : chunk_tile<D, kTokens, kHalf, false>)(args, chunk, carry, part, reg);
        });
      }
      if (!kFirstDecodes<V> || i > 0) part.next.line = part.next.from = part.next.from + share;
    }
    part.column += steps * kStepColumns;
    part.first = false;
  }
  if constexpr (WithExceptions<D>) {
    add_exceptions<Form>(args, *reinterpret_cast<const Bf16x12Tail*>(reader.at()), 0, args.tokens);
  }
}

}  // namespace moracle::cpu
