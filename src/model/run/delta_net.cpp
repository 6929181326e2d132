#include "model/run/delta_net.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"

namespace moracle {

namespace {

// Columns of a head's state that one task carries through a call: 128 rows of them stay in the first-level cache, and
// a single sequence still spreads over all cores.
constexpr std::int64_t kStateColumns = 64;
// Channels that one task of the convolution carries through a call.
constexpr std::int64_t kChannelTile = 256;

constexpr float kNormEpsilon = 1e-6F;  // inside the root of the l2 norms of q and k

std::size_t count(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

float sigmoid(float x) {
  return 1.0F / (1.0F + std::exp(-x));
}

float softplus(float x) {
  return x > 20.0F ? x : std::log1p(std::exp(x));
}

}  // namespace

struct DeltaNet::Buffers {
  float* mixed = nullptr;  // [tokens, channels]: q, k, v of all heads; later the output [tokens, values]
  float* work = nullptr;   // what the grouped projection gives; later `mixed` after the convolution
  float* z = nullptr;      // [tokens, values]
  float* b = nullptr;      // [tokens, value_heads], grouped: [tokens, 2 value_heads] with a's
  float* a = nullptr;      // [tokens, value_heads]
  float* beta = nullptr;   // [tokens, value_heads]
  float* decay = nullptr;  // [tokens, value_heads]
};

DeltaNet::DeltaNet(Parts parts) : parts_(std::move(parts)), taps_(parts_.conv.size()) {
  for (std::int64_t c = 0; c < channels(); ++c) {
    for (std::int64_t j = 0; j < parts_.kernel; ++j) {
      taps_[count(j * channels() + c)] = parts_.conv[count(c * parts_.kernel + j)];
    }
  }
  parts_.conv = {};
  for (const float value : parts_.a_log) rate_.push_back(std::exp(value));
}

LayerState DeltaNet::state() const {
  return {.fixed_floats = conv_floats() + parts_.key_dim * values()};
}

std::size_t DeltaNet::bytes() const {
  std::size_t total = sizeof(float) * (taps_.size() + rate_.size() + parts_.dt_bias.size()) + parts_.norm.bytes();
  for (const PackedLinear* linear :
       {parts_.qkv.get(), parts_.z.get(), parts_.b.get(), parts_.a.get(), parts_.out.get()}) {
    if (linear != nullptr) total += linear->bytes();
  }
  return total;
}

std::size_t DeltaNet::linear_bytes(std::int64_t tokens, int threads) const {
  return linear_workspace({parts_.qkv.get(), parts_.z.get(), parts_.b.get(), parts_.a.get(), parts_.out.get()}, tokens,
                          threads);
}

std::size_t DeltaNet::workspace_bytes(std::int64_t tokens, int threads) const {
  return BumpArena::cost<float>(count(tokens * channels())) +
         BumpArena::cost<float>(count(tokens * (channels() + (grouped() ? values() : 0)))) +
         BumpArena::cost<float>(count(tokens * values())) +
         4 * BumpArena::cost<float>(count(tokens * parts_.value_heads)) + BumpArena::kAlignment +
         linear_bytes(tokens, threads);
}

void DeltaNet::run(const ForwardContext& context, const float* x, float* out) const {
  const std::int64_t tokens = context.tokens;
  const std::int64_t heads = parts_.value_heads;
  BumpArena arena(context.workspace);
  Buffers buffers;
  buffers.mixed = arena.take<float>(count(tokens * channels())).data();
  buffers.work = arena.take<float>(count(tokens * (channels() + (grouped() ? values() : 0)))).data();
  buffers.z = arena.take<float>(count(tokens * values())).data();
  buffers.b = arena.take<float>(count(tokens * heads * 2)).data();
  buffers.a = buffers.b + tokens * heads;
  buffers.beta = arena.take<float>(count(tokens * heads)).data();
  buffers.decay = arena.take<float>(count(tokens * heads)).data();
  const RunContext run = context.run_context(arena.take<std::byte>(linear_bytes(tokens, context.pool.threads())));
  context.enter(Phase::projections);
  project(context, run, x, buffers);
  context.enter(Phase::attention);
  convolve(context, buffers);
  prepare(context, buffers);
  recur(context, buffers);
  norm_and_gate(context, buffers);
  context.enter(Phase::projections);
  parts_.out->run(run, tokens, buffers.mixed, out);
}

void DeltaNet::project(const ForwardContext& context, const RunContext& run, const float* x,
                       const Buffers& buffers) const {
  run_linears(run,
              {{parts_.qkv.get(), grouped() ? buffers.work : buffers.mixed},
               {parts_.z.get(), buffers.z},
               {parts_.b.get(), buffers.b},
               {parts_.a.get(), buffers.a}},
              context.tokens, x);
  if (grouped()) ungroup(context, buffers);
}

void DeltaNet::ungroup(const ForwardContext& context, const Buffers& buffers) const {
  const std::int64_t dim = parts_.key_dim;
  const std::int64_t share = values() / parts_.key_heads;
  context.pool.parallel_for(context.tokens, [&](std::int64_t token, int) {
    const float* from = buffers.work + token * (channels() + values());
    float* const mixed = buffers.mixed + token * channels();
    for (std::int64_t head = 0; head < parts_.key_heads; ++head) {
      std::copy_n(from, dim, mixed + head * dim);
      std::copy_n(from + dim, dim, mixed + keys() + head * dim);
      std::copy_n(from + 2 * dim, share, mixed + 2 * keys() + head * share);
      std::copy_n(from + 2 * dim + share, share, buffers.z + token * values() + head * share);
      from += 2 * (dim + share);
    }
  });
}

// work[t] = silu(sum_j taps[j] * mixed[t - (kernel - 1) + j]), channel by channel; inputs before the call come from the
// state.
void DeltaNet::convolve(const ForwardContext& context, const Buffers& buffers) const {
  const std::int64_t width = channels();
  const std::int64_t past = parts_.kernel - 1;
  const std::int64_t tiles = ceil_div(width, kChannelTile);
  context.pool.parallel_for(static_cast<std::int64_t>(context.spans.size()) * tiles, [&](std::int64_t task, int) {
    const SequenceSpan& span = context.spans[count(task / tiles)];
    const std::int64_t first = task % tiles * kChannelTile;
    const std::int64_t n = std::min(kChannelTile, width - first);
    const float* const before = span.state->fixed(parts_.layer) + first;
    const float* const now = buffers.mixed + span.begin * width + first;
    const auto input = [&](std::int64_t t) { return t < 0 ? before + (past + t) * width : now + t * width; };
    for (std::int64_t t = 0; t < span.count; ++t) {
      float* const to = buffers.work + (span.begin + t) * width + first;
      std::fill_n(to, n, 0.0F);
      for (std::int64_t j = 0; j < parts_.kernel; ++j) {
        const float* const from = input(t - past + j);
        const float* const tap = taps_.data() + j * width + first;
        for (std::int64_t c = 0; c < n; ++c) to[c] += tap[c] * from[c];
      }
      context.ops.sigmoid_mul(to, to, to, n);
    }
    float* const after = span.state->next_fixed(parts_.layer) + first;
    for (std::int64_t i = 0; i < past; ++i) std::copy_n(input(span.count - past + i), n, after + i * width);
  });
}

// Step sizes and decays of every value head; q and k of length 1, q also times key_dim^-0.5.
void DeltaNet::prepare(const ForwardContext& context, const Buffers& buffers) const {
  const std::int64_t heads = parts_.value_heads;
  const std::int64_t dim = parts_.key_dim;
  const std::int64_t ratio = heads / parts_.key_heads;
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  const auto gates = [&](std::int64_t t) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t at = t * heads + h;
      const float* const group = buffers.b + 2 * (t * heads + h / ratio * ratio) + h % ratio;
      const float b = grouped() ? group[0] : buffers.b[at];
      const float a = grouped() ? group[ratio] : buffers.a[at];
      buffers.beta[at] = sigmoid(b);
      buffers.decay[at] = std::exp(-rate_[count(h)] * softplus(a + parts_.dt_bias[count(h)]));
    }
  };
  context.pool.parallel_for(ceil_div(context.tokens, kTokenTile), [&](std::int64_t tile, int) {
    for (std::int64_t t = tile * kTokenTile; t < std::min((tile + 1) * kTokenTile, context.tokens); ++t) {
      gates(t);
      for (std::int64_t h = 0; h < 2 * parts_.key_heads; ++h) {
        float* const vector = buffers.work + t * channels() + h * dim;
        const float inverse = 1.0F / std::sqrt(context.ops.dot(vector, vector, dim) + kNormEpsilon);
        context.ops.scale(h < parts_.key_heads ? inverse * scale : inverse, vector, dim);
      }
    }
  });
}

