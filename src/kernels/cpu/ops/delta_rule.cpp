// Tokens of a sequence are taken one after the other, so the bits do not depend on how a prompt was cut, on the rest of
// the batch, or on the number of threads.
#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "base/generic/count.h"
#include "base/memory.h"
#include "kernels/cpu/ops/cpu_ops.h"

namespace moracle::cpu {

namespace {

// Columns of a head's state that one task carries through a call: 128 rows of them stay in L1, and a single sequence
// still spreads over all cores.
constexpr std::int64_t kStateColumns = 64;
// Channels that one task of the convolution carries through a call.
constexpr std::int64_t kChannelTile = 256;

constexpr float kNormEpsilon = 1e-6F;  // inside the root of the l2 norms of q and k

// One call.
class DeltaRule {
 public:
  DeltaRule(const DeltaRuleArgs& args, const VectorOps& ops) : args_(args), shape_(args.shape), ops_(ops) {}

  [[nodiscard]] std::size_t bytes() const {
    BumpArena counting = BumpArena::counting();
    static_cast<void>(lay_out(counting));
    return counting.used() + BumpArena::kAlignment;
  }

  void run(const RunContext& context) {
    pool_ = &context.pool();
    BumpArena arena(context.workspace);
    const Buffers buffers = lay_out(arena);
    if (shape_.grouped) ungroup();
    convolve_all();
    prepare(buffers);
    recur(buffers);
    norm_and_gate();
  }

 private:
  struct Buffers {
    float* beta = nullptr;   // [tokens, value_heads]
    float* decay = nullptr;  // [tokens, decays]
  };

  // Channels of the convolution that lie side by side, in inputs and in taps.
  struct Channels {
    const float* inputs = nullptr;  // [tokens, width]
    const float* taps = nullptr;    // [kernel, width]
    std::int64_t width = 0;
    std::int64_t begin = 0;  // among all channels
  };

  [[nodiscard]] float* state(std::uint32_t block) const { return reinterpret_cast<float*>(args_.states.block(block)); }

  Buffers lay_out(BumpArena& arena) const {
    Buffers buffers;
    buffers.beta = arena.take<float>(count(args_.tokens * shape_.value_heads)).data();
    buffers.decay = arena.take<float>(count(args_.tokens * shape_.decays())).data();
    return buffers;
  }

  void ungroup() const {
    const std::int64_t dim = shape_.key_dim;
    const std::int64_t share = shape_.value_width() / shape_.key_heads;
    pool_->parallel_for(args_.tokens, [&](std::int64_t token, int) {
      const float* from = args_.work + token * (shape_.channels() + shape_.value_width());
      float* const mixed = args_.mixed + token * shape_.channels();
      for (std::int64_t head = 0; head < shape_.key_heads; ++head) {
        std::copy_n(from, dim, mixed + head * dim);
        std::copy_n(from + dim, dim, mixed + shape_.key_width() + head * dim);
        std::copy_n(from + 2 * dim, share, mixed + 2 * shape_.key_width() + head * share);
        std::copy_n(from + 2 * dim + share, share, args_.z + token * shape_.value_width() + head * share);
        from += 2 * (dim + share);
      }
    });
  }

  void convolve_all() const {
    if (!shape_.apart) return convolve({.inputs = args_.mixed, .taps = args_.taps, .width = shape_.channels()});
    const std::int64_t keys = shape_.key_width();
    const float* const k = args_.mixed + args_.tokens * keys;
    convolve({.inputs = args_.mixed, .taps = args_.taps, .width = keys});
    convolve({.inputs = k, .taps = args_.k_taps, .width = keys, .begin = keys});
    convolve(
        {.inputs = k + args_.tokens * keys, .taps = args_.v_taps, .width = shape_.value_width(), .begin = 2 * keys});
  }

  // work[t] = silu(sum_j taps[j] * inputs[t - (kernel - 1) + j]), channel by channel; inputs before the call come from
  // the state.
  void convolve(const Channels& channels) const {
    const std::int64_t all = shape_.channels();
    const std::int64_t width = channels.width;
    const std::int64_t past = shape_.kernel - 1;
    const std::int64_t tiles = ceil_div(width, kChannelTile);
    pool_->parallel_for(args_.span_count * tiles, [&](std::int64_t task, int) {
      const RecurrentSpan& span = args_.spans[count(task / tiles)];
      if (span.count == 0) return;
      const std::int64_t first = task % tiles * kChannelTile;
      const std::int64_t n = std::min(kChannelTile, width - first);
      const float* const before = state(span.before) + channels.begin + first;
      const float* const now = channels.inputs + span.begin * width + first;
      const auto input = [&](std::int64_t t) { return t < 0 ? before + (past + t) * all : now + t * width; };
      for (std::int64_t t = 0; t < span.count; ++t) {
        float* const to = args_.work + (span.begin + t) * all + channels.begin + first;
        std::fill_n(to, n, 0.0F);
        for (std::int64_t j = 0; j < shape_.kernel; ++j) {
          const float* const from = input(t - past + j);
          const float* const tap = channels.taps + j * width + first;
          for (std::int64_t c = 0; c < n; ++c) to[c] += tap[c] * from[c];
        }
        ops_.sigmoid_mul(to, to, to, n);
      }
      float* const after = state(span.after) + channels.begin + first;
      for (std::int64_t i = 0; i < past; ++i) std::copy_n(input(span.count - past + i), n, after + i * all);
    });
  }

