#include "kernels/cpu/ops/cpu_ops.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>

#include "base/checked.h"
#include "base/generic/count.h"
#include "base/generic/ranking.h"
#include "base/random/gumbel.h"
#include "kernels/cpu/ops/sections.h"
#include "kernels/vector/select.h"
#include "scheme/codes.h"

namespace moracle {

namespace cpu {

namespace {

// Numbers that one task of an elementwise loop takes.
constexpr std::int64_t kElementTile = 16384;
// Numbers of a row that are looked at together: a row of logits keeps every thread at work.
constexpr std::int64_t kFinitePiece = 8192;
// A task of the router is a few of its rows against some tokens: the rows stay in L1 over the tokens, and a single
// token still spreads over all cores.
constexpr std::int64_t kExpertTile = 8;
constexpr std::int64_t kRouterTokens = 64;
// Numbers of a row that one task ranks: one row keeps all threads at work. Pieces of many would be ranked for nothing.
constexpr std::int64_t kRankedPiece = 16384;
std::int64_t ranked_piece(const RankArgs& args) {
  return args.k <= kMaxHeadTopK ? kRankedPiece : args.cols;
}

// A number of a row with what it is ranked by.
struct KeyedNumber {
  double key = 0.0;
  float value = 0.0F;
  std::int32_t col = 0;

  [[nodiscard]] bool before(const KeyedNumber& other) const {
    return key > other.key || (key == other.key && col < other.col);
  }
};

// The best of every piece, [rows, pieces, k].
std::span<KeyedNumber> lay_out(BumpArena& arena, const RankArgs& args) {
  return arena.take<KeyedNumber>(count(args.rows * ceil_div(args.cols, ranked_piece(args)) * args.k));
}

// body(begin, end) for parts of [0, count).
template <class Body>
void for_parts(ThreadPool& pool, std::int64_t count, std::int64_t part, const Body& body) {
  pool.parallel_for(ceil_div(count, part),
                    [&](std::int64_t i, int) { body(i * part, std::min((i + 1) * part, count)); });
}

template <class Body>
void for_rows(ThreadPool& pool, std::int64_t rows, const Body& body) {
  for_parts(pool, rows, kTokenTile, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) body(row);
  });
}

// The first of columns [begin, end) by their keys, as many as `kept` has room for, in no order.
void rank_numbers(const float* x, std::int64_t begin, std::int64_t end, const std::uint64_t* seed, double temperature,
                  std::span<KeyedNumber> kept) {
  Ranking<KeyedNumber> ranking(kept);
  const auto full = begin + std::ssize(kept);
  for (std::int64_t i = begin; i < end; ++i) {
    KeyedNumber offered{.key = static_cast<double>(x[i]), .value = x[i], .col = static_cast<std::int32_t>(i)};
    if (seed != nullptr) {
      const auto col = static_cast<std::uint64_t>(i);
      const double scaled = offered.key / temperature;
      if (i >= full && scaled + gumbel_bound(*seed, col) < ranking.last().key) continue;
      offered.key = scaled + gumbel(*seed, col);
    }
    ranking.offer(offered);
  }
}

}  // namespace

void CpuOps::embed(const RunContext& context, const EmbedArgs& args) const {
  const std::int64_t cols = args.matrix.cols;
  const std::uint8_t* const table = args.pack.weights + args.matrix.codes;
  for_rows(context.pool(), args.tokens, [&](std::int64_t t) {
    const std::int64_t first = std::int64_t{args.ids[t]} * args.matrix.padded;
    float* const out = args.out + t * cols;
    if (first < 0) {
      std::fill_n(out, cols, 0.0F);
      return;
    }
    if (args.pack.code == DeviceCode::f32) {
      std::memcpy(out, table + static_cast<std::size_t>(first) * sizeof(float),
                  static_cast<std::size_t>(cols) * sizeof(float));
      return;
    }
    const std::uint8_t* const row = table + static_cast<std::size_t>(first) * sizeof(std::uint16_t);
    for (std::int64_t i = 0; i < cols; ++i) {
      std::uint16_t code = 0;
      std::memcpy(&code, row + static_cast<std::size_t>(i) * sizeof code, sizeof code);
      out[i] = args.pack.code == DeviceCode::bf16 ? decode_bf16(code) : decode_f16(code);
    }
  });
}

