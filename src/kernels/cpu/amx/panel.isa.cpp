// AMX runs: 16-bit and 8-bit activations against tiles of 16 rows of weights.
//
// The panel layout is already what tiles want: 16 rows of weights by four bytes of columns fill a cache line, so a tile
// of B is 16 lines, 128 bytes apart, for each half of a panel. bf16 and int8 weights are loaded straight from the
// panel; 4-bit and FP8 codes are decoded into a chunk first, 8 KiB that stay in the first-level cache beside the
// activations that meet it.
//
// Tiles: 4 of sums (two of up to 16 tokens by the two halves of the panel's rows), 2 of activations, 2 of weights; each
// load of either side serves two multiplies. A TDP takes 16 cycles for 16 tokens x 16 rows x 64 bytes of columns, so a
// chunk of 128 columns costs 256 cycles for 32 tokens, about as many as its decoding. A TDP's result can be added to
// after 52 cycles, so up to 16 tokens take turns between two sets of sums. Tiles stay
// configured when a run ends: releasing them makes the next run wait for the unit to wake.
//
// Scales. Where the scaled weight is exact in bf16 (a power of two times any code; E4M3 times E2M1, 6 significant bits)
// it is decoded with its scale, and sums stay in the tiles for the whole row. Elsewhere the tiles are stored at each
// group's end and added up under the group's scale.
#include <immintrin.h>

#include "kernels/cpu/amx/amx_runs.h"

namespace moracle::cpu {
namespace {

#include "kernels/cpu/avx512/vectors512.inc"

#include "kernels/cpu/panel_body.inc"

#include "kernels/cpu/avx512bf16/decoders_bf16.inc"

#include "kernels/cpu/amx/tiles.inc"

constexpr std::int64_t kLine = 64;              // bytes of a tile row: 16 rows of weights, or columns of a token
constexpr std::int64_t kTileRows = 16;          // tokens of a tile of sums; lines of a tile of weights
constexpr std::int64_t kPanelLine = 2 * kLine;  // one line of columns of a whole panel
constexpr std::int64_t kBlock = kTileRows * kPanelLine;  // what one multiply takes of a panel
constexpr std::int64_t kPass = 2 * kTileRows;            // tokens that meet a chunk at a time
constexpr std::int64_t kGatherBytes = 1024;              // columns of a token that are gathered at a time

// Tokens [first, first + count) of a run.
struct Pass {
  std::int64_t first;
  std::int64_t count;
  bool two;  // tiles of tokens; else every second block has its own sums
  [[nodiscard]] std::int64_t second() const { return two ? count / 2 : 0; }
  [[nodiscard]] std::int64_t split() const { return count - second(); }  // first token of the second tile
};

// Tiles 0, 1: sums of the first tokens by the panel's halves; 2, 3: of the others, or of every second block where one
// tile holds all tokens; 4, 5: activations; 6, 7: weights.
void configure(const Pass& pass) {
  TileConfig config;
  const std::int64_t one = pass.split();
  const std::int64_t other = pass.two ? pass.second() : one;
  const std::int64_t rows[8] = {one, one, other, other, one, other, kTileRows, kTileRows};
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = kLine;
    config.rows[tile] = static_cast<std::uint8_t>(rows[tile]);
  }
  fence();
  _tile_loadconfig(&config);
}

struct Bf16Op {
  static constexpr bool kIntegers = false;
  static void multiply_first() {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
  }
  static void multiply_second() {
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
};
struct Int8Op {
  static constexpr bool kIntegers = true;
  static void multiply_first() {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
  }
  static void multiply_second() {
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
};

void clear_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

// 32-bit sums [tokens of a run][rows of the panel].
struct TileSums {
  alignas(64) float values[kMaxRun][kPanelRows];
  alignas(64) float others[kTileRows][kPanelRows];  // of every second block, of a pass of one tile of tokens

