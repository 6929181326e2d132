#include "model/run/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/checked.h"
#include "model/state/kv_codes.h"

namespace moracle {

namespace {

// Query rows of one task: enough to reuse a block of keys from cache, few enough to keep every core busy.
constexpr std::int64_t kTileRows = 32;

// Positions of one section: a task that outweighs handing it out and merging it. Part of what results are made of.
constexpr std::int64_t kSectionTokens = 512;
constexpr std::int64_t kSectionBlocks = kSectionTokens / kBlockTokens;
// Sections in work at a time, for each thread; below so many tasks for each thread, sections are shared out.
constexpr std::int64_t kSectionsPerThread = 8;

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
  float* q = nullptr;           // [tokens, heads * query_stride]
  float* k = nullptr;           // [tokens, kv_heads * head_dim]
  float* v = nullptr;           // the same
  float* out = nullptr;         // [tokens, heads * head_dim]
  float* maximum = nullptr;     // [tokens, heads]: of all merged sections' scores
  float* sum = nullptr;         // [tokens, heads]: of their exponentials
  float* head_gate = nullptr;   // [tokens, heads] with parts_.head_gate
  float* scratch = nullptr;     // of all threads
  float* sums = nullptr;        // of all sections in work
  std::span<Section> sections;  // in work
  std::span<const Tile> tiles;
};

// What a tile's head computes in one go: blocks [first, end).
struct Attention::Section {
  const Tile* tile = nullptr;
  std::int64_t kv_head = 0;
  std::int64_t first = 0;
  std::int64_t end = 0;
  bool opens = false;   // the tile's first
  bool closes = false;  // the tile's last
};

// What one section gives; rows are (query, head of the group).
struct Attention::Sums {
  float* out = nullptr;      // [rows, head_dim], not yet divided by `sum`
  float* maximum = nullptr;  // [rows]
  float* sum = nullptr;      // [rows]

  static std::int64_t floats(std::int64_t rows, std::int64_t head_dim) { return round_up(rows * (head_dim + 2), 16); }
  Sums(float* at, std::int64_t rows, std::int64_t head_dim)
      : out(at), maximum(out + rows * head_dim), sum(maximum + rows) {}
};

// Of one thread.
struct Attention::Scratch {
  float* q = nullptr;       // [rows, head_dim], scaled
  float* scores = nullptr;  // [rows, 64]
  float* factor = nullptr;  // [rows]: of what was summed before a block, now that the maximum has grown