void CpuOps::rms_norm(const RunContext& context, const RmsNormArgs& args) const {
  const std::int64_t cols = args.cols;
  for_rows(context.pool(), args.rows, [&](std::int64_t row) {
    vector_.rms_norm(args.x + row * cols, args.weight, args.eps, args.out + row * cols, cols);
  });
}

void CpuOps::add_norm(const RunContext& context, const AddNormArgs& args) const {
  const std::int64_t cols = args.cols;
  for_rows(context.pool(), args.rows, [&](std::int64_t row) {
    float* const sum = args.sum + row * cols;
    vector_.add(args.x + row * cols, sum, cols);
    vector_.rms_norm(sum, args.weight, args.eps, args.out + row * cols, cols);
  });
}

void CpuOps::layer_norm(const RunContext& context, const LayerNormArgs& args) const {
  const std::int64_t cols = args.cols;
  for_rows(context.pool(), args.rows, [&](std::int64_t row) {
    const float* const x = args.x + row * cols;
    float* const out = args.out + row * cols;
    const double mean = std::accumulate(x, x + cols, 0.0) / static_cast<double>(cols);
    for (std::int64_t i = 0; i < cols; ++i) out[i] = x[i] - static_cast<float>(mean);
    const float variance = vector_.dot(out, out, cols) / static_cast<float>(cols);
    vector_.scale(1.0F / std::sqrt(variance + args.eps), out, cols);
    vector_.multiply(args.weight, out, cols);
    if (args.bias != nullptr) vector_.add(args.bias, out, cols);
  });
}

void CpuOps::weigh(const RunContext& context, const WeighArgs& args) const {
  const std::int64_t cols = args.cols;
  for_rows(context.pool(), args.rows, [&](std::int64_t row) {
    float* const out = args.out + row * cols;
    std::copy_n(args.x + row * cols, cols, out);
    vector_.scale(std::exchange(args.weights[row], 1.0F), out, cols);
  });
}

void CpuOps::scale(const RunContext& context, const ScaleArgs& args) const {
  const float factor = args.by == nullptr ? args.factor : args.factor * *args.by;
  for_parts(context.pool(), args.count, kElementTile,
            [&](std::int64_t begin, std::int64_t end) { vector_.scale(factor, args.x + begin, end - begin); });
}

void CpuOps::softcap(const RunContext& context, const SoftcapArgs& args) const {
  for_parts(context.pool(), args.count, kElementTile, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) args.x[i] = args.cap * std::tanh(args.x[i] / args.cap);
  });
}

void CpuOps::add(const RunContext& context, const AddArgs& args) const {
  for_parts(context.pool(), args.count, kElementTile,
            [&](std::int64_t begin, std::int64_t end) { vector_.add(args.x + begin, args.sum + begin, end - begin); });
}

void CpuOps::add_gated(const RunContext& context, const AddGatedArgs& args) const {
  const std::int64_t cols = args.cols;
  for_rows(context.pool(), args.rows, [&](std::int64_t row) {
    vector_.scale(sigmoid(args.gate[row]), args.x + row * cols, cols);
    vector_.add(args.x + row * cols, args.sum + row * cols, cols);
  });
}

void CpuOps::gated_activation(const RunContext& context, const GatedArgs& args) const {
  const bool plain_silu = args.activation.fn == ActivationFn::silu && args.activation.limit == 0.0F;
  for_parts(context.pool(), args.count, kElementTile, [&](std::int64_t begin, std::int64_t end) {
    if (plain_silu) {
      vector_.silu_mul(args.gate + begin, args.up + begin, args.out + begin, end - begin);
    } else {
      for (std::int64_t i = begin; i < end; ++i)
        args.out[i] = apply_activation(args.activation, args.gate[i], args.up[i]);
    }
  });
}

void CpuOps::gather(const RunContext& context, const GatherArgs& args) const {
  for_rows(context.pool(), args.rows, [&](std::int64_t row) {
    std::copy_n(args.from + std::int64_t{args.index[row]} * args.cols, args.cols, args.to + row * args.cols);
  });
}

void CpuOps::find_not_finite(const RunContext& context, const FiniteArgs& args) const {
  std::fill_n(args.bad, args.rows, std::uint8_t{0});
  const std::int64_t pieces = ceil_div(args.cols, kFinitePiece);
  const std::int64_t tile = pieces == 1 ? kTokenTile : 1;
  for_parts(context.pool(), args.rows * pieces, tile, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t begin = i % pieces * kFinitePiece;
      const float* const at = args.x + i / pieces * args.cols + begin;
      if (vector_.finite(at, std::min(kFinitePiece, args.cols - begin))) continue;
      std::atomic_ref(args.bad[i / pieces]).store(1, std::memory_order_relaxed);
    }
  });
}