  void store(const Pass& pass) {
    float(*at)[kPanelRows] = values + pass.first;
    _tile_stored(0, at, kPanelLine);
    _tile_stored(1, at[0] + kTileRows, kPanelLine);
    at = pass.two ? at + pass.split() : others;
    _tile_stored(2, at, kPanelLine);
    _tile_stored(3, at[0] + kTileRows, kPanelLine);
    fence();
  }
};

// Rows of activations as tiles want them, one distance apart. Rows of experts' inputs may lie anywhere; such are
// copied.
class TileRows {
 public:
  explicit TileRows(const PanelArgs& args) : args_(args) {
    if (args.tokens < 2) return;
    stride_ = at(1) - at(0);
    for (std::int64_t t = 2; t < args.tokens; ++t) {
      if (at(t) - at(t - 1) != stride_) stride_ = 0;
    }
  }

  // Bytes [offset, offset + bytes) of the tokens of a pass and a line more, which a group's last block may reach into;
  // bytes is a multiple of a line and at most kGatherBytes.
  void take(const Pass& pass, std::int64_t offset, std::int64_t bytes) {
    if (stride_ > 0 || args_.tokens == 1) {
      data_ = at(pass.first) + offset;
      distance_ = stride_;
      return;
    }
    for (std::int64_t t = 0; t < pass.count; ++t) {
      for (std::int64_t i = 0; i <= bytes; i += kLine) {
        _mm512_storeu_si512(copy_[t] + i, _mm512_loadu_si512(at(pass.first + t) + offset + i));
      }
    }
    fence();
    data_ = copy_[0];
    distance_ = sizeof copy_[0];
  }
  [[nodiscard]] const std::byte* data() const { return data_; }
  [[nodiscard]] std::int64_t distance() const { return distance_; }

 private:
  [[nodiscard]] const std::byte* at(std::int64_t t) const { return static_cast<const std::byte*>(args_.x[t]); }

