#include "kernels/row_experts.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/checked.h"
#include "base/memory.h"
#include "kernels/expert_schedule.h"
#include "scheme/activation_codes.h"

namespace moracle {
namespace {

constexpr std::int64_t kRowsPerItem = 32;

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

class RowLinear final : public PackedLinear {
 public:
  explicit RowLinear(std::unique_ptr<const RowMatrix> matrix) : matrix_(std::move(matrix)) {}
  [[nodiscard]] std::size_t bytes() const override { return matrix_->bytes(); }
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens, int threads) const override {
    return BumpArena::cost<float>(static_cast<std::size_t>(threads * matrix_->cols())) +
           BumpArena::cost<float>(static_cast<std::size_t>(tokens * matrix_->cols())) +
           BumpArena::cost<const float*>(static_cast<std::size_t>(tokens));
  }
  void run(const RunContext& context, std::int64_t tokens, const ConstActivations& input,
           const Activations& output) const override {
    const float* const x = input.f32();
    float* const y = output.f32();
    BumpArena arena(context.workspace);
    const std::int64_t rows = matrix_->rows();
    const std::int64_t cols = matrix_->cols();
    const auto scratch = arena.take<float>(static_cast<std::size_t>(context.pool().threads() * cols));
    const auto quantized = arena.take<float>(static_cast<std::size_t>(tokens * cols));
    const auto inputs = arena.take<const float*>(static_cast<std::size_t>(tokens));
    context.pool().parallel_for(tokens, [&](std::int64_t t, int) {
      inputs[static_cast<std::size_t>(t)] = matrix_->input(x + t * cols, quantized.data() + t * cols);
    });
    context.pool().parallel_for(ceil_div(rows, kRowsPerItem), [&](std::int64_t item, int thread) {
      float* row = scratch.data() + thread * cols;
      const std::int64_t end = std::min((item + 1) * kRowsPerItem, rows);
      for (std::int64_t r = item * kRowsPerItem; r < end; ++r) {
        matrix_->row(r, row);
        const float bias = matrix_->bias(r);
        for (std::int64_t t = 0; t < tokens; ++t) {
          y[t * rows + r] = dot(row, inputs[static_cast<std::size_t>(t)], cols) + bias;
        }
      }
    });
  }

 private:
  std::unique_ptr<const RowMatrix> matrix_;
};

class RowExperts final : public PackedExperts {
 public:
  RowExperts(std::vector<RowExpert> experts, const ActivationSpec& activation)
      : experts_(std::move(experts)),
        activation_(activation),
        hidden_(experts_.front().gate->cols()),
        intermediate_(experts_.front().gate->rows()) {}

  [[nodiscard]] std::size_t bytes() const override {
    std::size_t total = 0;
    for (const RowExpert& expert : experts_) {
      total += expert.gate->bytes() + (expert.up != nullptr ? expert.up->bytes() : 0) + expert.down->bytes();
    }
    return total;
  }
  [[nodiscard]] std::span<const std::byte> expert(std::int64_t index) const override {
    return experts_[static_cast<std::size_t>(index)].bytes;
  }
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens, std::int64_t top_k, int threads) const override {
    const auto slots = static_cast<std::size_t>(tokens * top_k);
    const auto width = static_cast<std::size_t>(std::max(hidden_, intermediate_));
    return ExpertSchedule::bytes(tokens, top_k, narrow<std::int64_t>(experts_.size())) +
           3 * BumpArena::cost<const float*>(slots) + 5 * BumpArena::cost<float>(slots * width) +
           BumpArena::cost<float>(static_cast<std::size_t>(threads) * 2 * width);
  }

  void run(const RunContext& context, const ExpertsInput& input, const Activations& out) const override {
    BumpArena arena(context.workspace);
    const Work work = take_work(context, input, arena);
    const ExpertSchedule& schedule = work.schedule;
    const std::int64_t width = std::max(hidden_, intermediate_);
    const auto rows = [&](std::int64_t count, auto body) {
      const std::int64_t items = ceil_div(count, kRowsPerItem);
      context.pool().parallel_for(
          narrow<std::int64_t>(schedule.active.size()) * items, [&](std::int64_t item, int thread) {
            const auto e = static_cast<std::size_t>(schedule.active[static_cast<std::size_t>(item / items)]);
            const std::int64_t begin = item % items * kRowsPerItem;
            for (std::int64_t r = begin; r < std::min(begin + kRowsPerItem, count); ++r) {
              body(e, r, work.scratch.data() + thread * 2 * width);
            }
          });
    };
    const auto each_slot = [&](auto body) {
      context.pool().parallel_for(narrow<std::int64_t>(schedule.pairs.size()), [&](std::int64_t at, int) {
        const std::int32_t slot = schedule.pairs[static_cast<std::size_t>(at)];
        body(at, slot / input.top_k, experts_[static_cast<std::size_t>(input.ids[slot])]);
      });
    };
    each_slot([&](std::int64_t at, std::int64_t token, const RowExpert& expert) {
      const float* x = input.x.f32() + token * hidden_;
      const auto slot = static_cast<std::size_t>(at);
      work.gate_in[slot] = expert.gate->input(x, work.quantized[0].data() + at * hidden_);
      if (expert.up != nullptr) work.up_in[slot] = expert.up->input(x, work.quantized[1].data() + at * hidden_);
    });
    rows(intermediate_, [&](std::size_t e, std::int64_t r, float* row) { w13_row(work, e, r, row); });
    each_slot([&](std::int64_t at, std::int64_t, const RowExpert& expert) {
      work.down_in[static_cast<std::size_t>(at)] =
          expert.down->input(work.h.data() + at * intermediate_, work.quantized[2].data() + at * intermediate_);
    });
    rows(hidden_, [&](std::size_t e, std::int64_t r, float* row) { w2_row(work, e, r, row); });
    combine(context, schedule, input, work.y, out.f32());
  }

