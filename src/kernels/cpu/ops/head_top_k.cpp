#include "kernels/cpu/ops/head_top_k.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <ranges>

#include "base/checked.h"
#include "base/generic/ranking.h"
#include "base/memory.h"
#include "base/random/gumbel.h"

namespace moracle::cpu {
namespace {

// Codes of one row, plus 128; returns their scale. Loops over 16 lanes, which a compiler vectorizes; sums are in units
// of the largest weight, so that squares neither overflow nor vanish beside it.
float quantize_row(const float* w, std::int64_t cols, std::uint8_t* codes, RowNorms& norms) {
  constexpr std::int64_t kLanes = 16;
  constexpr float kMaxCode = 127.0F;
  constexpr float kInteger = 0x1.8p23F;  // added and subtracted, it rounds small numbers to integers
  // A smaller scale would not be a normal number; larger products might not cover what activations lose to underflow.
  constexpr float kMinWeight = 0x1p-100F;
  constexpr float kMaxWeight = 0x1p+26F;
  float largest[kLanes] = {};
  for (std::int64_t k = 0; k < cols; ++k) largest[k % kLanes] = std::max(largest[k % kLanes], std::fabs(w[k]));
  const float most = *std::max_element(largest, largest + kLanes);
  const bool bounded = most >= kMinWeight && most <= kMaxWeight;
  const float inverse = bounded ? 1.0F / most : 0.0F;
  float errors[kLanes] = {};
  float squares[kLanes] = {};
  for (std::int64_t first = 0; first < cols; first += kLanes) {
    const std::int64_t count = std::min(kLanes, cols - first);
    for (std::int64_t i = 0; i < count; ++i) {
      const float part = w[first + i] * inverse;
      const float code = (part * kMaxCode + kInteger) - kInteger;
      const float error = part - code * (1.0F / kMaxCode);
      errors[i] += error * error;
      squares[i] += code * code;
      codes[first + i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(code) + 128);
    }
  }
  // Raised by more than these sums round, 2^-12 for 2^12 terms a lane; each error is rounded by 2^-23 of the largest.
  constexpr float kRaise = 1.001F;
  const float root_cols = std::sqrt(static_cast<float>(cols));
  const auto root = [&](const float(&sums)[kLanes]) {
    return kRaise * (static_cast<float>(std::sqrt(std::accumulate(sums, sums + kLanes, 0.0))) + 0x1p-22F * root_cols);
  };
  norms = {.error = most * root(errors), .norm = most * root(squares) / kMaxCode};
  if (!bounded) norms = {.error = most > kMaxWeight ? INFINITY : most * root_cols * kRaise, .norm = 0.0F};
  return bounded ? most / kMaxCode : 0.0F;
}

MatrixSpec int8_spec(const MatrixSpec& head) {
  constexpr QuantKey kKey{.element = Element::int8, .scale = ScaleType::f32, .granularity = Granularity::channel()};
  return {.name = head.name, .rows = head.rows, .cols = head.cols, .key = kKey, .group_cols = head.cols, .groups = 1};
}

class Int8Copy final : public MatrixSource {
 public:
  Int8Copy(const MatrixSource& source, std::span<RowNorms> norms)
      : MatrixSource(int8_spec(source.spec())), source_(source), norms_(norms) {}
  [[nodiscard]] Result<> read(std::int64_t begin, std::int64_t end, MatrixPanel& out) const override {
    MORACLE_TRY(source_.read(begin, end, out));
    out.codes.resize(out.values.size());
    out.scales.resize(static_cast<std::size_t>(end - begin));
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t at = (row - begin) * spec_.cols;
      out.scales[static_cast<std::size_t>(row - begin)] = quantize_row(
          out.values.data() + at, spec_.cols, out.codes.data() + at, norms_[static_cast<std::size_t>(row)]);
    }
    return Ok{};
  }
  void release() const override { source_.release(); }