  const PanelArgs& args_;
  std::int64_t stride_ = 0;  // 0: none
  const std::byte* data_ = nullptr;
  std::int64_t distance_ = 0;
  alignas(64) std::byte copy_[kPass][kGatherBytes + kLine];  // a line more, so that rows fall into different sets
};

// Blocks of 16 lines of a panel times the rows of a pass, from `offset` bytes of the taken rows on. `each` is called
// before a block.
template <class Op, class Each>
void multiply_blocks(const Pass& pass, const TileRows& rows, std::int64_t offset, const std::byte* weights,
                     std::int64_t blocks, Each each) {
  const std::byte* first = rows.data() + offset;
  const std::byte* second = first + pass.split() * rows.distance();
  const bool both = pass.two;
  for (std::int64_t b = 0; b < blocks; ++b) {
    each(b);
    _tile_loadd(6, weights, kPanelLine);
    _tile_loadd(7, weights + kLine, kPanelLine);
    if (both || b % 2 == 0) {
      _tile_loadd(4, first, rows.distance());
      Op::multiply_first();
    }
    if (both || b % 2 == 1) {
      _tile_loadd(5, both ? second : first, rows.distance());
      Op::multiply_second();
    }
    weights += kBlock;
    first += kLine;
    second += kLine;
  }
}

// How a group's sums become numbers and join the result.
struct GroupEnd {
  const std::byte* tail;  // the group's scales and zero points; null: sums are the result
  std::int64_t group;
  bool first;  // group of the row
};

template <class Op>
V::Reg number(const TileSums& sums, const Pass& pass, std::int64_t token, int row) {
  const float* one = sums.values[token] + row;
  const float* other = pass.two ? nullptr : sums.others[token - pass.first] + row;
  if constexpr (Op::kIntegers) {
    const __m512i sum = _mm512_load_si512(one);
    return _mm512_cvtepi32_ps(other == nullptr ? sum : _mm512_add_epi32(sum, _mm512_load_si512(other)));
  } else {
    const V::Reg sum = V::load(one);
    return other == nullptr ? sum : V::add(sum, V::load(other));
  }
}

// Adds a group's sums under its scale to the tokens' results.
template <class Op, bool Zeros, bool Scaled>
void add_sums(const PanelArgs& args, const Pass& pass, const TileSums& sums, const GroupEnd& end, float offset) {
  const std::int64_t scale_bytes = kPanelRows * scale_width(args.scale);
  V::Reg scale[V::kRegs];
  V::Reg shift[V::kRegs];
  for (int r = 0; r < V::kRegs; ++r) {
    scale[r] = end.tail == nullptr ? V::set1(1.0F) : load_scale(args.scale, end.tail, r);
    if constexpr (Zeros) shift[r] = V::sub(V::set1(offset), V::load_u8(end.tail + scale_bytes + r * V::kLanes));
  }
  const bool first = end.first;
  float* out = args.out[0] + pass.first * args.out_stride;
  for (std::int64_t t = pass.first; t < pass.first + pass.count; ++t, out += args.out_stride) {
#pragma GCC unroll 2
    for (int r = 0; r < V::kRegs; ++r) {
      V::Reg value = number<Op>(sums, pass, t, r * V::kLanes);
      if constexpr (Zeros) {
        const float sum = Op::kIntegers ? static_cast<float>(static_cast<const std::int32_t*>(args.sums[t])[end.group])
                                        : static_cast<const float*>(args.sums[t])[end.group];
        value = V::fma(shift[r], V::set1(sum), value);
      }
      if constexpr (Scaled) value = V::mul(value, V::set1(args.input_scales[t][end.group]));
      float* to = out + r * V::kLanes;
      V::store(to, first ? V::mul(value, scale[r]) : V::fma(value, scale[r], V::load(to)));
    }
  }
}

template <class Op>
void add_group(const PanelArgs& args, const Pass& pass, const TileSums& sums, const GroupEnd& end, float offset) {
  const bool zeros = args.zeros && end.tail != nullptr;
  if (zeros && args.scaled) {
    add_sums<Op, true, true>(args, pass, sums, end, offset);
  } else if (zeros) {
    add_sums<Op, true, false>(args, pass, sums, end, offset);
  } else if (args.scaled) {
    add_sums<Op, false, true>(args, pass, sums, end, offset);
  } else {
    add_sums<Op, false, false>(args, pass, sums, end, offset);
  }
}

void finish(const PanelArgs& args) {
  for (std::int64_t t = 0; t < args.tokens; ++t) {
    const V::Reg factor = V::set1(args.panel_scale[0] * args.token_scale[t]);
    float* out = args.out[0] + t * args.out_stride;
    for (int r = 0; r < V::kRegs; ++r) V::store(out + r * V::kLanes, V::mul(V::load(out + r * V::kLanes), factor));
  }
}

Pass pass_of(const PanelArgs& args, std::int64_t i, std::int64_t passes) {
  const std::int64_t first = args.tokens * i / passes;
  return {.first = first, .count = args.tokens * (i + 1) / passes - first, .two = args.tokens > kTileRows};
}

// Weights that tiles take as they are stored: `lines` lines of columns a group, then its scales and zero points.
template <class Op>
void run_stored(const PanelArgs& args, std::int64_t lines_per_step, float offset, bool scales) {
  TileRows rows(args);
  TileSums sums;
  const std::int64_t tail_bytes = kPanelRows * (scale_width(args.scale) + (args.zeros ? 1 : 0));
  const std::int64_t passes = (args.tokens + kPass - 1) / kPass;
  alignas(64) std::byte last[kBlock];  // a group's last lines, filled up with zeros
  for (std::int64_t i = 0; i < passes; ++i) {
    const Pass pass = pass_of(args, i, passes);
    configure(pass);
    const std::byte* at = args.panels[0];
    std::int64_t offset_bytes = 0;  // in a row
    for (std::int64_t g = 0; g < args.groups; ++g) {
      const std::int64_t lines = (g + 1 == args.groups ? args.last_steps : args.steps) * lines_per_step;
      clear_sums();
      for (std::int64_t done = 0; done < lines;) {
        const std::int64_t left = lines - done;
        const std::int64_t most = kGatherBytes / 4;  // lines whose columns are taken at a time
        const std::int64_t now = left < most ? left : most;
        const std::int64_t blocks = now / kTileRows;
        const std::int64_t rest = now % kTileRows;
        rows.take(pass, offset_bytes, (now * 4 + kLine - 1) / kLine * kLine);
        multiply_blocks<Op>(pass, rows, 0, at, blocks, [&](std::int64_t b) {
          if (i == 0) prefetch(args, at + b * kBlock, kBlock);
        });
        if (rest != 0) {
          __builtin_memset(last, 0, sizeof last);
          __builtin_memcpy(last, at + blocks * kBlock, static_cast<std::size_t>(rest * kPanelLine));
          fence();
          multiply_blocks<Op>(pass, rows, blocks * kLine, last, 1, [](std::int64_t) {});
        }
        at += now * kPanelLine;
        offset_bytes += now * 4;
        done += now;
      }
      sums.store(pass);
      add_group<Op>(args, pass, sums, {.tail = scales ? at : nullptr, .group = g, .first = g == 0}, offset);
      if (scales) at += tail_bytes;
    }
  }
  finish(args);
}

void run_bf16(const PanelArgs& args) {
  run_stored<Bf16Op>(args, 4, 0.0F, false);
}
void run_int8(const PanelArgs& args) {
  run_stored<Int8Op>(args, 2, 128.0F, true);
}

// A chunk of decoded weights, in blocks of 16 lines; a group's part begins a block, and its last one is filled up with
// zeros, which meet the next columns' activations and add nothing.
constexpr std::int64_t kChunkBlocks = 4;
constexpr std::int64_t kStepsPerBlock = 4;
constexpr std::int64_t kChunkSteps = kChunkBlocks * kStepsPerBlock;
constexpr std::int64_t kStepBytes = kBlock / kStepsPerBlock;  // decoded
static_assert(kChunkBlocks * kLine <= kGatherBytes);

struct TileChunk {
  struct Piece {
    std::int64_t blocks;
    std::int64_t column_bytes;  // of its first column in a row
    bool begins;                // sums start
    bool ends;                  // sums are complete
    GroupEnd end;
  };
  alignas(64) std::byte weights[kChunkBlocks * kBlock];
  Piece pieces[kChunkBlocks];
  std::int64_t count;         // pieces
  std::int64_t column_bytes;  // of the chunk's first column
  std::int64_t bytes;         // of its columns
};

// Multiplies bf16 pairs by f32 scales of their rows; the caller knows that the products are bf16 numbers.
inline __m512i scaled_pairs(__m512i pairs, V::Reg scale) {
  const __m512i high_half = _mm512_set1_epi32(static_cast<int>(0xFFFF0000U));
  const __m512 even = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)), scale);
  const __m512 odd = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_and_si512(pairs, high_half)), scale);
  return _mm512_ternarylogic_epi32(high_half, _mm512_castps_si512(odd),
                                   _mm512_srli_epi32(_mm512_castps_si512(even), 16), 0xEA);
}

