#include "model/run/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/checked.h"

namespace moracle {

namespace {

// Query rows of one task: enough to reuse a block of keys from cache, few enough to keep every core busy.
constexpr std::int64_t kTileRows = 32;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

std::size_t count(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

}  // namespace

// Queries [first, first + queries) of one sequence; `row` is the first one's place in the batch.
struct Attention::Tile {
  PagedState* state = nullptr;
  std::int64_t row = 0;
  std::int64_t first = 0;
  std::int64_t queries = 0;
};

struct Attention::Buffers {
  float* q = nullptr;          // [tokens, heads * query_stride]
  float* k = nullptr;          // [tokens, kv_heads * head_dim]
  float* v = nullptr;          // the same
  float* out = nullptr;        // [tokens, heads * head_dim]
  float* head_gate = nullptr;  // [tokens, heads] with parts_.head_gate
  std::span<Tile> tiles;
};

// Of one thread: rows are (query, head of the group).
struct Attention::Scratch {
  float* q = nullptr;        // [rows, head_dim], scaled
  float* scores = nullptr;   // [rows, 64]
  float* out = nullptr;      // [rows, head_dim], not yet divided by `sum`
  float* maximum = nullptr;  // [rows]
  float* sum = nullptr;      // [rows]
  float* factor = nullptr;   // [rows]: of what was summed before a block, now that the maximum has grown

