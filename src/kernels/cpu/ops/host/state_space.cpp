// Tokens of a sequence are taken one after the other, each number of a head for itself, so the bits do not depend on
// how a prompt was cut, on the rest of the batch, or on the number of threads.
#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "base/generic/count.h"
#include "kernels/cpu/ops/cpu_ops.h"

namespace moracle::cpu {

namespace {

// Numbers of heads that one task carries through a call.
constexpr std::int64_t kRowTile = 32;

// One call.
class StateSpace {
 public:
  StateSpace(const StateSpaceArgs& args, const VectorOps& ops) : args_(args), shape_(args.shape), ops_(ops) {}

  void run(ThreadPool& pool) const {
    const std::int64_t tiles = ceil_div(shape_.width(), kRowTile);
    pool.parallel_for(args_.span_count * tiles, [&](std::int64_t task, int) {
      const RecurrentSpan& span = args_.spans[count(task / tiles)];
      if (span.count == 0) return;
      const std::int64_t first = task % tiles * kRowTile;
      for (std::int64_t row = first; row < std::min(first + kRowTile, shape_.width()); ++row) recur(span, row);
    });
    pool.parallel_for(ceil_div(args_.tokens, kTokenTile), [&](std::int64_t tile, int) {
      for (std::int64_t t = tile * kTokenTile; t < std::min((tile + 1) * kTokenTile, args_.tokens); ++t) finish(t);
    });
  }

 private:
  [[nodiscard]] float* state(std::uint32_t block, std::int64_t row) const {
    return reinterpret_cast<float*>(args_.states.block(block)) + args_.state_offset + row * shape_.states;
  }

  [[nodiscard]] float step(std::int64_t token, std::int64_t head) const {
    float step = args_.step[token * shape_.heads + head];
    if (args_.step_bias != nullptr) step += args_.step_bias[head];
    step = std::max(softplus(step), shape_.least_step);
    return shape_.most_step > 0.0F ? std::min(step, shape_.most_step) : step;
  }

  // One number of a head, through all tokens of a sequence.
  void recur(const RecurrentSpan& span, std::int64_t row) const {
    const std::int64_t n = shape_.states;
    const std::int64_t head = row / shape_.head_dim;
    const std::int64_t group = head / (shape_.heads / shape_.groups);
    float* const own = state(span.after, row);
    std::copy_n(state(span.before, row), n, own);
    for (std::int64_t t = span.begin; t < span.begin + span.count; ++t) {
      const float* const b = args_.b + t * args_.b_stride + group * n;
      const float* const c = args_.c + t * args_.b_stride + group * n;
      const float x = args_.x[t * args_.x_stride + row];
      const float d = step(t, head);
      decay(d, head, own);
      for (std::int64_t i = 0; i < n; ++i) own[i] += d * x * b[i];
      args_.out[t * shape_.width() + row] = ops_.dot(own, c, n) + args_.skip[head] * x;
    }
  }

  void decay(float step, std::int64_t head, float* own) const {
    if (!shape_.rate_by_state) return ops_.scale(std::exp(-args_.rate[head] * step), own, shape_.states);
    const float* const rates = args_.rate + head * shape_.states;
    for (std::int64_t i = 0; i < shape_.states; ++i) own[i] *= std::exp(-rates[i] * step);
  }

  void finish(std::int64_t token) const {
    float* const out = args_.out + token * shape_.width();
    ops_.silu_mul(args_.gate + token * shape_.width(), out, out, shape_.width());
    if (args_.norm.size == 0) return;
    for (std::int64_t at = 0; at < shape_.width(); at += args_.norm.size) {
      ops_.rms_norm(out + at, args_.norm.weight + at, args_.norm.eps, out + at, args_.norm.size);
    }
  }

  const StateSpaceArgs& args_;
  const StateSpaceShape& shape_;
  const VectorOps& ops_;
};

}  // namespace

void CpuOps::state_space(const RunContext& context, const StateSpaceArgs& args) const {
  StateSpace(args, vector_).run(context.pool());
}

}  // namespace moracle::cpu
