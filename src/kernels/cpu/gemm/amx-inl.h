// A call against one panel by AMX tiles.
// A tile of weights is 16 lines of a panel, 128 bytes apart, for each half of its rows. What tiles multiply as it is
// stored is loaded from there; other codes are unpacked first, 4 or 8 KiB at a time, for all tokens of the call.
//
// Tiles: 4 of sums, 2 of activations by 2 of weights. A multiply takes as many cycles as it has tokens; its result can
// be added to after 52. Complete sums go to memory, and into the totals while the tiles work on the next ones.
//
// A decoder D has kBytes of a step, kUnit of its numbers, kOffset of codes under scales, kLineColumns in four bytes.
// kStored: tiles take codes as stored; else unpack() writes the lines of some steps. kScaled: groups end with scales.
// joins(args): the weights hold their scales, so groups share one sum. Sums (sums-inl.h) are integers where kIntegers,
// else f32. gemm_first() and gemm_second() multiply the first and the second tile of activations.
#pragma once

#include <immintrin.h>

#include <type_traits>

#include "kernels/cpu/gemm/gemm-inl.h"

namespace moracle::cpu {

// Tile loads and stores are opaque to the compiler, which must not move ordinary accesses of the same memory over them.
template <class V>
inline void fence() {
  __asm__ volatile("" ::: "memory");
}

struct alignas(64) TileConfig {  // an operand of LDTILECFG
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

constexpr std::int64_t kLine = 64;              // bytes of a tile row: 16 rows of weights, or columns of a token
constexpr std::int64_t kTileRows = 16;          // tokens of a tile of sums; lines of a tile of weights
constexpr std::int64_t kPanelLine = 2 * kLine;  // one line of columns of a whole panel

// The two tiles of activations: two times up to 16 tokens; up to 16, whose blocks of columns take turns at two sets of
// sums, since one would wait for itself; or both planes of up to 16 tokens.
enum class Pairing : std::uint8_t { tokens, blocks, split };

template <Pairing P>
constexpr std::int64_t kTilesOfTokens = P == Pairing::tokens ? 2 : 1;  // tiles of tokens

// Blocks of a piece, a line of a token each: fewer where only one pair of tiles meets it, since the tiles rest while a
// piece is unpacked; more where its sums end with it.
constexpr std::int64_t kMostBlocks = 4;
constexpr std::int64_t kBlocksOfOnePair = 2;
constexpr std::int64_t kMostLines = kMostBlocks * kTileRows;
constexpr std::int64_t kLineBytes = 4;  // of a token or a row

// How far behind a piece lines are prefetched while its sums are added up: a little more than the two pieces read
// since. Prefetched while codes are unpacked, they would fill the buffers that tiles need to load from L2.
constexpr std::int64_t kPrefetchBehind = 6272;

constexpr std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

// A run's tokens in `tiles` tiles of `rows` tokens each; the last ones overlap those before where that does not divide.
template <class V>
struct Dealt {
  std::int64_t tokens;
  std::int64_t tiles;
  std::int64_t rows;

  Dealt(std::int64_t count, std::int64_t together) : tokens(count) {
    const std::int64_t least = (count + kTileRows - 1) / kTileRows;
    tiles = (least + together - 1) / together * together;
    rows = (count + tiles - 1) / tiles;
  }
  [[nodiscard]] std::int64_t begin(std::int64_t tile) const { return smaller(tile * rows, tokens); }
  [[nodiscard]] std::int64_t end(std::int64_t tile) const { return smaller((tile + 1) * rows, tokens); }
  [[nodiscard]] std::int64_t first(std::int64_t tile) const { return smaller(tile * rows, tokens - rows); }  // loaded
};

// Tiles 0 .. 3: sums, of the first activations by the halves of the rows, then of the others; 4, 5: activations; 6, 7:
// weights. They stay configured, since a released unit would have to wake for the next run.
template <class V>
void configure(std::int64_t tokens, std::int64_t lines) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = static_cast<std::uint16_t>(tile == 4 || tile == 5 ? lines * kLineBytes : kLine);
    config.rows[tile] = static_cast<std::uint8_t>(tile < 6 ? tokens : lines);
  }
  fence<V>();
  _tile_loadconfig(&config);
}