// The scales of a group, ready to be put into its weights.
class FoldedScale {
 public:
  FoldedScale(PanelScale form, const std::byte* scales) {
    if (form == PanelScale::e8m0) {
      const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales));
      // Within these the exponents of all codes' products are those of normal bf16 numbers (E4M3 reaches 2^-9 and 2^8).
      const __m256i low = _mm256_set1_epi8(16);
      const __m256i span = _mm256_set1_epi8(static_cast<char>(240 - 16));
      shifts_ = _mm256_cmple_epu8_mask(_mm256_sub_epi8(bytes, low), span) == 0xFFFFFFFFU;
      for (int r = 0; r < 2; ++r) {
        const __m512i exponent = _mm512_sub_epi32(V::bytes(scales + r * V::kLanes), _mm512_set1_epi32(127));
        const __m512i word = _mm512_and_si512(_mm512_slli_epi32(exponent, 7), _mm512_set1_epi32(0xFFFF));
        exponents_[r] = _mm512_or_si512(word, _mm512_slli_epi32(word, 16));
      }
    }
    for (int r = 0; r < 2; ++r) factors_[r] = load_scale(form, scales, r);
  }
  [[nodiscard]] bool shifts() const { return shifts_; }
  // A power of two is added to the exponents of what is not zero.
  [[nodiscard]] __m512i shifted(__m512i pairs, int r) const {
    const __mmask32 some = _mm512_test_epi16_mask(pairs, _mm512_set1_epi16(0x7FFF));
    return _mm512_mask_add_epi16(pairs, some, pairs, exponents_[r]);
  }
  [[nodiscard]] __m512i multiplied(__m512i pairs, int r) const { return scaled_pairs(pairs, factors_[r]); }

 private:
  bool shifts_ = false;
  __m512i exponents_[2];
  V::Reg factors_[2];
};