 private:
  const MatrixSource& source_;
  std::span<RowNorms> norms_;
};

// What is added to a product with S, for each unit of a row's norms.
struct Margin {
  float per_error, per_norm, rest;
};

struct Candidate {
  double key = 0;  // what outputs are ranked by
  std::int64_t index = 0;
  float value = 0.0F;
  bool before(const Candidate& other) const { return key > other.key || (key == other.key && index < other.index); }
};

constexpr std::uint8_t kMarked = 1, kExact = 2;  // of panels

// One call: upper bounds of all outputs, which become the outputs themselves panel by panel.
struct TopKSearch {
  const HeadTopK& head;
  const TopKQuery& query;
  const int threads;
  BumpArena& arena;  // a counting one tells how much the search takes
  const std::int64_t rows = std::ssize(head.norms);
  const std::int64_t panels = ceil_div(rows, kPanelRows);
  const std::span<std::byte> for_copy = arena.take<std::byte>(head.copy->workspace_bytes(query.tokens, threads));
  float* const values = take<float>(query.tokens * rows);    // [tokens, rows]: bounds; of exact panels the outputs
  double* const best = take<double>(query.tokens * panels);  // [tokens, panels]: at least the largest key of each
  Margin* const margins = take<Margin>(query.tokens);
  std::int64_t* const list = take<std::int64_t>(panels);   // panels that are multiplied next
  std::uint8_t* const state = take<std::uint8_t>(panels);  // kMarked, kExact

  template <class T>
  T* take(std::int64_t count) {
    return arena.take<T>(static_cast<std::size_t>(count)).data();
  }

  bool run(Stream& stream, HeadTopK::GemmPanel gemm, std::span<RankedOutput> out) {
    for (std::int64_t t = 0; t < query.tokens; ++t)
      if (!find_margin(query.x + t * head.cols, margins[t])) return false;
    ThreadPool& pool = stream.pool();
    head.copy->run({.stream = stream, .workspace = for_copy}, query.tokens, query.x, values);
    if (!bound(pool)) return false;
    // The panels with the largest bounds, as many as outputs are wanted, hold outputs that rule most others out.
    std::fill_n(state, panels, std::uint8_t{0});
    pool.parallel_for(query.tokens, [&](std::int64_t t, int) { mark_best(t); });
    gemm_marked(pool, gemm);
    pool.parallel_for(query.tokens, [&](std::int64_t t, int) { mark_reaching(t, rank(t, out)); });
    gemm_marked(pool, gemm);
    pool.parallel_for(query.tokens, [&](std::int64_t t, int) { rank(t, out); });
    return true;
  }

  // False where a value is not finite, or so large that a partial sum of the exact kernel might leave f32.
  bool find_margin(const float* x, Margin& margin) const {
    double squares = 0;
    double most = 1e-10;  // below it quantization has one step
    for (std::int64_t k = 0; k < head.cols; ++k) {
      const auto value = static_cast<double>(x[k]);
      if (!(std::fabs(value) <= 1e15)) return false;
      squares += value * value;
      most = std::max(most, std::fabs(value));
    }
    constexpr double kBf16 = 0x1.02p-9;  // of a value
    const double length = std::sqrt(squares);
    // |x - x~|: half a step of the largest value for each.
    const double step = most * std::sqrt(static_cast<double>(head.cols));
    double off = step / (2 * kMaxWord);
    if (head.copy_input == ActDtype::i8) off = step / (2 * 127);
    if (head.copy_input == ActDtype::bf16) off = kBf16 * length;
    // Up to `cols` multiplications and additions, in any order, each round by 2^-24 at most, in W's kernel and in S's.
    const double rounding =
        3 * static_cast<double>(head.cols + 256) * 0x1p-24 + (head.head_input == ActDtype::bf16 ? kBf16 : 0.0);
    const double slack = rounding * (length + off);
    constexpr double kUp = 1.00001;  // for the roundings of the bound itself
    margin = {.per_error = static_cast<float>((length + slack) * kUp),
              .per_norm = static_cast<float>((off + slack) * kUp),
              .rest = static_cast<float>(static_cast<double>(head.cols) * 0x1p-100 * (1 + length))};
    return true;
  }

  [[nodiscard]] auto rows_of(std::int64_t panel) const {
    return std::views::iota(panel * kPanelRows, std::min((panel + 1) * kPanelRows, rows));
  }
  // What an output is ranked by, and with gumbel_bound at least that.
  template <double kNoise(std::uint64_t seed, std::uint64_t index) = gumbel>
  [[nodiscard]] double key(std::int64_t t, std::int64_t row) const {
    const auto value = static_cast<double>(values[t * rows + row]);
    if (query.seeds == nullptr) return value;
    return value / query.temperature + kNoise(query.seeds[t], static_cast<std::uint64_t>(row));
  }
  [[nodiscard]] bool is_exact(std::int64_t panel) const {
    return std::atomic_ref(state[panel]).load(std::memory_order_relaxed) == kExact;
  }