// Blocks of as many lines as tiles of weights have, of one group or of several that join. The last one is filled up
// with zeros, which meet whatever activations come next and add nothing.
struct Piece {
  const std::byte* weights = nullptr;
  const std::byte* read = nullptr;  // where it lies in the panel
  std::int64_t read_bytes = 0;
  std::int64_t blocks = 0;
  std::int64_t line = 0;  // of the row, the first
  std::int64_t lines = 0;
  std::int64_t group = 0;
  const std::byte* tail = nullptr;  // the group's scales and zero points; null: sums are the result
  bool begins = false;              // a sum
  bool ends = false;
};

// Walks a panel piece by piece.
template <class D>
class Pieces {
  using V = typename D::V;

 public:
  Pieces(const TileArgs& args, std::int64_t most_blocks) : args_(args), joins_(D::joins(args)) {
    const std::int64_t steps = args.shape.groups > 1 && !joins_ ? args.shape.steps : kMostLines;
    block_lines_ = smaller(steps * kStepLines, kTileRows);
    most_lines_ = most_blocks * block_lines_;
  }

  [[nodiscard]] std::int64_t block_lines() const { return block_lines_; }
  [[nodiscard]] bool done() const { return group_ == args_.shape.groups; }

  // `prefetches`: lines from memory while unpacking.
  void restart(bool prefetches) {
    at_ = args_.panels[0];
    group_ = done_ = line_ = 0;
    prefetches_ = prefetches;
  }

  Piece next() {
    Piece piece{.read = at_, .line = line_, .group = group_, .begins = joins_ ? line_ == 0 : done_ == 0};
    do {
      const std::int64_t all = group_ + 1 == args_.shape.groups ? args_.shape.last_steps : args_.shape.steps;
      const std::int64_t room = (most_lines_ - piece.lines) / kStepLines;
      const std::int64_t steps = smaller(all - done_, room);
      const std::byte* const tail = at_ + (all - done_) * D::kBytes;
      piece.weights = take(steps, tail, piece.lines);
      piece.lines += steps * kStepLines;
      at_ += steps * D::kBytes;
      done_ += steps;
      piece.ends = done_ == all;
      if (!joins_ && D::kScaled) piece.tail = tail;
      if (done_ == all) {
        at_ += kPanelRows * (cpu::scale_bytes(args_.shape.scale) + (args_.shape.zeros ? 1 : 0));
        done_ = 0;
        ++group_;
      }
    } while (joins_ && !done() && piece.lines < most_lines_);
    if (joins_) piece.ends = done();
    piece.read_bytes = at_ - piece.read;
    piece.blocks = (piece.lines + block_lines_ - 1) / block_lines_;
    piece.weights = fill_up(piece, piece.blocks * block_lines_);
    line_ += piece.lines;
    fence<V>();
    return piece;
  }

 private:
  static constexpr std::int64_t kStepLines = kStepColumns / D::kLineColumns;

  // The lines of some steps, which follow `before` others of the piece.
  const std::byte* take(std::int64_t steps, const std::byte* tail, std::int64_t before) {
    if constexpr (D::kStored) {
      return at_;
    } else {
      decoder_.unpack(args_, at_, steps, tail, lines_ + before * kPanelLine, prefetches_);
      return lines_;
    }
  }

  const std::byte* fill_up(const Piece& piece, std::int64_t lines) {
    if (piece.lines == lines) return piece.weights;
    if constexpr (D::kStored) {
      for (std::int64_t i = 0; i < piece.lines * kPanelLine; i += kLine) {
        _mm512_store_si512(lines_ + i, _mm512_loadu_si512(piece.weights + i));
      }
    }
    for (std::int64_t i = piece.lines * kPanelLine; i < lines * kPanelLine; i += kLine) {
      _mm512_store_si512(lines_ + i, _mm512_setzero_si512());
    }
    return lines_;
  }

  const TileArgs& args_;
  const bool joins_;
  const D decoder_{};
  std::int64_t block_lines_;
  std::int64_t most_lines_;
  const std::byte* at_ = nullptr;
  std::int64_t group_ = 0;
  std::int64_t done_ = 0;  // steps of the group
  std::int64_t line_ = 0;
  bool prefetches_ = true;
  alignas(64) std::byte lines_[kMostLines * kPanelLine];
};

// A piece's sums by two tiles of activations, on their way to the totals.
template <class V>
struct PieceSums {
  alignas(64) std::int32_t of[2][kTileRows][kPanelRows];  // or f32
  Piece piece;
  std::int64_t tile;  // of tokens, the first
  // For so many lines from memory while they are added up; none: for a line of its own, which is at hand.
  const std::byte* prefetch;
  std::int64_t prefetch_lines;