  static std::int64_t floats(std::int64_t rows, std::int64_t head_dim) {
    return round_up(rows * (2 * head_dim + kBlockTokens + 3), 16);
  }
  Scratch(float* at, std::int64_t rows, std::int64_t head_dim)
      : q(at),
        scores(q + rows * head_dim),
        out(scores + rows * kBlockTokens),
        maximum(out + rows * head_dim),
        sum(maximum + rows),
        factor(sum + rows) {}
};

Attention::Attention(Parts parts) : parts_(std::move(parts)) {
  group_ = parts_.heads / parts_.kv_heads;
  tile_queries_ = std::max<std::int64_t>(1, kTileRows / group_);
}

LayerState Attention::state() const {
  return {.block_floats = 2 * parts_.kv_heads * parts_.head_dim * kBlockTokens};
}

std::size_t Attention::bytes() const {
  return parts_.q->bytes() + parts_.k->bytes() + parts_.v->bytes() + parts_.o->bytes() +
         (parts_.head_gate ? parts_.head_gate->bytes() : 0) + parts_.q_norm.bytes() + parts_.k_norm.bytes() +
         sizeof(float) * parts_.sinks.size();
}

std::size_t Attention::linear_bytes(std::int64_t tokens, int threads) const {
  return linear_workspace({parts_.q.get(), parts_.k.get(), parts_.v.get(), parts_.o.get(), parts_.head_gate.get()},
                          tokens, threads);
}

std::size_t Attention::workspace_bytes(std::int64_t tokens, int threads) const {
  const std::int64_t q_floats = tokens * parts_.heads * query_stride();
  const std::int64_t out_floats = tokens * parts_.heads * parts_.head_dim;
  const std::int64_t kv_floats = tokens * parts_.kv_heads * parts_.head_dim;
  return BumpArena::cost<float>(count(q_floats)) + BumpArena::cost<float>(count(out_floats)) +
         2 * BumpArena::cost<float>(count(kv_floats)) +
         (parts_.head_gate ? BumpArena::cost<float>(count(tokens * parts_.heads)) : 0) +
         BumpArena::cost<Tile>(count(tokens)) +
         BumpArena::cost<float>(count(threads * Scratch::floats(tile_rows(), parts_.head_dim))) +
         BumpArena::kAlignment + linear_bytes(tokens, threads);
}

void Attention::run(const ForwardContext& context, const float* x, float* out) const {
  const std::int64_t tokens = context.tokens;
  const int threads = context.pool.threads();
  BumpArena arena(context.workspace);
  Buffers buffers;
  buffers.q = arena.take<float>(count(tokens * parts_.heads * query_stride())).data();
  buffers.out = arena.take<float>(count(tokens * parts_.heads * parts_.head_dim)).data();
  buffers.k = arena.take<float>(count(tokens * parts_.kv_heads * parts_.head_dim)).data();
  buffers.v = arena.take<float>(count(tokens * parts_.kv_heads * parts_.head_dim)).data();
  if (parts_.head_gate) buffers.head_gate = arena.take<float>(count(tokens * parts_.heads)).data();
  buffers.tiles = arena.take<Tile>(count(tokens));
  const std::int64_t scratch_floats = Scratch::floats(tile_rows(), parts_.head_dim);
  float* scratch_memory = arena.take<float>(count(threads * scratch_floats)).data();
  const RunContext run = context.run_context(arena.take<std::byte>(linear_bytes(tokens, threads)));

  context.enter(Phase::projections);
  run_linears(run,
              {{parts_.q.get(), buffers.q},
               {parts_.k.get(), buffers.k},
               {parts_.v.get(), buffers.v},
               {parts_.head_gate.get(), buffers.head_gate}},
              tokens, x);
  context.enter(Phase::attention);
  norm_and_rotate(context, buffers);
  append(context, buffers);

  std::size_t tiles = 0;
  for (const SequenceSpan& span : context.spans) {
    for (std::int64_t i = 0; i < span.count; i += tile_queries_) {
      buffers.tiles[tiles++] = {span.state, span.begin + i, span.start + i, std::min(tile_queries_, span.count - i)};
    }
  }
  context.pool.parallel_for(static_cast<std::int64_t>(tiles) * parts_.kv_heads, [&](std::int64_t task, int thread) {
    // Late tiles see more keys; handing them out first keeps the end of the loop short.
    const Tile& tile = buffers.tiles[tiles - 1 - count(task / parts_.kv_heads)];
    Scratch scratch(scratch_memory + thread * scratch_floats, tile_rows(), parts_.head_dim);
    attend(context, tile, task % parts_.kv_heads, buffers, scratch);
  });
  context.enter(Phase::projections);
  parts_.o->run(run, tokens, buffers.out, out);
}

void Attention::norm_and_rotate(const ForwardContext& context, const Buffers& buffers) const {
  const std::int64_t dim = parts_.head_dim;
  const std::int64_t half = parts_.rotary_dims / 2;
  const RopeTable rope = half == 0 ? RopeTable{} : context.ropes[parts_.rope];
  const auto prepare = [&](std::int64_t token, float* vector, std::int64_t heads, std::int64_t stride,
                           const Norm& norm) {
    const auto norm_size = static_cast<std::int64_t>(norm.weight.size());
    const std::int64_t norm_step = norm_size == dim ? stride : norm_size;
    for (std::int64_t at = 0; norm_size != 0 && at < heads * stride; at += norm_step) {
      context.ops.rms_norm(vector + at, norm.weight.data(), norm.eps, vector + at, norm_size);
    }
    for (std::int64_t head = 0; head < heads; ++head) {
      float* const first = vector + head * stride;
      clip(first, dim);
      if (half == 0) continue;
      context.ops.rotate(first, first + half, rope.cos + token * half, rope.sin + token * half, half);
    }
  };
  context.pool.parallel_for(ceil_div(context.tokens, kTokenTile), [&](std::int64_t tile, int) {
    for (std::int64_t t = tile * kTokenTile; t < std::min((tile + 1) * kTokenTile, context.tokens); ++t) {
      prepare(t, buffers.q + t * parts_.heads * query_stride(), parts_.heads, query_stride(), parts_.q_norm);
      prepare(t, buffers.k + t * parts_.kv_heads * dim, parts_.kv_heads, dim, parts_.k_norm);
      clip(buffers.v + t * parts_.kv_heads * dim, parts_.kv_heads * dim);
    }
  });
}

void Attention::clip(float* vector, std::int64_t size) const {
  if (parts_.clip == 0.0F) return;
  for (std::int64_t i = 0; i < size; ++i) vector[i] = std::clamp(vector[i], -parts_.clip, parts_.clip);
}

void Attention::append(const ForwardContext& context, const Buffers& buffers) const {
  const std::int64_t dim = parts_.head_dim;
  const auto span_count = static_cast<std::int64_t>(context.spans.size());
  context.pool.parallel_for(span_count * parts_.kv_heads, [&](std::int64_t task, int) {
    const SequenceSpan& span = context.spans[count(task / parts_.kv_heads)];
    const std::int64_t head = task % parts_.kv_heads;
    for (std::int64_t i = 0; i < span.count; ++i) {
      const std::int64_t position = span.start + i;
      const std::int64_t slot = position % kBlockTokens;
      float* const block = span.state->block(parts_.layer, position / kBlockTokens);
      const std::int64_t from = ((span.begin + i) * parts_.kv_heads + head) * dim;
      float* const keys = block + head * dim * kBlockTokens + slot;
      for (std::int64_t d = 0; d < dim; ++d) keys[d * kBlockTokens] = buffers.k[from + d];
      std::copy_n(buffers.v + from, dim, block + value_offset() + (head * kBlockTokens + slot) * dim);
    }
  });
}

void Attention::attend(const ForwardContext& context, const Tile& tile, std::int64_t kv_head, const Buffers& buffers,
                       Scratch& scratch) const {
  const std::int64_t dim = parts_.head_dim;
  const std::int64_t rows = tile.queries * group_;
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  for (std::int64_t query = 0; query < tile.queries; ++query) {
    for (std::int64_t i = 0; i < group_; ++i) {
      const float* const from = buffers.q + ((tile.row + query) * parts_.heads + kv_head * group_ + i) * query_stride();
      std::copy_n(from, dim, scratch.q + (query * group_ + i) * dim);
    }
  }
  context.ops.scale(scale, scratch.q, rows * dim);
  std::fill_n(scratch.out, rows * dim, 0.0F);
  std::fill_n(scratch.maximum, rows, kMinusInfinity);
  std::fill_n(scratch.sum, rows, 0.0F);
  const std::int64_t oldest = parts_.window == 0 ? 0 : std::max<std::int64_t>(0, tile.first - parts_.window + 1);
  const std::int64_t newest = tile.first + tile.queries - 1;
  for (std::int64_t block = oldest / kBlockTokens; block <= newest / kBlockTokens; ++block) {
    attend_block(context, tile, kv_head, block, scratch);
  }
  finish(tile, kv_head, buffers, context, scratch);
}

void Attention::attend_block(const ForwardContext& context, const Tile& tile, std::int64_t kv_head, std::int64_t block,
                             Scratch& scratch) const {
  const VectorOps& ops = context.ops;
  const std::int64_t dim = parts_.head_dim;
  const std::int64_t rows = tile.queries * group_;
  const float* const share = tile.state->block(parts_.layer, block);
  const float* const keys = share + kv_head * dim * kBlockTokens;
  const float* const values = share + value_offset() + kv_head * kBlockTokens * dim;
  const std::int64_t base = block * kBlockTokens;
  const std::int64_t stored = std::min(kBlockTokens, tile.first + tile.queries - base);
  // A step of decoding reads its keys and values once, from memory; a longer tile finds them in cache.
  const bool from_memory = tile.queries == 1;
  const float* next_keys = nullptr;
  if (from_memory && base + kBlockTokens <= tile.first) {
    next_keys = tile.state->block(parts_.layer, block + 1) + kv_head * dim * kBlockTokens;
  }

  ops.gemm(rows, kBlockTokens, dim, scratch.q, dim, keys, kBlockTokens, scratch.scores, kBlockTokens, false,
           from_memory ? values : nullptr);
  // Visible positions of this block: [first, second).
  const auto visible = [&](std::int64_t row) {
    const std::int64_t position = tile.first + row / group_;
    const std::int64_t end = std::clamp<std::int64_t>(position + 1 - base, 0, kBlockTokens);
    const std::int64_t begin =
        parts_.window == 0 ? 0 : std::clamp<std::int64_t>(position - parts_.window + 1 - base, 0, end);
    return std::pair{begin, end};
  };
  // The factors of all rows are one call: alone, each would wait for the whole latency of an exponential.
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto [begin, end] = visible(row);
    scratch.factor[row] = 0.0F;
    if (begin == end) continue;
    const float before = scratch.maximum[row];
    scratch.maximum[row] = std::max(before, ops.max(scratch.scores + row * kBlockTokens + begin, end - begin));
    scratch.factor[row] = before - scratch.maximum[row];
  }
  ops.exp_sub_sum(0.0F, scratch.factor, rows);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto [begin, end] = visible(row);
    float* const scores = scratch.scores + row * kBlockTokens;
    std::fill_n(scores, begin, 0.0F);
    std::fill(scores + end, scores + kBlockTokens, 0.0F);
    if (begin == end) continue;
    const float factor = scratch.factor[row];
    scratch.sum[row] = scratch.sum[row] * factor + ops.exp_sub_sum(scratch.maximum[row], scores + begin, end - begin);
    if (factor != 1.0F) ops.scale(factor, scratch.out + row * dim, dim);
  }
  ops.gemm(rows, dim, stored, scratch.scores, kBlockTokens, values, dim, scratch.out, dim, true, next_keys);
}

