#include "kernels/cpu/ops/head_top_k.h"

#include <algorithm>
#include <atomic>
#include <cmath>

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
    double sum = 0;
    for (const float lane : sums) sum += static_cast<double>(lane);
    return kRaise * (static_cast<float>(std::sqrt(sum)) + 0x1p-22F * root_cols);
  };
  norms = {.error = most * root(errors), .norm = most * root(squares) / kMaxCode};
  if (!bounded) norms = {.error = most > kMaxWeight ? INFINITY : most * root_cols * kRaise, .norm = 0.0F};
  return bounded ? most / kMaxCode : 0.0F;
}

MatrixSpec int8_spec(const MatrixSpec& head) {
  MatrixSpec spec;
  spec.name = head.name;
  spec.rows = head.rows;
  spec.cols = head.cols;
  spec.key = {.element = Element::int8, .scale = ScaleType::f32, .granularity = Granularity::channel()};
  spec.groups = 1;
  spec.group_cols = head.cols;
  return spec;
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
  [[nodiscard]] bool before(const Candidate& other) const {
    return key > other.key || (key == other.key && index < other.index);
  }
};

constexpr std::uint8_t kMarked = 1, kExact = 2;  // of panels

}  // namespace

std::shared_ptr<const MatrixSource> int8_copy(const MatrixSource& source, std::span<RowNorms> norms) {
  return std::make_shared<Int8Copy>(source, norms);
}

// One call: upper bounds of all outputs, which become the outputs themselves panel by panel.
class TopKSearch {
 public:
  TopKSearch(const HeadTopK& head, Stream& stream, const TopKQuery& query, BumpArena& arena)
      : head_(head),
        stream_(stream),
        pool_(stream.pool()),
        query_(query),
        rows_(std::ssize(head.norms_)),
        panels_(ceil_div(rows_, kPanelRows)),
        values_(arena.take<float>(static_cast<std::size_t>(query.tokens * rows_)).data()),
        best_(arena.take<double>(static_cast<std::size_t>(query.tokens * panels_)).data()),
        margins_(arena.take<Margin>(static_cast<std::size_t>(query.tokens)).data()),
        list_(arena.take<std::int64_t>(static_cast<std::size_t>(panels_)).data()),
        state_(arena.take<std::uint8_t>(static_cast<std::size_t>(panels_)).data()) {}

  bool run(std::span<std::byte> memory, HeadTopK::MultiplyPanel multiply, std::span<RankedOutput> out) {
    for (std::int64_t t = 0; t < query_.tokens; ++t)
      if (!find_margin(query_.x + t * head_.cols_, margins_[t])) return false;
    head_.copy_->run({.stream = stream_, .workspace = memory}, query_.tokens, query_.x, values_);
    if (!bound()) return false;
    // The panels with the largest bounds, as many as outputs are wanted, hold outputs that rule most others out.
    std::fill_n(state_, panels_, std::uint8_t{0});
    for_tokens([&](std::int64_t t) { mark_best(t); });
    multiply_marked(multiply);
    for_tokens([&](std::int64_t t) { mark_reaching(t, rank(t, out)); });
    multiply_marked(multiply);
    for_tokens([&](std::int64_t t) { rank(t, out); });
    return true;
  }

 private:
  template <class Body>
  void for_tokens(const Body& body) {
    pool_.parallel_for(query_.tokens, [&](std::int64_t t, int) { body(t); });
  }

  // False where a value is not finite, or so large that a partial sum of the exact kernel might leave f32.
  bool find_margin(const float* x, Margin& margin) const {
    double squares = 0;
    double most = 1e-10;  // below it quantization has one step
    for (std::int64_t k = 0; k < head_.cols_; ++k) {
      const auto value = static_cast<double>(x[k]);
      if (!(std::fabs(value) <= 1e15)) return false;
      squares += value * value;
      most = std::max(most, std::fabs(value));
    }
    constexpr double kBf16 = 0x1.02p-9;  // of a value
    const double length = std::sqrt(squares);
    // |x - x~|: half a step of the largest value for each.
    const double step = most * std::sqrt(static_cast<double>(head_.cols_));
    double off = step / (2 * kMaxWord);
    if (head_.copy_input_ == ActDtype::i8) off = step / (2 * 127);
    if (head_.copy_input_ == ActDtype::bf16) off = kBf16 * length;
    // Up to `cols` multiplications and additions, in any order, each round by 2^-24 at most, in W's kernel and in S's.
    const double rounding =
        3 * static_cast<double>(head_.cols_ + 256) * 0x1p-24 + (head_.head_input_ == ActDtype::bf16 ? kBf16 : 0.0);
    const double slack = rounding * (length + off);
    constexpr double kUp = 1.00001;  // for the roundings of the bound itself
    margin = {.per_error = static_cast<float>((length + slack) * kUp),
              .per_norm = static_cast<float>((off + slack) * kUp),
              .rest = static_cast<float>(static_cast<double>(head_.cols_) * 0x1p-100 * (1 + length))};
    return true;
  }

