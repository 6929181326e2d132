// The reference kernel: fp32, plain, the truth the others are held against.
//
// It keeps the canonical form itself (a code a byte, f32 scales) and dequantizes one row at a time, so what it computes
// is the definition: y = sum over k of value(r, k) * x[k], in f32, sixteen partial sums added pairwise.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/checked.h"
#include "base/first_error.h"
#include "kernels/expert_schedule.h"
#include "kernels/ref/ref.h"

namespace moracle::ref {

namespace {

constexpr std::int64_t kRowsPerItem = 32;

// One matrix, owned, in canonical form.
struct RefMatrix {
  MatrixSpec spec;
  MatrixPanel all;
  std::vector<float> bias;

  static Result<RefMatrix> copy(const CanonicalLinear& linear) {
    RefMatrix matrix{.spec = linear.weight->spec(), .all = {}, .bias = linear.bias};
    MORACLE_TRY(linear.weight->read(0, matrix.spec.rows, matrix.all));
    linear.weight->release();
    return matrix;
  }

  [[nodiscard]] std::size_t bytes() const {
    return all.codes.size() + all.zeros.size() + 4 * (all.scales.size() + all.values.size());
  }

  // Row `r` as f32 into `out` [cols].
  void row(std::int64_t r, float* out) const {
    const auto cols = static_cast<std::size_t>(spec.cols);
    const auto at = static_cast<std::size_t>(r) * cols;
    if (all.codes.empty()) {
      std::copy_n(all.values.data() + at, cols, out);
      return;
    }
    dequantize_row(spec, all, r, {out, cols});
  }
};

float dot(const float* a, const float* b, std::int64_t count) {
  constexpr std::int64_t kLanes = 16;
  std::array<float, kLanes> sums{};
  std::int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    for (std::int64_t i = 0; i < kLanes; ++i) sums[static_cast<std::size_t>(i)] += a[k + i] * b[k + i];
  }
  for (; k < count; ++k) sums[static_cast<std::size_t>(k % kLanes)] += a[k] * b[k];
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) sums[i] += sums[i + width];
  }
  return sums[0];
}

class RefLinear final : public PackedLinear {
 public:
  explicit RefLinear(RefMatrix matrix) : matrix_(std::move(matrix)) {}
  [[nodiscard]] std::size_t bytes() const override { return matrix_.bytes(); }
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t, int threads) const override {
    return BumpArena::cost<float>(static_cast<std::size_t>(threads * matrix_.spec.cols));
  }
  void run(const RunContext& context, std::int64_t tokens, const float* x, float* y) const override {
    BumpArena arena(context.workspace);
    const MatrixSpec& spec = matrix_.spec;
    const auto scratch = arena.take<float>(static_cast<std::size_t>(context.pool.threads() * spec.cols));
    context.pool.parallel_for(ceil_div(spec.rows, kRowsPerItem), [&](std::int64_t item, int thread) {
      float* row = scratch.data() + thread * spec.cols;
      const std::int64_t end = std::min((item + 1) * kRowsPerItem, spec.rows);
      for (std::int64_t r = item * kRowsPerItem; r < end; ++r) {
        matrix_.row(r, row);
        const float bias = matrix_.bias.empty() ? 0.0F : matrix_.bias[static_cast<std::size_t>(r)];
        for (std::int64_t t = 0; t < tokens; ++t) y[t * spec.rows + r] = dot(row, x + t * spec.cols, spec.cols) + bias;
      }
    });
  }

 private:
  RefMatrix matrix_;
};

class RefExperts final : public PackedExperts {
 public:
  struct Expert {
    RefMatrix gate, up, down;
  };
  RefExperts(std::vector<Expert> experts, const ActivationSpec& activation)
      : experts_(std::move(experts)),
        activation_(activation),
        hidden_(experts_.front().gate.spec.cols),
        intermediate_(experts_.front().gate.spec.rows) {}