// Walks a panel chunk by chunk. Under folded scales one group follows the other; else each begins a block.
template <class D>
class TileReader {
 public:
  TileReader(const PanelArgs& args, bool folds, bool prefetches)
      : args_(args), folds_(folds), prefetches_(prefetches), at_(args.panels[0]) {}

  [[nodiscard]] bool done() const { return group_ == args_.groups; }

  void read(TileChunk& chunk) {
    std::int64_t filled = 0;  // steps
    std::int64_t begin = 0;   // of the piece
    chunk.count = 0;
    chunk.column_bytes = column_ * 2;
    while (!done() && filled < kChunkSteps) {
      const std::int64_t all = group_ + 1 == args_.groups ? args_.last_steps : args_.steps;
      const std::int64_t room = kChunkSteps - filled;
      const std::int64_t steps = all - done_ < room ? all - done_ : room;
      const std::byte* const tail = at_ + (all - done_) * D::kBytes;
      if (chunk.count == 0 || !folds_) {
        begin = filled;
        chunk.pieces[chunk.count++] = {
            .blocks = 0,
            .column_bytes = column_ * 2,
            .begins = folds_ ? column_ == 0 : done_ == 0,
            .ends = false,
            .end = {.tail = folds_ ? nullptr : tail, .group = group_, .first = folds_ || group_ == 0}};
      }
      TileChunk::Piece& piece = chunk.pieces[chunk.count - 1];
      decode(steps, tail, chunk.weights + filled * kStepBytes);
      filled += steps;
      column_ += steps * kStepColumns;
      at_ += steps * D::kBytes;
      done_ += steps;
      const bool ends_group = done_ == all;
      if (ends_group) {
        at_ += kPanelRows * (scale_width(args_.scale) + (args_.zeros ? 1 : 0));
        done_ = 0;
        ++group_;
      }
      if (!folds_ || done()) filled = fill_block(chunk, filled);
      piece.blocks = (filled - begin) / kStepsPerBlock;
      piece.ends = folds_ ? done() : ends_group;
    }
    const std::int64_t bytes = column_ * 2 - chunk.column_bytes;
    chunk.bytes = (bytes + kLine - 1) / kLine * kLine;
    fence();
  }

 private:
  // Zeros up to the next block.
  static std::int64_t fill_block(TileChunk& chunk, std::int64_t filled) {
    for (; filled % kStepsPerBlock != 0; ++filled) {
      std::byte* const out = chunk.weights + filled * kStepBytes;
      for (std::int64_t i = 0; i < kStepBytes; i += kLine) _mm512_store_si512(out + i, _mm512_setzero_si512());
    }
    return filled;
  }

  // `steps` of one group, under the scales at `tail`.
  void decode(std::int64_t steps, const std::byte* tail, std::byte* out) const {
    if (!folds_) {
      decode_with(steps, out, [](__m512i pairs, int) { return pairs; });
      return;
    }
    const FoldedScale scale(args_.scale, tail);
    if (scale.shifts()) {
      decode_with(steps, out, [&](__m512i pairs, int r) { return scale.shifted(pairs, r); });
    } else {
      decode_with(steps, out, [&](__m512i pairs, int r) { return scale.multiplied(pairs, r); });
    }
  }