  // False where a bound is not finite.
  bool bound(ThreadPool& pool) {
    std::atomic<bool> finite{true};
    pool.parallel_for(panels, [&](std::int64_t panel, int) {
      for (std::int64_t t = 0; t < query.tokens; ++t) {
        double most = -INFINITY;
        float zero = 0.0F;
        for (const std::int64_t row : rows_of(panel)) {
          const RowNorms& norms = head.norms[static_cast<std::size_t>(row)];
          float& value = values[t * rows + row];
          value += norms.error * margins[t].per_error + norms.norm * margins[t].per_norm + margins[t].rest;
          zero += value * 0.0F;
          most = std::max(most, key<gumbel_bound>(t, row));
        }
        if (zero != 0.0F) finite.store(false, std::memory_order_relaxed);
        best[t * panels + panel] = most;
      }
    });
    return finite.load();
  }

  // Several threads may mark one panel.
  void mark(std::int64_t panel) { std::atomic_ref(state[panel]).fetch_or(kMarked, std::memory_order_relaxed); }
  void mark_best(std::int64_t t) {
    Candidate kept[kMaxHeadTopK];
    Ranking<Candidate> ranking(std::span<Candidate>(kept).first(static_cast<std::size_t>(std::min(query.k, panels))));
    for (std::int64_t p = 0; p < panels; ++p) ranking.offer({.key = best[t * panels + p], .index = p});
    for (std::size_t i = ranking.sort(); i-- > 0;) mark(kept[i].index);
  }
  void mark_reaching(std::int64_t t, double known) {
    const auto reaches = [&](std::int64_t row) { return !(key(t, row) < known); };
    for (std::int64_t p = 0; p < panels; ++p)
      if (!is_exact(p) && !(best[t * panels + p] < known) && std::ranges::any_of(rows_of(p), reaches)) mark(p);
  }
  void gemm_marked(ThreadPool& pool, HeadTopK::GemmPanel gemm) {
    std::int64_t count = 0;
    for (std::int64_t p = 0; p < panels; ++p)
      if (state[p] == kMarked) list[count++] = p;
    pool.parallel_for(count, [&](std::int64_t i, int) {
      gemm(list[i], values);
      state[list[i]] = kExact;
    });
  }

  // Ranks the token's exact outputs into its part of `out`; returns the key of the last one.
  double rank(std::int64_t t, std::span<RankedOutput> out) const {
    Candidate kept[kMaxHeadTopK];
    Ranking<Candidate> ranking(std::span<Candidate>(kept).first(static_cast<std::size_t>(query.k)));
    for (std::int64_t p = 0; p < panels; ++p) {
      if (!is_exact(p)) continue;
      for (const std::int64_t row : rows_of(p))
        ranking.offer({.key = key(t, row), .index = row, .value = values[t * rows + row]});
    }
    ranking.sort();
    for (std::int64_t i = 0; i < query.k; ++i)
      out[static_cast<std::size_t>(t * query.k + i)] = {.value = kept[i].value, .row = kept[i].index};
    return kept[query.k - 1].key;
  }
};

}  // namespace

std::shared_ptr<const MatrixSource> int8_copy(const MatrixSource& source, std::span<RowNorms> norms) {
  return std::make_shared<Int8Copy>(source, norms);
}

std::size_t HeadTopK::workspace_bytes(std::int64_t tokens, int threads) const {
  BumpArena counting = BumpArena::counting();
  static_cast<void>(TopKSearch{*this, {.tokens = tokens}, threads, counting});
  return counting.used() + BumpArena::kAlignment;
}

bool HeadTopK::run(Stream& stream, std::span<std::byte> memory, const TopKQuery& query, GemmPanel gemm,
                   std::span<RankedOutput> out) const {
  BumpArena arena(memory);
  return TopKSearch{*this, query, stream.pool().threads(), arena}.run(stream, gemm, out);
}

}  // namespace moracle::cpu