  static std::int64_t floats(std::int64_t rows, std::int64_t head_dim) {
    return round_up(rows * (head_dim + kBlockTokens + 1), 16);
  }
  Scratch(float* at, std::int64_t rows, std::int64_t head_dim)
      : q(at), scores(q + rows * head_dim), factor(scores + rows * kBlockTokens) {}
};

// One head's part of a block.
struct Attention::Share {
  std::byte* keys = nullptr;      // [head_dim, 64]
  std::byte* values = nullptr;    // [64, head_dim]
  float* key_scales = nullptr;    // [64], int8 only
  float* value_scales = nullptr;  // [64], int8 only
};

Attention::Attention(Parts parts) : parts_(std::move(parts)) {
  group_ = parts_.heads / parts_.kv_heads;
  tile_queries_ = std::max<std::int64_t>(1, kTileRows / group_);
}

LayerState Attention::state() const {
  const std::int64_t scales = parts_.kv == KvType::int8 ? 2 * parts_.kv_heads * kBlockTokens : 0;
  return {.block_bytes = 2 * parts_.kv_heads * parts_.head_dim * kBlockTokens * bytes_of(parts_.kv) +
                         scales * std::int64_t{sizeof(float)},
          .window = parts_.window};
}

Attention::Share Attention::share_of(std::byte* block, std::int64_t kv_head) const {
  const std::int64_t head_bytes = parts_.head_dim * kBlockTokens * bytes_of(parts_.kv);
  Share share;
  share.keys = block + kv_head * head_bytes;
  share.values = block + (parts_.kv_heads + kv_head) * head_bytes;
  if (parts_.kv == KvType::int8) {
    auto* const scales = reinterpret_cast<float*>(block + 2 * parts_.kv_heads * head_bytes);
    share.key_scales = scales + kv_head * kBlockTokens;
    share.value_scales = scales + (parts_.kv_heads + kv_head) * kBlockTokens;
  }
  return share;
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
         (parts_.head_gate ? 3 : 2) * BumpArena::cost<float>(count(tokens * parts_.heads)) +
         BumpArena::cost<Tile>(count(tokens)) +
         BumpArena::cost<float>(count(threads * Scratch::floats(tile_rows(), parts_.head_dim))) +
         BumpArena::cost<float>(count(threads * kSectionsPerThread * Sums::floats(tile_rows(), parts_.head_dim))) +
         BumpArena::cost<Section>(count(threads * kSectionsPerThread)) + BumpArena::kAlignment +
         linear_bytes(tokens, threads);
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
  buffers.maximum = arena.take<float>(count(tokens * parts_.heads)).data();
  buffers.sum = arena.take<float>(count(tokens * parts_.heads)).data();
  const auto tiles = arena.take<Tile>(count(tokens));
  buffers.scratch = arena.take<float>(count(threads * Scratch::floats(tile_rows(), parts_.head_dim))).data();
  const std::int64_t slots = threads * kSectionsPerThread;
  buffers.sums = arena.take<float>(count(slots * Sums::floats(tile_rows(), parts_.head_dim))).data();
  buffers.sections = arena.take<Section>(count(slots));
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

  std::size_t used = 0;
  for (const SequenceSpan& span : context.spans) {
    for (std::int64_t i = 0; i < span.count; i += tile_queries_) {
      tiles[used++] = {span.state, span.begin + i, span.start + i, std::min(tile_queries_, span.count - i)};
    }
  }
  buffers.tiles = tiles.first(used);
  if (shares_sections(buffers, threads)) {
    attend_sections(context, buffers);
  } else {
    attend_tiles(context, buffers);
  }
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
      const Share share = share_of(span.state->block(parts_.layer, position / kBlockTokens), head);
      const std::int64_t from = ((span.begin + i) * parts_.kv_heads + head) * dim;
      const std::int64_t width = bytes_of(parts_.kv);
      const float key_scale =
          store_kv(parts_.kv, {buffers.k + from, count(dim)}, share.keys + slot * width, kBlockTokens);
      const float value_scale = store_kv(parts_.kv, {buffers.v + from, count(dim)}, share.values + slot * dim * width);
      if (parts_.kv != KvType::int8) continue;
      share.key_scales[slot] = key_scale;
      share.value_scales[slot] = value_scale;
    }
  });
}

// The tile's section with this number, counted from position 0; empty where the tile sees none of it.
Attention::Section Attention::section(const Tile& tile, std::int64_t kv_head, std::int64_t index) const {
  const std::int64_t oldest = parts_.window == 0 ? 0 : std::max<std::int64_t>(0, tile.first - parts_.window + 1);
  const std::int64_t first = oldest / kBlockTokens;
  const std::int64_t end = (tile.first + tile.queries - 1) / kBlockTokens + 1;
  const std::int64_t from = std::max(first, index * kSectionBlocks);
  const std::int64_t to = std::min(end, (index + 1) * kSectionBlocks);
  return {.tile = &tile, .kv_head = kv_head, .first = from, .end = to, .opens = from == first, .closes = to == end};
}

// Few tiles leave threads without work where contexts are long; who computes a section changes no bit.
bool Attention::shares_sections(const Buffers& buffers, int threads) const {
  const auto tasks = std::ssize(buffers.tiles) * parts_.kv_heads;
  return threads > 1 && tasks < threads * kSectionsPerThread &&
         std::any_of(
             buffers.tiles.begin(), buffers.tiles.end(),
             [](const Tile& tile) { return tile.first + tile.queries > kSectionTokens; });
}

void Attention::attend_tiles(const ForwardContext& context, const Buffers& buffers) const {
  const std::int64_t rows = tile_rows();
  const std::int64_t dim = parts_.head_dim;
  context.pool.parallel_for(std::ssize(buffers.tiles) * parts_.kv_heads, [&](std::int64_t task, int thread) {
    // Late tiles see more keys; handing them out first keeps the end of the loop short.
    const Tile& tile = buffers.tiles[buffers.tiles.size() - 1 - count(task / parts_.kv_heads)];
    Scratch scratch(buffers.scratch + thread * Scratch::floats(rows, dim), rows, dim);
    Sums sums(buffers.sums + thread * Sums::floats(rows, dim), rows, dim);
    for (std::int64_t index = 0;; ++index) {
      const Section part = section(tile, task % parts_.kv_heads, index);
      if (part.first >= part.end) continue;  // before the window
      attend(context, part, buffers, scratch, sums);
      merge(context, part, buffers, sums);
      if (part.closes) break;
    }
  });
}