std::size_t CpuOps::workspace(const RankArgs& args, int /*threads*/) const {
  return bytes_taken([&](BumpArena& arena) { static_cast<void>(lay_out(arena, args)); });
}

void CpuOps::top_k(const RunContext& context, const RankArgs& args) const {
  BumpArena arena(context.workspace);
  const std::span<KeyedNumber> work = lay_out(arena, args);
  const std::int64_t piece = ranked_piece(args);
  const std::int64_t pieces = ceil_div(args.cols, piece);
  const auto failed = [&](std::int64_t row) { return args.bad != nullptr && args.bad[row] != 0; };
  context.pool().parallel_for(args.rows * pieces, [&](std::int64_t task, int) {
    const std::int64_t row = task / pieces;
    if (failed(row)) return;
    const std::int64_t begin = task % pieces * piece;
    const std::int64_t end = std::min(begin + piece, args.cols);
    const auto kept = work.subspan(static_cast<std::size_t>(task * args.k), static_cast<std::size_t>(args.k));
    std::fill(kept.begin(), kept.end(), KeyedNumber{.key = -INFINITY});
    rank_numbers(args.x + row * args.cols, begin, end, args.seeds == nullptr ? nullptr : args.seeds + row,
                 args.temperature, kept.first(static_cast<std::size_t>(std::min(args.k, end - begin))));
  });
  context.pool().parallel_for(args.rows, [&](std::int64_t row, int) {
    if (failed(row)) return;
    const auto found =
        work.subspan(static_cast<std::size_t>(row * pieces * args.k), static_cast<std::size_t>(pieces * args.k));
    const auto last = found.begin() + static_cast<std::ptrdiff_t>(args.k);
    std::partial_sort(found.begin(), last, found.end(), [](const auto& a, const auto& b) { return a.before(b); });
    std::transform(found.begin(), last, args.out + row * args.k,
                   [](const KeyedNumber& kept) { return RankedOutput{.value = kept.value, .row = kept.col}; });
  });
}

void CpuOps::rope_table(const RunContext& context, const RopeTableArgs& args) const {
  for_rows(context.pool(), args.tokens, [&](std::int64_t t) {
    const auto position = static_cast<float>(args.positions[t]);
    for (std::int64_t i = 0; i < args.half; ++i) {
      const float angle = position * args.inv_freq[i];
      args.cos[t * args.half + i] = std::cos(angle) * args.scale;
      args.sin[t * args.half + i] = std::sin(angle) * args.scale;
    }
  });
}

void CpuOps::compute_logits(ThreadPool& pool, const RouteArgs& args) const {
  const std::int64_t experts = args.shape.experts;
  const std::int64_t expert_tiles = ceil_div(experts, kExpertTile);
  pool.parallel_for(ceil_div(std::int64_t{args.tokens}, kRouterTokens) * expert_tiles, [&](std::int64_t task, int) {
    const std::int64_t first = task % expert_tiles * kExpertTile;
    const std::int64_t begin = task / expert_tiles * kRouterTokens;
    const std::int64_t end = std::min(begin + kRouterTokens, std::int64_t{args.tokens});
    const std::int64_t width = std::min(kExpertTile, experts - first);
    float* const to = args.logits + begin * experts + first;
    vector_.dot_rows(end - begin, width, args.hidden, args.x + begin * args.hidden, args.hidden,
                     args.router + first * args.hidden, args.hidden, to, experts);
    if (args.router_bias == nullptr) return;
    for (std::int64_t t = 0; t < end - begin; ++t) {
      for (std::int64_t e = 0; e < width; ++e) to[t * experts + e] += args.router_bias[first + e];
    }
  });
}

}  // namespace cpu

namespace {

const Ops& ops_over(const VectorOps& vector) {
  static std::mutex mutex;
  static std::map<const VectorOps*, cpu::CpuOps> all;
  const std::lock_guard lock(mutex);
  return all.try_emplace(&vector, vector).first->second;
}

}  // namespace

const Ops& host_ops(CpuFeatures features) {
  return ops_over(vector_ops(features));
}

const Ops& ref_ops() {
  return ops_over(scalar_vector_ops());
}

}  // namespace moracle