  void store() {
    _tile_stored(0, of[0], kPanelLine);
    _tile_stored(1, of[0][0] + kTileRows, kPanelLine);
    _tile_stored(2, of[1], kPanelLine);
    _tile_stored(3, of[1][0] + kTileRows, kPanelLine);
    fence<V>();
  }
};

// Apart from the result, whose rows may lie a power of two apart, in one set of the cache.
struct Totals {
  alignas(64) float values[kMaxTokens][kPanelRows];
  alignas(64) std::int32_t begun[2][kMaxTokens][kPanelRows];  // of a group that takes several pieces, as PieceSums
};

template <class D, Pairing P>
auto sum_of(const PieceSums<typename D::V>& sums, std::int64_t which, std::int64_t row, int r) {
  using V = typename D::V;
  const typename V::Int sum = _mm512_load_si512(sums.of[which][row] + r * V::kLanes);
  const typename V::Int other = _mm512_load_si512(sums.of[1][row] + r * V::kLanes);
  if constexpr (!D::kIntegers) {
    if constexpr (P == Pairing::tokens) return _mm512_castsi512_ps(sum);
    return V::add(_mm512_castsi512_ps(sum), _mm512_castsi512_ps(other));
  } else {
    if constexpr (P == Pairing::tokens) return sum;
    return V::add(P == Pairing::split ? V::times_256(sum) : sum, other);
  }
}

// Integer sums of a group that takes several pieces add up before they are numbers: so far with `sums`.
template <class D, Pairing P>
void gather_sums(const Dealt<typename D::V>& dealt, PieceSums<typename D::V>& sums, Totals& totals) {
  using V = typename D::V;
  for (std::int64_t i = 0; i < kTilesOfTokens<P>; ++i) {
    const std::int64_t first = dealt.first(sums.tile + i);
    for (std::int64_t t = dealt.begin(sums.tile + i); t < dealt.end(sums.tile + i); ++t) {
      for (int row = 0; row < kPanelRows; row += V::kLanes) {
        for (std::int64_t plane = 0; plane < (P == Pairing::tokens ? 1 : 2); ++plane) {
          std::int32_t* const of = sums.of[P == Pairing::tokens ? i : plane][t - first] + row;
          std::int32_t* const begun = totals.begun[plane][t] + row;
          typename V::Int sum = _mm512_load_si512(of);
          if (!sums.piece.begins) sum = V::add(sum, _mm512_load_si512(begun));
          _mm512_store_si512(sums.piece.ends ? of : begun, sum);
        }
      }
    }
  }
}

// The operations on a number, and their order, are those of tile-inl.h. What the loop reads stands in variables of
// its own, since its stores could change anything else.
template <class D, Pairing P, ActScaling Scaling, bool Zeros>
void add_sums(const TileArgs& args, const Dealt<typename D::V>& dealt, PieceSums<typename D::V>& sums, Totals& totals) {
  using V = typename D::V;
  using Reg = typename V::Reg;
  using S = typename D::Sums;
  const std::byte* const tail = sums.piece.tail;
  const std::int64_t group = sums.piece.group;
  const bool ends = sums.piece.ends;
  if (D::kIntegers && !(sums.piece.begins && ends)) {
    gather_sums<D, P>(dealt, sums, totals);
    if (!ends) return;
  }
  const void* const* const input_sums = args.sums;
  const float* const* const input_scales = args.input_scales;
  const bool changes = Scaling == ActScaling::running && group > 0 && group % args.shape.scale_groups == 0;
  const std::int64_t input_scale = changes ? group / args.shape.scale_groups : group;
  Reg scale[V::kRegs];
  [[maybe_unused]] typename S::Sum zeros[V::kRegs];
  for (int r = 0; r < V::kRegs; ++r) {
    scale[r] = tail == nullptr ? V::set1(1.0F) : load_scale<V>(args.shape.scale, tail, r);
    if constexpr (Zeros)
      zeros[r] = S::shift(tail + kPanelRows * cpu::scale_bytes(args.shape.scale) + r * V::kLanes, D::kOffset);
  }
  const std::byte* ask = sums.prefetch;
  const std::int64_t ask_step = sums.prefetch_lines > 0 ? kLine : 0;
  const std::byte* const ask_end = ask + sums.prefetch_lines * kLine;
  const auto add = [&](auto scaled) __attribute__((always_inline)) {
    for (std::int64_t i = 0; i < kTilesOfTokens<P>; ++i) {
      const std::int64_t first = dealt.first(sums.tile + i);
      const std::int64_t end = dealt.end(sums.tile + i);
      for (std::int64_t t = dealt.begin(sums.tile + i); t < end; ++t) {
        Prefetch<V>::l1(ask);
        ask += ask_step;
        [[maybe_unused]] Reg input = V::zero();
        if constexpr (scaled) input = V::set1(input_scales[t][input_scale]);
        [[maybe_unused]] typename S::Sum start = S::zero();
        if constexpr (!Zeros && S::kUnsigned) start = S::start(input_sums, t, group);
#pragma GCC unroll 2
        for (int r = 0; r < V::kRegs; ++r) {
          auto sum = sum_of<D, P>(sums, i, t - first, r);
          if constexpr (Zeros) {
            if (ends) sum = S::shifted(sum, zeros[r], input_sums, t, group);
          } else if constexpr (S::kUnsigned) {
            sum = S::add(sum, start);
          }
          Reg value = S::number(sum);
          if constexpr (Scaling == ActScaling::per_group) value = V::mul(value, input);
          float* const total = totals.values[t] + r * V::kLanes;
          Reg so_far = V::load(total);
          if constexpr (scaled && Scaling == ActScaling::running) so_far = V::mul(so_far, input);
          V::store(total, V::fma(value, scale[r], so_far));
        }
      }
    }
  };
  if (Scaling == ActScaling::per_group || changes) {
    add(std::true_type{});
  } else {
    add(std::false_type{});
  }
  for (; ask < ask_end; ask += kLine) Prefetch<V>::l1(ask);
}