void DeltaNet::recur(const ForwardContext& context, const Buffers& buffers) const {
  const std::int64_t heads = parts_.value_heads;
  const std::int64_t dim = parts_.key_dim;
  const std::int64_t ratio = heads / parts_.key_heads;
  const std::int64_t blocks = ceil_div(parts_.value_dim, kStateColumns);
  const std::int64_t tasks = static_cast<std::int64_t>(context.spans.size()) * heads * blocks;
  context.pool.parallel_for(tasks, [&](std::int64_t task, int) {
    const SequenceSpan& span = context.spans[count(task / (heads * blocks))];
    const std::int64_t head = task / blocks % heads;
    const std::int64_t column = task % blocks * kStateColumns;
    const std::int64_t n = std::min(kStateColumns, parts_.value_dim - column);
    // A head's columns lie in blocks of [key_dim, n], one after the other.
    const std::int64_t from = head * parts_.value_dim + column;
    const std::int64_t offset = conv_floats() + from * dim;
    float* const state = span.state->next_fixed(parts_.layer) + offset;
    std::copy_n(span.state->fixed(parts_.layer) + offset, dim * n, state);
    for (std::int64_t t = span.begin; t < span.begin + span.count; ++t) {
      const float* const row = buffers.work + t * channels();
      const float* const query = row + head / ratio * dim;
      context.ops.delta_step({.rows = dim,
                              .n = n,
                              .key = query + keys(),
                              .query = query,
                              .value = row + 2 * keys() + from,
                              .decay = buffers.decay[t * heads + head],
                              .beta = buffers.beta[t * heads + head],
                              .state = state,
                              .out = buffers.mixed + t * values() + from});
    }
  });
}

void DeltaNet::norm_and_gate(const ForwardContext& context, const Buffers& buffers) const {
  const std::int64_t dim = parts_.value_dim;
  context.pool.parallel_for(ceil_div(context.tokens, kTokenTile), [&](std::int64_t tile, int) {
    const std::int64_t end = std::min((tile + 1) * kTokenTile, context.tokens) * parts_.value_heads;
    for (std::int64_t row = tile * kTokenTile * parts_.value_heads; row < end; ++row) {
      float* const vector = buffers.mixed + row * dim;
      context.ops.rms_norm(vector, parts_.norm.weight.data(), parts_.norm.eps, vector, dim);
      context.ops.silu_mul(buffers.z + row * dim, vector, vector, dim);
    }
  });
}

}  // namespace moracle