void Attention::gate(const ForwardContext& context, const Buffers& buffers, std::int64_t token, std::int64_t head,
                     float* out) const {
  const std::int64_t dim = parts_.head_dim;
  const std::int64_t index = token * parts_.heads + head;
  if (parts_.element_gate) context.ops.sigmoid_mul(buffers.q + index * query_stride() + dim, out, out, dim);
  if (parts_.head_gate) context.ops.scale(1.0F / (1.0F + std::exp(-buffers.head_gate[index])), out, dim);
}

void Attention::finish(const Tile& tile, std::int64_t kv_head, const Buffers& buffers, const ForwardContext& context,
                       Scratch& scratch) const {
  const std::int64_t dim = parts_.head_dim;
  for (std::int64_t row = 0; row < tile.queries * group_; ++row) {
    const std::int64_t head = kv_head * group_ + row % group_;
    float factor = 1.0F;
    float sum = scratch.sum[row];
    if (!parts_.sinks.empty()) {
      // The sink takes part in the softmax and has no value.
      const float sink = parts_.sinks[count(head)];
      const float maximum = std::max(scratch.maximum[row], sink);
      factor = std::exp(scratch.maximum[row] - maximum);
      sum = sum * factor + std::exp(sink - maximum);
    }
    const std::int64_t token = tile.row + row / group_;
    float* const out = buffers.out + (token * parts_.heads + head) * dim;
    std::copy_n(scratch.out + row * dim, dim, out);
    context.ops.scale(factor / sum, out, dim);
    gate(context, buffers, token, head, out);
  }
}

}  // namespace moracle