template <class V>
using AddSums = void (*)(const TileArgs&, const Dealt<V>&, PieceSums<V>&, Totals&);

template <class D, Pairing P>
AddSums<typename D::V> add_for(const TileArgs& args) {
  const auto under = [&]<ActScaling kScaling>(std::integral_constant<ActScaling, kScaling>) {
    return args.shape.zeros && D::kScaled ? add_sums<D, P, kScaling, true> : add_sums<D, P, kScaling, false>;
  };
  if (args.shape.scaling == ActScaling::per_group) return under(kPerGroup);
  if constexpr (D::kIntegers) {
    if (args.shape.scale_groups > 0) return under(kRunning);
  }
  return under(kPerToken);
}

template <class D, Pairing P>
class PanelByTiles {
  using V = typename D::V;

 public:
  explicit PanelByTiles(const TileArgs& args)
      : args_(args),
        dealt_(args.tokens, kTilesOfTokens<P>),
        pairs_(dealt_.tiles / kTilesOfTokens<P>),
        shared_(!D::kStored && pairs_ > 1),
        adds_prefetch_(args.prefetch.panels == nullptr && (shared_ || (args.shape.groups > 1 && !D::joins(args)))),
        pieces_(args, shared_ ? kMostBlocks : kBlocksOfOnePair),
        add_(add_for<D, P>(args)),
        x_(static_cast<const std::byte*>(args.x[0])),
        distance_(args.tokens > 1 ? static_cast<const std::byte*>(args.x[1]) - x_ : 0),
        plane_(plane_bytes<V>(args)) {}

  void run() {
    configure<V>(dealt_.rows, pieces_.block_lines());
    for (std::int64_t t = 0; t < args_.tokens; ++t) {
      for (int r = 0; r < V::kRegs; ++r) V::store(totals_.values[t] + r * V::kLanes, V::zero());
    }
    for (std::int64_t walk = 0; walk < (shared_ ? 1 : pairs_); ++walk) {
      pieces_.restart(walk == 0 && !adds_prefetch_);
      const std::byte* read = nullptr;  // where what the sums hold begins
      while (!pieces_.done()) {
        const Piece piece = pieces_.next();
        if (shared_ || piece.begins) read = piece.read;
        for (std::int64_t pair = walk; pair < (shared_ ? pairs_ : walk + 1); ++pair) {
          const std::int64_t tile = pair * kTilesOfTokens<P>;
          multiply(piece, tile, D::kStored && walk == 0 && !adds_prefetch_);
          if (shared_ || piece.ends) spill(piece, tile, adds_prefetch_ && pair == 0 ? read : nullptr);
        }
      }
    }
    add_(args_, dealt_, *waiting_, totals_);
    write();
  }