  [[nodiscard]] std::size_t bytes() const override {
    std::size_t total = 0;
    for (const Expert& expert : experts_) total += expert.gate.bytes() + expert.up.bytes() + expert.down.bytes();
    return total;
  }
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens, std::int64_t top_k, int threads) const override {
    const auto slots = static_cast<std::size_t>(tokens * top_k);
    return ExpertSchedule::bytes(tokens, top_k, narrow<std::int64_t>(experts_.size())) +
           BumpArena::cost<float>(slots * static_cast<std::size_t>(intermediate_)) +
           BumpArena::cost<float>(slots * static_cast<std::size_t>(hidden_)) +
           BumpArena::cost<float>(static_cast<std::size_t>(threads * 2 * std::max(hidden_, intermediate_)));
  }

  void run(const RunContext& context, const ExpertsInput& input, float* out) const override {
    BumpArena arena(context.workspace);
    const ExpertSchedule schedule = ExpertSchedule::make(input, narrow<std::int64_t>(experts_.size()), arena);
    const auto slots = static_cast<std::size_t>(input.tokens * input.top_k);
    const auto h = arena.take<float>(slots * static_cast<std::size_t>(intermediate_));
    const auto y = arena.take<float>(slots * static_cast<std::size_t>(hidden_));
    const std::int64_t width = std::max(hidden_, intermediate_);
    const auto scratch = arena.take<float>(static_cast<std::size_t>(context.pool.threads() * 2 * width));
    const auto rows = [&](std::int64_t count, auto body) {
      const std::int64_t items = ceil_div(count, kRowsPerItem);
      context.pool.parallel_for(narrow<std::int64_t>(schedule.hit.size()) * items, [&](std::int64_t item, int thread) {
        const auto e = static_cast<std::size_t>(schedule.hit[static_cast<std::size_t>(item / items)]);
        const std::int64_t begin = item % items * kRowsPerItem;
        for (std::int64_t r = begin; r < std::min(begin + kRowsPerItem, count); ++r) {
          body(e, r, scratch.data() + thread * 2 * width);
        }
      });
    };
    rows(intermediate_, [&](std::size_t e, std::int64_t r, float* row) { w13_row(schedule, input, e, r, row, h); });
    rows(hidden_, [&](std::size_t e, std::int64_t r, float* row) { w2_row(schedule, e, r, row, h, y); });
    combine(context, schedule, input, y, out);
  }

 private:
  static float bias_of(const RefMatrix& matrix, std::int64_t r) {
    return matrix.bias.empty() ? 0.0F : matrix.bias[static_cast<std::size_t>(r)];
  }

  void w13_row(const ExpertSchedule& schedule, const ExpertsInput& input, std::size_t e, std::int64_t r, float* row,
               std::span<float> h) const {
    const Expert& expert = experts_[e];
    float* up_row = row + std::max(hidden_, intermediate_);
    expert.gate.row(r, row);
    expert.up.row(r, up_row);
    for (std::int64_t at = schedule.offsets[e]; at < schedule.offsets[e + 1]; ++at) {
      const float* x = input.x + schedule.slots[static_cast<std::size_t>(at)] / input.top_k * hidden_;
      const float gate = dot(row, x, hidden_) + bias_of(expert.gate, r);
      const float up = dot(up_row, x, hidden_) + bias_of(expert.up, r);
      h[static_cast<std::size_t>(at * intermediate_ + r)] = apply_activation(activation_, gate, up);
    }
  }

  void w2_row(const ExpertSchedule& schedule, std::size_t e, std::int64_t r, float* row, std::span<const float> h,
              std::span<float> y) const {
    const RefMatrix& down = experts_[e].down;
    down.row(r, row);
    for (std::int64_t at = schedule.offsets[e]; at < schedule.offsets[e + 1]; ++at) {
      y[static_cast<std::size_t>(at * hidden_ + r)] =
          dot(row, h.data() + at * intermediate_, intermediate_) + bias_of(down, r);
    }
  }

  void combine(const RunContext& context, const ExpertSchedule& schedule, const ExpertsInput& input,
               std::span<const float> y, float* out) const {
    context.pool.parallel_for(input.tokens, [&](std::int64_t token, int) {
      float* to = out + token * hidden_;
      std::fill_n(to, hidden_, 0.0F);
      for (std::int64_t j = 0; j < input.top_k; ++j) {
        const auto slot = static_cast<std::size_t>(token * input.top_k + j);
        const std::int64_t at = schedule.position[slot];
        if (at < 0) continue;
        const float* from = y.data() + at * hidden_;
        for (std::int64_t k = 0; k < hidden_; ++k) to[k] += input.weights[slot] * from[k];
      }
    });
  }

  std::vector<Expert> experts_;
  ActivationSpec activation_;
  std::int64_t hidden_;
  std::int64_t intermediate_;
};

Result<RefExperts::Expert> copy_expert(const CanonicalExperts::Expert& from) {
  RefExperts::Expert expert;
  MORACLE_ASSIGN(expert.gate, RefMatrix::copy(from.gate));
  MORACLE_ASSIGN(expert.up, RefMatrix::copy(from.up));
  MORACLE_ASSIGN(expert.down, RefMatrix::copy(from.down));
  return expert;
}

}  // namespace

Result<std::unique_ptr<PackedExperts>> pack_experts(const CanonicalExperts& experts, const PackOptions& options) {
  std::vector<RefExperts::Expert> copies(experts.experts.size());
  FirstError failed;
  options.pool.parallel_for(narrow<std::int64_t>(copies.size()), [&](std::int64_t e, int) {
    if (failed.failed()) return;
    auto copy = copy_expert(experts.experts[static_cast<std::size_t>(e)]);
    if (!copy.ok()) {
      failed.keep(e, std::move(copy).error());
      return;
    }
    copies[static_cast<std::size_t>(e)] = std::move(copy).value();
  });
  MORACLE_TRY(failed.take());
  return std::unique_ptr<PackedExperts>(std::make_unique<RefExperts>(std::move(copies), options.activation));
}

Result<std::unique_ptr<PackedLinear>> pack_linear(const CanonicalLinear& linear, const PackOptions&) {
  MORACLE_ASSIGN(RefMatrix matrix, RefMatrix::copy(linear));
  return std::unique_ptr<PackedLinear>(std::make_unique<RefLinear>(std::move(matrix)));
}

}  // namespace moracle::ref