 private:
  struct Work {
    ExpertSchedule schedule;
    std::span<const float*> gate_in, up_in, down_in;  // each slot's input as the expert's matrices see it
    std::span<float> quantized[3];                    // where those inputs live when the scheme quantizes them
    std::span<float> h, y, scratch;
  };

  Work take_work(const RunContext& context, const ExpertsInput& input, BumpArena& arena) const {
    const auto slots = static_cast<std::size_t>(input.tokens * input.top_k);
    const auto width = static_cast<std::size_t>(std::max(hidden_, intermediate_));
    Work work;
    work.schedule = ExpertSchedule::make(input, narrow<std::int64_t>(experts_.size()), arena);
    work.gate_in = arena.take<const float*>(slots);
    work.up_in = arena.take<const float*>(slots);
    work.down_in = arena.take<const float*>(slots);
    for (auto& part : work.quantized) part = arena.take<float>(slots * width);
    work.h = arena.take<float>(slots * static_cast<std::size_t>(intermediate_));
    work.y = arena.take<float>(slots * static_cast<std::size_t>(hidden_));
    work.scratch = arena.take<float>(static_cast<std::size_t>(context.pool().threads()) * 2 * width);
    return work;
  }

  void w13_row(const Work& work, std::size_t e, std::int64_t r, float* row) const {
    const RowExpert& expert = experts_[e];
    float* up_row = row + std::max(hidden_, intermediate_);
    expert.gate->row(r, row);
    if (expert.up != nullptr) expert.up->row(r, up_row);
    for (std::int64_t at = work.schedule.offsets[e]; at < work.schedule.offsets[e + 1]; ++at) {
      const auto slot = static_cast<std::size_t>(at);
      const float gate = dot(row, work.gate_in[slot], hidden_) + expert.gate->bias(r);
      const float up = expert.up != nullptr ? dot(up_row, work.up_in[slot], hidden_) + expert.up->bias(r) : gate;
      work.h[static_cast<std::size_t>(at * intermediate_ + r)] = apply_activation(activation_, gate, up);
    }
  }

  void w2_row(const Work& work, std::size_t e, std::int64_t r, float* row) const {
    const RowMatrix& down = *experts_[e].down;
    down.row(r, row);
    for (std::int64_t at = work.schedule.offsets[e]; at < work.schedule.offsets[e + 1]; ++at) {
      work.y[static_cast<std::size_t>(at * hidden_ + r)] =
          dot(row, work.down_in[static_cast<std::size_t>(at)], intermediate_) + down.bias(r);
    }
  }

  void combine(const RunContext& context, const ExpertSchedule& schedule, const ExpertsInput& input,
               std::span<const float> y, float* out) const {
    context.pool().parallel_for(input.tokens, [&](std::int64_t token, int) {
      float* to = out + token * hidden_;
      std::fill_n(to, hidden_, 0.0F);
      for (std::int64_t j = 0; j < input.top_k; ++j) {
        const auto slot = static_cast<std::size_t>(token * input.top_k + j);
        const std::int64_t at = schedule.inverse[slot];
        if (at < 0) continue;
        const float* from = y.data() + at * hidden_;
        for (std::int64_t k = 0; k < hidden_; ++k) to[k] += input.weights[slot] * from[k];
      }
    });
  }

  std::vector<RowExpert> experts_;
  ActivationSpec activation_;
  std::int64_t hidden_;
  std::int64_t intermediate_;
};

}  // namespace

RowMatrix::RowMatrix(const CanonicalLinear& linear)
    : rows_(linear.weight->spec().rows),
      cols_(linear.weight->spec().cols),
      activation_(linear.activation),
      input_scale_(linear.input_scale) {}

const float* RowMatrix::input(const float* x, float* scratch) const {
  if (!activation_) return x;
  std::copy_n(x, cols_, scratch);
  quantize_dequantize_row(*activation_, input_scale_, {scratch, static_cast<std::size_t>(cols_)});
  return scratch;
}

std::unique_ptr<PackedExperts> make_row_experts(std::vector<RowExpert> experts, const ActivationSpec& activation) {
  return std::make_unique<RowExperts>(std::move(experts), activation);
}

std::unique_ptr<PackedLinear> make_row_linear(std::unique_ptr<const RowMatrix> matrix) {
  return std::make_unique<RowLinear>(std::move(matrix));
}

}  // namespace moracle