 private:
  // Tiles of tokens from `tile` on times a piece.
  void multiply(const Piece& piece, std::int64_t tile, bool prefetches) {
    const std::byte* const rows = x_ + dealt_.first(tile) * distance_ + piece.line * kLineBytes;
    const std::byte* others = rows;  // of the second tile
    if constexpr (P == Pairing::tokens) others += (dealt_.first(tile + 1) - dealt_.first(tile)) * distance_;
    if constexpr (P == Pairing::split) others += plane_;
    if (shared_ || piece.begins) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
    const std::int64_t block_lines = pieces_.block_lines();
    const std::byte* weights = piece.weights;
    for (std::int64_t b = 0; b < piece.blocks; ++b, weights += block_lines * kPanelLine) {
      if (prefetches) Prefetch<V>::panel(args_, weights, block_lines * kPanelLine, kPrefetchBytes);
      const std::int64_t column = b * block_lines * kLineBytes;
      _tile_loadd(6, weights, kPanelLine);
      _tile_loadd(7, weights + kLine, kPanelLine);
      if (P != Pairing::blocks || b % 2 == 0) {
        _tile_loadd(4, rows + column, distance_);
        D::gemm_first();
      }
      if (P != Pairing::blocks || b % 2 == 1) {
        _tile_loadd(5, others + column, distance_);
        D::gemm_second();
      }
    }
  }

  // Stores the tiles' sums. Those before them are added up first: loads behind the stores of so many lines would seem
  // to hit these.
  void spill(const Piece& piece, std::int64_t tile, const std::byte* prefetch_from) {
    if (waiting_ != nullptr) add_(args_, dealt_, *waiting_, totals_);
    waiting_ = &sums_[turn_];
    turn_ ^= 1;
    waiting_->piece = piece;
    waiting_->piece.begins = !shared_ || piece.begins;
    waiting_->tile = tile;
    waiting_->prefetch =
        prefetch_from != nullptr ? prefetch_from + kPrefetchBehind : reinterpret_cast<const std::byte*>(waiting_);
    waiting_->prefetch_lines = prefetch_from != nullptr ? (piece.read + piece.read_bytes - prefetch_from) / kLine : 0;
    waiting_->store();
  }

  void write() const {
    for (std::int64_t t = 0; t < args_.tokens; ++t) {
      const auto factor = V::set1(D::kUnit * (args_.panel_scale[0] * args_.token_scale[t]));
      float* const out = args_.out[0] + t * args_.out_stride;
      for (int r = 0; r < V::kRegs; ++r) {
        V::store(out + r * V::kLanes, V::mul(V::load(totals_.values[t] + r * V::kLanes), factor));
      }
    }
  }

  const TileArgs& args_;
  const Dealt<V> dealt_;
  const std::int64_t pairs_;  // of tiles
  // What is unpacked serves all tokens, at the price of sums that end with each piece. Else each pair of tiles walks
  // the panel by itself, and its sums stay in the tiles.
  const bool shared_;
  const bool adds_prefetch_;
  Pieces<D> pieces_;
  const AddSums<V> add_;
  const std::byte* const x_;     // of the first token
  const std::int64_t distance_;  // to the next one
  const std::int64_t plane_;
  Totals totals_;
  PieceSums<V> sums_[2];
  PieceSums<V>* waiting_ = nullptr;
  int turn_ = 0;
};

// A kernel of AMX tiles.
template <class D>
void gemm_amx(const GemmArgs& args) {
  TileCall<typename D::V> call(args);
  for (std::int64_t p = 0; p < args.count; ++p) {
    const TileArgs& tile = call.tile(p, 0, args.tokens);
    if constexpr (D::kAct == ActDtype::split_i16) {
      PanelByTiles<D, Pairing::split>(tile).run();
    } else if (args.tokens <= kTileRows) {
      PanelByTiles<D, Pairing::blocks>(tile).run();
    } else {
      PanelByTiles<D, Pairing::tokens>(tile).run();
    }
  }
}

template <class D>
constexpr GemmKernel amx_row(std::uint16_t min_tokens, ActivationMask activations = kAnyActivations,
                             Groups groups = Groups::any) {
  GemmKernel row{
      .key = {D::kCode, D::kAct, activations, groups}, .min_tokens = min_tokens, .run = gemm_amx<D>, .even_rows = true};
  if constexpr (D::Sums::kUnsigned) row.offset = static_cast<std::int32_t>(D::kOffset);
  return row;
}

}  // namespace moracle::cpu