  [[nodiscard]] std::int64_t end_row(std::int64_t panel) const { return std::min((panel + 1) * kPanelRows, rows_); }
  [[nodiscard]] double key(std::int64_t t, std::int64_t row) const {
    const auto value = static_cast<double>(values_[t * rows_ + row]);
    if (query_.seeds == nullptr) return value;
    return value / query_.temperature + gumbel(query_.seeds[t], static_cast<std::uint64_t>(row));
  }
  [[nodiscard]] double key_bound(std::int64_t t, std::int64_t row) const {
    const auto value = static_cast<double>(values_[t * rows_ + row]);
    if (query_.seeds == nullptr) return value;
    return value / query_.temperature + gumbel_bound(query_.seeds[t], static_cast<std::uint64_t>(row));
  }

  // False where a bound is not finite.
  bool bound() {
    std::atomic<bool> finite{true};
    pool_.parallel_for(panels_, [&](std::int64_t panel, int) {
      for (std::int64_t t = 0; t < query_.tokens; ++t) {
        double most = -INFINITY;
        float zero = 0.0F;
        for (std::int64_t row = panel * kPanelRows; row < end_row(panel); ++row) {
          const RowNorms& norms = head_.norms_[static_cast<std::size_t>(row)];
          float& value = values_[t * rows_ + row];
          value += norms.error * margins_[t].per_error + norms.norm * margins_[t].per_norm + margins_[t].rest;
          zero += value * 0.0F;
          most = std::max(most, key_bound(t, row));
        }
        if (zero != 0.0F) finite.store(false, std::memory_order_relaxed);
        best_[t * panels_ + panel] = most;
      }
    });
    return finite.load();
  }

  // Several threads may mark one panel.
  void mark(std::int64_t panel) { std::atomic_ref(state_[panel]).fetch_or(kMarked, std::memory_order_relaxed); }
  void mark_best(std::int64_t t) {
    Candidate kept[kMaxHeadTopK];
    Ranking<Candidate> ranking(std::span<Candidate>(kept).first(static_cast<std::size_t>(std::min(query_.k, panels_))));
    for (std::int64_t p = 0; p < panels_; ++p) ranking.offer({.key = best_[t * panels_ + p], .index = p});
    for (std::size_t i = ranking.sort(); i-- > 0;) mark(kept[i].index);
  }
  void mark_reaching(std::int64_t t, double known) {
    for (std::int64_t p = 0; p < panels_; ++p) {
      if (std::atomic_ref(state_[p]).load(std::memory_order_relaxed) >= kExact || best_[t * panels_ + p] < known)
        continue;
      for (std::int64_t row = p * kPanelRows; row < end_row(p); ++row) {
        if (key(t, row) < known) continue;
        mark(p);
        break;
      }
    }
  }
  void multiply_marked(HeadTopK::MultiplyPanel multiply) {
    std::int64_t count = 0;
    for (std::int64_t p = 0; p < panels_; ++p)
      if (state_[p] == kMarked) list_[count++] = p;
    pool_.parallel_for(count, [&](std::int64_t i, int) {
      multiply(list_[i], values_);
      state_[list_[i]] = kExact;
    });
  }

  // Ranks the token's exact outputs into its part of `out`; returns the key of the last one.
  double rank(std::int64_t t, std::span<RankedOutput> out) const {
    Candidate kept[kMaxHeadTopK];
    Ranking<Candidate> ranking(std::span<Candidate>(kept).first(static_cast<std::size_t>(query_.k)));
    for (std::int64_t p = 0; p < panels_; ++p) {
      if (std::atomic_ref(state_[p]).load(std::memory_order_relaxed) < kExact) continue;
      for (std::int64_t row = p * kPanelRows; row < end_row(p); ++row)
        ranking.offer({.key = key(t, row), .index = row, .value = values_[t * rows_ + row]});
    }
    const double last = ranking.last().key;
    ranking.sort();
    for (std::int64_t i = 0; i < query_.k; ++i)
      out[static_cast<std::size_t>(t * query_.k + i)] = {.value = kept[i].value, .row = kept[i].index};
    return last;
  }

  const HeadTopK& head_;
  Stream& stream_;
  ThreadPool& pool_;
  const TopKQuery& query_;
  std::int64_t rows_;
  std::int64_t panels_;
  float* values_;        // [tokens, rows]: bounds; of exact panels the outputs
  double* best_;         // [tokens, panels]: at least the largest key of each
  Margin* margins_;      // [tokens]
  std::int64_t* list_;   // [panels]
  std::uint8_t* state_;  // [panels]
};

std::size_t HeadTopK::workspace_bytes(std::int64_t tokens, int threads) const {
  const auto count = static_cast<std::size_t>(tokens);
  const std::size_t panels = (norms_.size() + kPanelRows - 1) / kPanelRows;
  return copy_->workspace_bytes(tokens, threads) + BumpArena::cost<float>(count * norms_.size()) +
         BumpArena::cost<double>(count * panels) + BumpArena::cost<Margin>(count) +
         BumpArena::cost<std::int64_t>(panels) + BumpArena::cost<std::uint8_t>(panels) + BumpArena::kAlignment;
}

bool HeadTopK::run(Stream& stream, std::span<std::byte> memory, const TopKQuery& query, MultiplyPanel multiply,
                   std::span<RankedOutput> out) const {
  BumpArena arena(memory);
  const auto for_copy = arena.take<std::byte>(copy_->workspace_bytes(query.tokens, stream.pool().threads()));
  return TopKSearch(*this, stream, query, arena).run(for_copy, multiply, out);
}

}  // namespace moracle::cpu