void Attention::attend_sections(const ForwardContext& context, const Buffers& buffers) const {
  const std::int64_t rows = tile_rows();
  const std::int64_t dim = parts_.head_dim;
  const auto sums_of = [&](std::int64_t slot) {
    return Sums(buffers.sums + slot * Sums::floats(rows, dim), rows, dim);
  };
  std::size_t used = 0;
  const auto compute = [&] {
    context.pool.parallel_for(static_cast<std::int64_t>(used), [&](std::int64_t slot, int thread) {
      Scratch scratch(buffers.scratch + thread * Scratch::floats(rows, dim), rows, dim);
      Sums sums = sums_of(slot);
      attend(context, buffers.sections[count(slot)], buffers, scratch, sums);
    });
    // The sections of one head of one tile lie side by side: whoever meets the first of them merges all.
    context.pool.parallel_for(static_cast<std::int64_t>(used), [&](std::int64_t slot, int) {
      const auto same = [&](std::size_t a, std::size_t b) {
        return buffers.sections[a].tile == buffers.sections[b].tile &&
               buffers.sections[a].kv_head == buffers.sections[b].kv_head;
      };
      const std::size_t first = count(slot);
      if (first > 0 && same(first - 1, first)) return;
      for (std::size_t i = first; i < used && same(first, i); ++i) {
        merge(context, buffers.sections[i], buffers, sums_of(static_cast<std::int64_t>(i)));
      }
    });
    used = 0;
  };
  for (const Tile& tile : buffers.tiles) {
    for (std::int64_t head = 0; head < parts_.kv_heads; ++head) {
      for (std::int64_t index = 0;; ++index) {
        const Section part = section(tile, head, index);
        if (part.first >= part.end) continue;
        buffers.sections[used++] = part;
        if (used == buffers.sections.size()) compute();
        if (part.closes) break;
      }
    }
  }
  if (used > 0) compute();
}

void Attention::attend(const ForwardContext& context, const Section& section, const Buffers& buffers, Scratch& scratch,
                       Sums& sums) const {
  const Tile& tile = *section.tile;
  const std::int64_t dim = parts_.head_dim;
  const std::int64_t rows = tile.queries * group_;
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  for (std::int64_t query = 0; query < tile.queries; ++query) {
    for (std::int64_t i = 0; i < group_; ++i) {
      const float* const from =
          buffers.q + ((tile.row + query) * parts_.heads + section.kv_head * group_ + i) * query_stride();
      std::copy_n(from, dim, scratch.q + (query * group_ + i) * dim);
    }
  }
  context.ops.scale(scale, scratch.q, rows * dim);
  std::fill_n(sums.out, rows * dim, 0.0F);
  std::fill_n(sums.maximum, rows, kMinusInfinity);
  std::fill_n(sums.sum, rows, 0.0F);
  for (std::int64_t block = section.first; block < section.end; ++block) {
    attend_block(context, section, block, scratch, sums);
  }
}

// C[m, n] = A[m, k] B[k, n] with keys or values as B, row after row.
void Attention::multiply(const ForwardContext& context, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
                         std::int64_t lda, const std::byte* b, float* c, bool accumulate, const std::byte* next) const {
  const auto run = [&](auto gemm, auto* type) {
    using T = decltype(type);
    gemm(m, n, k, a, lda, reinterpret_cast<T>(b), n, c, n, accumulate, reinterpret_cast<T>(next));
  };
  switch (parts_.kv) {
    case KvType::f32:
      return run(context.ops.gemm, static_cast<const float*>(nullptr));
    case KvType::bf16:
      return run(context.ops.gemm_bf16, static_cast<const std::uint16_t*>(nullptr));
    case KvType::int8:
      return run(context.ops.gemm_int8, static_cast<const std::int8_t*>(nullptr));
  }
}