  template <class Scale>
  void decode_with(std::int64_t steps, std::byte* out, Scale scale) const {
    const std::byte* at = at_;
    for (std::int64_t s = 0; s < steps; ++s, at += D::kBytes, out += kStepBytes) {
      if (prefetches_) prefetch(args_, at, D::kBytes);
      decoding(decoder_, at, [&](const auto& chosen) __attribute__((always_inline)) {
#pragma GCC unroll 2
        for (int r = 0; r < V::kRegs; ++r) {  // all columns of a row before any is stored: a store could change them
          __m512i w[kSlots<Bf16Form>];
#pragma GCC unroll 4
          for (int k = 0; k < kSlots<Bf16Form>; ++k) {
            w[k] = scale(reinterpret_cast<__m512i>(chosen.weight(at, k, r)), r);
          }
#pragma GCC unroll 4
          for (int k = 0; k < kSlots<Bf16Form>; ++k) _mm512_store_si512(out + (k * V::kRegs + r) * kLine, w[k]);
        }
      });
    }
  }

  const PanelArgs& args_;
  const bool folds_;
  const bool prefetches_;
  const std::byte* at_;
  const D decoder_{};
  std::int64_t group_ = 0;
  std::int64_t done_ = 0;  // steps of the group
  std::int64_t column_ = 0;
};

// Whether weights times their scales are bf16 numbers.
template <class D>
constexpr bool kExactUnderE4m3 = false;
template <>
constexpr bool kExactUnderE4m3<E2m1> = true;

// A group's sums on their way from the tiles to the results. They are added up while the tiles work on the next group.
struct Pending {
  TileSums sums[2];
  int turn = 0;
  bool waiting = false;
  GroupEnd end{};

  void put(const Pass& pass, const GroupEnd& group) {
    sums[turn].store(pass);
    turn ^= 1;
    end = group;
    waiting = true;
  }
};

template <class D>
void add_pending(const PanelArgs& args, const Pass& pass, Pending& pending) {
  add_group<Bf16Op>(args, pass, pending.sums[pending.turn ^ 1], pending.end, D::kOffset);
  pending.waiting = false;
}

// A panel is decoded once for each pass: keeping the sums of several passes apart costs more.
template <class D>
void run_decoded(const PanelArgs& args) {
  const bool exact = args.scale == PanelScale::e8m0 || (args.scale == PanelScale::e4m3 && kExactUnderE4m3<D>);
  TileChunk chunk;
  TileRows rows(args);
  Pending pending;
  const std::int64_t passes = (args.tokens + kPass - 1) / kPass;
  for (std::int64_t i = 0; i < passes; ++i) {
    const Pass pass = pass_of(args, i, passes);
    configure(pass);
    TileReader<D> reader(args, exact && !args.scaled && !args.zeros, i == 0);
    while (!reader.done()) {
      reader.read(chunk);
      rows.take(pass, chunk.column_bytes, chunk.bytes);
      const std::byte* weights = chunk.weights;
      for (std::int64_t p = 0; p < chunk.count; ++p) {
        const TileChunk::Piece& piece = chunk.pieces[p];
        if (piece.begins) clear_sums();
        multiply_blocks<Bf16Op>(pass, rows, piece.column_bytes - chunk.column_bytes, weights, piece.blocks,
                                [](std::int64_t) {});
        weights += piece.blocks * kBlock;
        if (pending.waiting) add_pending<D>(args, pass, pending);
        if (piece.ends) pending.put(pass, piece.end);
      }
    }
    if (pending.waiting) add_pending<D>(args, pass, pending);
  }
  finish(args);
}

}  // namespace

const AmxRuns kAmxRuns = {
    .q4 = run_decoded<Q4>,
    .q8 = run_decoded<Q8>,
    .e2m1 = run_decoded<E2m1>,
    .e4m3 = run_decoded<E4m3>,
    .bf16 = run_bf16,
    .int8 = run_int8,
};

}  // namespace moracle::cpu