  // What a head keeps of a state whose gate has the number `x`.
  [[nodiscard]] float decay(std::int64_t head, float x) const {
    const float rate = args_.rate[head];
    return std::exp(shape_.least_decay != 0.0F ? shape_.least_decay * sigmoid(rate * x) : -rate * softplus(x));
  }

  void prepare_gates(std::int64_t t, const Buffers& buffers) const {
    const std::int64_t heads = shape_.value_heads;
    const std::int64_t ratio = heads / shape_.key_heads;
    const std::int64_t decays = shape_.decays() / heads;
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t at = t * heads + h;
      const float* const group = args_.b + 2 * (t * heads + h / ratio * ratio) + h % ratio;
      buffers.beta[at] = sigmoid(shape_.grouped ? group[0] : args_.b[at]);
      const float* const a = shape_.grouped ? group + ratio : args_.a + at * decays;
      for (std::int64_t i = 0; i < decays; ++i) {
        buffers.decay[at * decays + i] = decay(h, a[i] + args_.dt_bias[h * decays + i]);
      }
    }
  }

  // Step sizes and decays of every value head; q and k of length 1, q also times key_dim^-0.5.
  void prepare(const Buffers& buffers) const {
    const std::int64_t dim = shape_.key_dim;
    const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
    pool_->parallel_for(ceil_div(args_.tokens, kTokenTile), [&](std::int64_t tile, int) {
      for (std::int64_t t = tile * kTokenTile; t < std::min((tile + 1) * kTokenTile, args_.tokens); ++t) {
        prepare_gates(t, buffers);
        for (std::int64_t h = 0; h < 2 * shape_.key_heads; ++h) {
          float* const vector = args_.work + t * shape_.channels() + h * dim;
          const float inverse = 1.0F / std::sqrt(ops_.dot(vector, vector, dim) + kNormEpsilon);
          ops_.scale(h < shape_.key_heads ? inverse * scale : inverse, vector, dim);
        }
      }
    });
  }

  void recur(const Buffers& buffers) const {
    const std::int64_t heads = shape_.value_heads;
    const std::int64_t dim = shape_.key_dim;
    const std::int64_t ratio = heads / shape_.key_heads;
    const std::int64_t blocks = ceil_div(shape_.value_dim, kStateColumns);
    const std::int64_t tasks = args_.span_count * heads * blocks;
    const std::int64_t decays = shape_.decays() / heads;
    pool_->parallel_for(tasks, [&](std::int64_t task, int) {
      const RecurrentSpan& span = args_.spans[count(task / (heads * blocks))];
      if (span.count == 0) return;
      const std::int64_t head = task / blocks % heads;
      const std::int64_t column = task % blocks * kStateColumns;
      const std::int64_t n = std::min(kStateColumns, shape_.value_dim - column);
      // A head's columns lie in blocks of [key_dim, n], one after the other.
      const std::int64_t from = head * shape_.value_dim + column;
      const std::int64_t offset = shape_.conv_floats() + from * dim;
      float* const own = state(span.after) + offset;
      std::copy_n(state(span.before) + offset, dim * n, own);
      for (std::int64_t t = span.begin; t < span.begin + span.count; ++t) {
        const float* const row = args_.work + t * shape_.channels();
        const float* const query = row + head / ratio * dim;
        ops_.delta_step({.rows = dim,
                         .n = n,
                         .key = query + shape_.key_width(),
                         .query = query,
                         .value = row + 2 * shape_.key_width() + from,
                         .decay = buffers.decay + (t * heads + head) * decays,
                         .decay_by_row = shape_.decay_by_channel,
                         .beta = buffers.beta[t * heads + head],
                         .state = own,
                         .out = args_.mixed + t * shape_.value_width() + from});
      }
    });
  }

  void norm_and_gate() const {
    const std::int64_t dim = shape_.value_dim;
    pool_->parallel_for(ceil_div(args_.tokens, kTokenTile), [&](std::int64_t tile, int) {
      const std::int64_t end = std::min((tile + 1) * kTokenTile, args_.tokens) * shape_.value_heads;
      for (std::int64_t row = tile * kTokenTile * shape_.value_heads; row < end; ++row) {
        float* const vector = args_.mixed + row * dim;
        ops_.rms_norm(vector, args_.norm.weight, args_.norm.eps, vector, dim);
        const auto gate = shape_.sigmoid_gate ? ops_.sigmoid_mul : ops_.silu_mul;
        gate(args_.z + row * dim, vector, vector, dim);
      }
    });
  }

  const DeltaRuleArgs& args_;
  const DeltaNetShape& shape_;
  const VectorOps& ops_;
  ThreadPool* pool_ = nullptr;
};

}  // namespace

std::size_t CpuOps::workspace(const DeltaRuleArgs& args, int /*threads*/) const {
  return DeltaRule(args, vector_).bytes();
}

void CpuOps::delta_rule(const RunContext& context, const DeltaRuleArgs& args) const {
  DeltaRule(args, vector_).run(context);
}

}  // namespace moracle::cpu