void Attention::attend_block(const ForwardContext& context, const Section& section, std::int64_t block,
                             Scratch& scratch, Sums& sums) const {
  const VectorOps& ops = context.ops;
  const Tile& tile = *section.tile;
  const std::int64_t dim = parts_.head_dim;
  const std::int64_t rows = tile.queries * group_;
  const Share share = share_of(tile.state->block(parts_.layer, block), section.kv_head);
  const std::int64_t base = block * kBlockTokens;
  const std::int64_t stored = std::min(kBlockTokens, tile.first + tile.queries - base);
  // A step of decoding reads its keys and values once, from memory; a longer tile finds them in cache.
  const bool from_memory = tile.queries == 1;
  const std::byte* next_keys = nullptr;
  if (from_memory && block + 1 < section.end) {
    next_keys = share_of(tile.state->block(parts_.layer, block + 1), section.kv_head).keys;
  }

  multiply(context, rows, kBlockTokens, dim, scratch.q, dim, share.keys, scratch.scores, false,
           from_memory ? share.values : nullptr);
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
    float* const scores = scratch.scores + row * kBlockTokens + begin;
    if (share.key_scales != nullptr) ops.multiply(share.key_scales + begin, scores, end - begin);
    const float before = sums.maximum[row];
    sums.maximum[row] = std::max(before, ops.max(scores, end - begin));
    scratch.factor[row] = before - sums.maximum[row];
  }
  ops.exp_sub_sum(0.0F, scratch.factor, rows);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto [begin, end] = visible(row);
    float* const scores = scratch.scores + row * kBlockTokens;
    std::fill_n(scores, begin, 0.0F);
    std::fill(scores + end, scores + kBlockTokens, 0.0F);
    if (begin == end) continue;
    const float factor = scratch.factor[row];
    sums.sum[row] = sums.sum[row] * factor + ops.exp_sub_sum(sums.maximum[row], scores + begin, end - begin);
    if (factor != 1.0F) ops.scale(factor, sums.out + row * dim, dim);
    if (share.value_scales != nullptr) ops.multiply(share.value_scales + begin, scores + begin, end - begin);
  }
  multiply(context, rows, dim, stored, scratch.scores, kBlockTokens, share.values, sums.out, true, next_keys);
}

void Attention::gate(const ForwardContext& context, const Buffers& buffers, std::int64_t token, std::int64_t head,
                     float* out) const {
  const std::int64_t dim = parts_.head_dim;
  const std::int64_t index = token * parts_.heads + head;
  if (parts_.element_gate) context.ops.sigmoid_mul(buffers.q + index * query_stride() + dim, out, out, dim);
  if (parts_.head_gate) context.ops.scale(1.0F / (1.0F + std::exp(-buffers.head_gate[index])), out, dim);
}

void Attention::merge(const ForwardContext& context, const Section& section, const Buffers& buffers,
                      const Sums& sums) const {
  const Tile& tile = *section.tile;
  const std::int64_t dim = parts_.head_dim;
  for (std::int64_t row = 0; row < tile.queries * group_; ++row) {
    const std::int64_t token = tile.row + row / group_;
    const std::int64_t head = section.kv_head * group_ + row % group_;
    float* const out = buffers.out + (token * parts_.heads + head) * dim;
    float& maximum = buffers.maximum[token * parts_.heads + head];
    float& sum = buffers.sum[token * parts_.heads + head];
    float* const added = sums.out + row * dim;
    const float largest = sums.maximum[row];
    // A sum of 0: the row sees nothing there.
    if (section.opens || sum == 0.0F) {
      std::copy_n(added, dim, out);
      maximum = largest;
      sum = sums.sum[row];
    } else if (sums.sum[row] != 0.0F) {
      const float both = std::max(maximum, largest);
      const float kept = std::exp(maximum - both);
      const float taken = std::exp(largest - both);
      if (kept != 1.0F) context.ops.scale(kept, out, dim);
      if (taken != 1.0F) context.ops.scale(taken, added, dim);
      context.ops.add(added, out, dim);
      maximum = both;
      sum = sum * kept + sums.sum[row] * taken;
    }
    if (section.closes) finish(context, buffers, token, head);
  }
}

void Attention::finish(const ForwardContext& context, const Buffers& buffers, std::int64_t token,
                       std::int64_t head) const {
  const std::int64_t dim = parts_.head_dim;
  const float largest = buffers.maximum[token * parts_.heads + head];
  float factor = 1.0F;
  float sum = buffers.sum[token * parts_.heads + head];
  if (!parts_.sinks.empty()) {
    // The sink takes part in the softmax and has no value.
    const float sink = parts_.sinks[count(head)];
    const float maximum = std::max(largest, sink);
    factor = std::exp(largest - maximum);
    sum = sum * factor + std::exp(sink - maximum);
  }
  float* const out = buffers.out + (token * parts_.heads + head) * dim;
  context.ops.scale(factor / sum, out, dim);
  gate(context, buffers, token, head, out);
}

}  // namespace moracle
