#include "model/run/mla.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/checked.h"
#include "base/first_error.h"
#include "model/state/kv_codes.h"
#include "scheme/activation_codes.h"

namespace moracle {

namespace {

// Tokens whose absorbed queries exist at a time: a head's query is as wide as the latent, so all of a long prompt would
// take gigabytes. Enough to make reading the projection of every head worth it.
constexpr std::int64_t kChunkTokens = 128;
// Tokens of one product with a head's projection.
constexpr std::int64_t kProductTokens = 32;
// Heads of one query that share a block of latents from cache, at least and at most.
constexpr std::int64_t kLeastHeads = 8;
constexpr std::int64_t kMostHeads = 32;
// As in attention: positions whose sums are merged as a whole. Part of what results are made of.
constexpr std::int64_t kSectionBlocks = 512 / kBlockTokens;
// Sections in work at a time, for each thread; below so many tasks for each thread, sections are shared out.
constexpr std::int64_t kSectionsPerThread = 4;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

std::size_t count(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

const float* floats(const PageBuffer& buffer) {
  return reinterpret_cast<const float*>(buffer.data());
}

// to[cols, rows] = from[rows, cols], each value times `factor`.
void transpose(const float* from, std::int64_t rows, std::int64_t cols, std::int64_t stride, float factor, float* to) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) to[c * rows + r] = from[r * stride + c] * factor;
  }
}

}  // namespace

Result<LatentProjection> LatentProjection::lay_out(std::int64_t heads, std::int64_t nope, std::int64_t value,
                                                   std::int64_t latent) {
  LatentProjection projection;
  MORACLE_ASSIGN(projection.keys, PageBuffer::allocate(count(heads * nope * latent) * sizeof(float)));
  MORACLE_ASSIGN(projection.values, PageBuffer::allocate(count(heads * value * latent) * sizeof(float)));
  return projection;
}

Result<LatentProjection> LatentProjection::load(const CanonicalLinear& linear, std::int64_t heads, std::int64_t nope,
                                                std::int64_t value, ThreadPool& pool) {
  const MatrixSource& source = *linear.weight;
  const std::int64_t latent = source.spec().cols;
  MORACLE_ASSIGN(LatentProjection projection, lay_out(heads, nope, value, latent));
  projection.activation = linear.activation;
  projection.input_scale = linear.input_scale;
  auto* const keys = reinterpret_cast<float*>(projection.keys.data());
  auto* const values = reinterpret_cast<float*>(projection.values.data());
  FirstError errors;
  std::vector<MatrixPanel> panels(count(pool.threads()));
  std::vector<std::vector<float>> rows(count(pool.threads()));
  pool.parallel_for(heads, [&](std::int64_t head, int thread) {
    if (errors.failed()) return;
    MatrixPanel& panel = panels[count(thread)];
    Result<> read = source.read(head * (nope + value), (head + 1) * (nope + value), panel);
    if (!read.ok()) return errors.keep(head, std::move(read));
    std::vector<float>& own = rows[count(thread)];
    own.resize(count((nope + value) * latent));
    dequantize_panel(source.spec(), panel, own);
    std::copy_n(own.data(), nope * latent, keys + head * nope * latent);
    transpose(own.data() + nope * latent, value, latent, latent, 1.0F, values + head * latent * value);
  });
  MORACLE_TRY(errors.take());
  return projection;
}

// One token of the batch.
struct LatentAttention::Query {
  PagedState* state = nullptr;
  std::int64_t position = 0;
};

struct LatentAttention::Buffers {
  float* q_a = nullptr;       // [tokens, rank], where the model has one
  float* q = nullptr;         // [tokens, heads, nope + rotary]
  float* kv = nullptr;        // [tokens, latent + rotary]
  float* absorbed = nullptr;  // [chunk, heads, latent + rotary]: queries, then in their place the attended latents
  float* out = nullptr;       // [tokens, heads, value]
  float* scratch = nullptr;   // of all threads
  float* sums = nullptr;      // of all sections in work, and twice of all threads
  std::span<Query> queries;   // [tokens]
};

// Tokens [begin, begin + tokens) of the batch.
struct LatentAttention::Chunk {
  std::int64_t begin = 0;
  std::int64_t tokens = 0;
};

// What some heads of one query compute in one go: blocks [first, end).
struct LatentAttention::Section {
  const Query* query = nullptr;
  float* rows = nullptr;  // the heads' absorbed queries
  std::int64_t heads = 0;
  std::int64_t first = 0;
  std::int64_t end = 0;
};

// What one section gives, or several that are merged.
struct LatentAttention::Sums {
  std::int64_t heads = 0;
  float* out = nullptr;      // [heads, latent], not yet divided by `sum`
  float* maximum = nullptr;  // [heads]
  float* sum = nullptr;      // [heads]

  static std::int64_t floats(std::int64_t latent) { return round_up(kMostHeads * (latent + 2), 16); }
  Sums(float* at, std::int64_t heads_, std::int64_t latent)
      : heads(heads_), out(at), maximum(out + heads * latent), sum(maximum + heads) {}
};

// Of one thread, for some heads of one query. Scores come out transposed, because a block of the state serves as left
// operand for the scores and as right operand for the sums.
struct LatentAttention::Scratch {
  std::int64_t heads = 0;
  float* q = nullptr;           // [width, heads], scaled
  float* transposed = nullptr;  // [64, heads]
  float* scores = nullptr;      // [heads, 64]
  float* factor = nullptr;      // [heads]: of what was summed before a block, now that the maximum has grown
  float* room = nullptr;        // [64, width]

  static std::int64_t floats(std::int64_t width) {
    return round_up(kMostHeads * (width + 2 * kBlockTokens + 1) + kBlockTokens * width, 16);
  }
  Scratch(float* at, std::int64_t heads_, std::int64_t width)
      : heads(heads_),
        q(at),
        transposed(q + heads * width),
        scores(transposed + heads * kBlockTokens),
        factor(scores + heads * kBlockTokens),
        room(factor + heads) {}
};

// One position after the other; with int8, behind them the scales of each one's latent and rotated key.
LayerState LatentAttention::state() const {
  const std::int64_t scales = parts_.kv == KvType::int8 ? 2 * std::int64_t{sizeof(float)} : 0;
  return {.block_bytes = kBlockTokens * (width() * bytes_of(parts_.kv) + scales)};
}

std::size_t LatentAttention::bytes() const {
  return (parts_.q_a != nullptr ? parts_.q_a->bytes() : 0) + parts_.q->bytes() + parts_.kv_a->bytes() +
         parts_.kv_b.bytes() + parts_.o->bytes() + parts_.q_norm.bytes() + parts_.kv_norm.bytes();
}

std::size_t LatentAttention::linear_bytes(std::int64_t tokens, int threads) const {
  return linear_workspace({parts_.q_a.get(), parts_.q.get(), parts_.kv_a.get(), parts_.o.get()}, tokens, threads);
}

std::size_t LatentAttention::workspace_bytes(std::int64_t tokens, int threads) const {
  const auto rank = static_cast<std::int64_t>(parts_.q_norm.weight.size());
  const std::int64_t chunk = std::min(tokens, kChunkTokens);
  return BumpArena::cost<float>(count(tokens * rank)) +
         BumpArena::cost<float>(count(tokens * parts_.heads * query_width())) +
         BumpArena::cost<float>(count(tokens * width())) +
         BumpArena::cost<float>(count(chunk * parts_.heads * width())) +
         BumpArena::cost<float>(count(tokens * parts_.heads * parts_.value)) +
         BumpArena::cost<float>(count(threads * Scratch::floats(width()))) +
         BumpArena::cost<float>(count(threads * (kSectionsPerThread + 2) * Sums::floats(parts_.latent))) +
         BumpArena::cost<Query>(count(tokens)) + BumpArena::kAlignment + linear_bytes(tokens, threads);
}

void LatentAttention::run(const ForwardContext& context, const float* x, float* out) const {
  const std::int64_t tokens = context.tokens;
  const int threads = context.pool.threads();
  const auto rank = static_cast<std::int64_t>(parts_.q_norm.weight.size());
  BumpArena arena(context.workspace);
  Buffers buffers;
  buffers.q_a = arena.take<float>(count(tokens * rank)).data();
  buffers.q = arena.take<float>(count(tokens * parts_.heads * query_width())).data();
  buffers.kv = arena.take<float>(count(tokens * width())).data();
  buffers.absorbed = arena.take<float>(count(std::min(tokens, kChunkTokens) * parts_.heads * width())).data();
  buffers.out = arena.take<float>(count(tokens * parts_.heads * parts_.value)).data();
  buffers.scratch = arena.take<float>(count(threads * Scratch::floats(width()))).data();
  buffers.sums = arena.take<float>(count(threads * (kSectionsPerThread + 2) * Sums::floats(parts_.latent))).data();
  buffers.queries = arena.take<Query>(count(tokens));
  const RunContext run = context.run_context(arena.take<std::byte>(linear_bytes(tokens, threads)));

  context.enter(Phase::projections);
  const bool low_rank = parts_.q_a != nullptr;
  const LinearRun queries = low_rank ? LinearRun{parts_.q_a.get(), buffers.q_a} : LinearRun{parts_.q.get(), buffers.q};
  run_linears(run, {queries, {parts_.kv_a.get(), buffers.kv}}, tokens, x);
  if (low_rank) {
    parts_.q_norm.run(context, tokens, buffers.q_a, buffers.q_a);
    parts_.q->run(run, tokens, buffers.q_a, buffers.q);
  }
  context.enter(Phase::attention);
  for (const SequenceSpan& span : context.spans) {
    for (std::int64_t i = 0; i < span.count; ++i) {
      buffers.queries[count(span.begin + i)] = {.state = span.state, .position = span.start + i};
    }
  }
  append(context, buffers);
  for (std::int64_t begin = 0; begin < tokens; begin += kChunkTokens) {
    const Chunk chunk{.begin = begin, .tokens = std::min(kChunkTokens, tokens - begin)};
    absorb(context, chunk, buffers);
    attend(context, chunk, buffers);
    project_values(context, chunk, buffers);
  }
  context.enter(Phase::projections);
  parts_.o->run(run, tokens, buffers.out, out);
}

// Rotated pairs go half a head apart, on queries and keys alike, which leaves their products as they are.
void LatentAttention::rotate(const ForwardContext& context, std::int64_t token, const float* from, float* to) const {
  const RopeTable& rope = context.ropes[parts_.rope];
  const std::int64_t half = parts_.rotary / 2;
  if (parts_.interleaved) {
    for (std::int64_t i = 0; i < half; ++i) {
      to[i] = from[2 * i];
      to[half + i] = from[2 * i + 1];
    }
  } else {
    std::copy_n(from, parts_.rotary, to);
  }
  context.ops.rotate(to, to + half, rope.cos + token * half, rope.sin + token * half, half);
}

void LatentAttention::append(const ForwardContext& context, const Buffers& buffers) const {
  const std::int64_t row_bytes = width() * bytes_of(parts_.kv);
  context.pool.parallel_for(ceil_div(context.tokens, kTokenTile), [&](std::int64_t tile, int thread) {
    float* const row = buffers.scratch + thread * Scratch::floats(width());
    for (std::int64_t t = tile * kTokenTile; t < std::min((tile + 1) * kTokenTile, context.tokens); ++t) {
      const Query& query = buffers.queries[count(t)];
      const float* const from = buffers.kv + t * width();
      context.ops.rms_norm(from, parts_.kv_norm.weight.data(), parts_.kv_norm.eps, row, parts_.latent);
      if (parts_.kv_b.activation) {
        quantize_dequantize_row(*parts_.kv_b.activation, parts_.kv_b.input_scale, {row, count(parts_.latent)});
      }
      rotate(context, t, from + parts_.latent, row + parts_.latent);
      std::byte* const block = query.state->block(parts_.layer, query.position / kBlockTokens);
      const std::int64_t slot = query.position % kBlockTokens;
      std::byte* const to = block + slot * row_bytes;
      const float scale = store_kv(parts_.kv, {row, count(parts_.latent)}, to);
      const float rotated_scale =
          store_kv(parts_.kv, {row + parts_.latent, count(parts_.rotary)}, to + parts_.latent * bytes_of(parts_.kv));
      if (parts_.kv != KvType::int8) continue;
      auto* const scales = reinterpret_cast<float*>(block + kBlockTokens * row_bytes);
      scales[2 * slot] = scale;
      scales[2 * slot + 1] = rotated_scale;
    }
  });
}

const float* LatentAttention::rows_of(const ForwardContext& context, std::byte* block, std::int64_t positions,
                                      float* room) const {
  switch (parts_.kv) {
    case KvType::f32:
      return reinterpret_cast<const float*>(block);
    case KvType::bf16:
      context.ops.widen_bf16(reinterpret_cast<const std::uint16_t*>(block), room, positions * width());
      break;
    case KvType::int8: {
      const auto* const scales = reinterpret_cast<const float*>(block + kBlockTokens * width());
      for (std::int64_t i = 0; i < positions; ++i) {
        const auto* const codes = reinterpret_cast<const std::int8_t*>(block) + i * width();
        context.ops.widen_int8(scales[2 * i], codes, room + i * width(), parts_.latent);
        context.ops.widen_int8(scales[2 * i + 1], codes + parts_.latent, room + i * width() + parts_.latent,
                               parts_.rotary);
      }
      break;
    }
  }
  return room;
}

void LatentAttention::absorb(const ForwardContext& context, const Chunk& chunk, const Buffers& buffers) const {
  const std::int64_t heads = parts_.heads;
  const float* const q = buffers.q + chunk.begin * heads * query_width();
  const float* const keys = floats(parts_.kv_b.keys);
  context.pool.parallel_for(ceil_div(chunk.tokens, kProductTokens) * heads, [&](std::int64_t task, int) {
    const std::int64_t head = task % heads;
    const std::int64_t first = task / heads * kProductTokens;
    const std::int64_t tokens = std::min(kProductTokens, chunk.tokens - first);
    const float* const from = q + (first * heads + head) * query_width();
    float* const to = buffers.absorbed + (first * heads + head) * width();
    context.ops.gemm(tokens, parts_.latent, parts_.nope, from, heads * query_width(),
                     keys + head * parts_.nope * parts_.latent, parts_.latent, to, heads * width(), false, nullptr);
    for (std::int64_t t = 0; t < tokens; ++t) {
      rotate(context, chunk.begin + first + t, from + t * heads * query_width() + parts_.nope,
             to + t * heads * width() + parts_.latent);
    }
  });
}

void LatentAttention::attend(const ForwardContext& context, const Chunk& chunk, const Buffers& buffers) const {
  const int threads = context.pool.threads();
  // Fewer heads a task where there would be too few tasks for the threads; the results do not depend on it.
  const std::int64_t share = ceil_div(chunk.tokens * parts_.heads, std::int64_t{4} * threads);
  const std::int64_t tile = std::clamp(share, kLeastHeads, kMostHeads);
  const std::int64_t tasks = chunk.tokens * ceil_div(parts_.heads, tile);
  const auto is_long = [](const Query& query) { return query.position >= kSectionBlocks * kBlockTokens; };
  const auto queries = buffers.queries.subspan(count(chunk.begin), count(chunk.tokens));
  if (threads > 1 && tasks < threads * kSectionsPerThread && std::any_of(queries.begin(), queries.end(), is_long)) {
    attend_sections(context, chunk, buffers);
  } else {
    attend_heads(context, chunk, tile, buffers);
  }
}

void LatentAttention::attend_heads(const ForwardContext& context, const Chunk& chunk, std::int64_t tile,
                                   const Buffers& buffers) const {
  const std::int64_t tiles = ceil_div(parts_.heads, tile);
  context.pool.parallel_for(chunk.tokens * tiles, [&](std::int64_t task, int thread) {
    // Late queries see more keys; handing them out first keeps the end of the loop short.
    const std::int64_t token = chunk.tokens - 1 - task / tiles;
    const std::int64_t head = task % tiles * tile;
    const std::int64_t heads = std::min(tile, parts_.heads - head);
    Scratch scratch(buffers.scratch + thread * Scratch::floats(width()), heads, width());
    float* const memory = buffers.sums + 2 * thread * Sums::floats(parts_.latent);
    Sums sums(memory, heads, parts_.latent);
    Sums added(memory + Sums::floats(parts_.latent), heads, parts_.latent);
    Section section{.query = &buffers.queries[count(chunk.begin + token)],
                    .rows = buffers.absorbed + (token * parts_.heads + head) * width(),
                    .heads = heads};
    const std::int64_t end = section.query->position / kBlockTokens + 1;
    for (; section.first < end; section.first += kSectionBlocks) {
      section.end = std::min(end, section.first + kSectionBlocks);
      attend_section(context, section, scratch, added);
      merge(context, added, section.first == 0, sums);
    }
    finish(context, sums, section.rows);
  });
}

void LatentAttention::attend_sections(const ForwardContext& context, const Chunk& chunk, const Buffers& buffers) const {
  const std::int64_t sums_floats = Sums::floats(parts_.latent);
  const std::int64_t slots = context.pool.threads() * kSectionsPerThread;
  const auto sums_at = [&](std::int64_t slot, std::int64_t heads) {
    return Sums(buffers.sums + slot * sums_floats, heads, parts_.latent);
  };
  for (std::int64_t token = 0; token < chunk.tokens; ++token) {
    const Query& query = buffers.queries[count(chunk.begin + token)];
    const std::int64_t end = query.position / kBlockTokens + 1;
    for (std::int64_t head = 0; head < parts_.heads; head += kMostHeads) {
      Section whole{.query = &query,
                    .rows = buffers.absorbed + (token * parts_.heads + head) * width(),
                    .heads = std::min(kMostHeads, parts_.heads - head)};
      // Behind the slots: what is merged.
      Sums sums = sums_at(slots, whole.heads);
      for (std::int64_t begin = 0; begin < end; begin += slots * kSectionBlocks) {
        const std::int64_t used = std::min(slots, ceil_div(end - begin, kSectionBlocks));
        context.pool.parallel_for(used, [&](std::int64_t slot, int thread) {
          Section section = whole;
          section.first = begin + slot * kSectionBlocks;
          section.end = std::min(end, section.first + kSectionBlocks);
          Scratch scratch(buffers.scratch + thread * Scratch::floats(width()), whole.heads, width());
          Sums own = sums_at(slot, whole.heads);
          attend_section(context, section, scratch, own);
        });
        for (std::int64_t slot = 0; slot < used; ++slot) {
          merge(context, sums_at(slot, whole.heads), begin == 0 && slot == 0, sums);
        }
      }
      finish(context, sums, whole.rows);
    }
  }
}

void LatentAttention::attend_section(const ForwardContext& context, const Section& section, Scratch& scratch,
                                     Sums& sums) const {
  transpose(section.rows, section.heads, width(), width(), parts_.scale, scratch.q);
  std::fill_n(sums.out, sums.heads * parts_.latent, 0.0F);
  std::fill_n(sums.maximum, sums.heads, kMinusInfinity);
  std::fill_n(sums.sum, sums.heads, 0.0F);
  for (std::int64_t block = section.first; block < section.end; ++block) {
    attend_block(context, *section.query, block, scratch, sums);
  }
}

void LatentAttention::merge(const ForwardContext& context, const Sums& added, bool first, Sums& sums) const {
  for (std::int64_t head = 0; head < sums.heads; ++head) {
    float* const out = sums.out + head * parts_.latent;
    float* const more = added.out + head * parts_.latent;
    if (first) {
      std::copy_n(more, parts_.latent, out);
      sums.maximum[head] = added.maximum[head];
      sums.sum[head] = added.sum[head];
      continue;
    }
    const float both = std::max(sums.maximum[head], added.maximum[head]);
    const float kept = std::exp(sums.maximum[head] - both);
    const float taken = std::exp(added.maximum[head] - both);
    if (kept != 1.0F) context.ops.scale(kept, out, parts_.latent);
    if (taken != 1.0F) context.ops.scale(taken, more, parts_.latent);
    context.ops.add(more, out, parts_.latent);
    sums.maximum[head] = both;
    sums.sum[head] = sums.sum[head] * kept + added.sum[head] * taken;
  }
}

void LatentAttention::finish(const ForwardContext& context, Sums& sums, float* rows) const {
  for (std::int64_t head = 0; head < sums.heads; ++head) {
    float* const out = rows + head * width();
    std::copy_n(sums.out + head * parts_.latent, parts_.latent, out);
    context.ops.scale(1.0F / sums.sum[head], out, parts_.latent);
  }
}

void LatentAttention::attend_block(const ForwardContext& context, const Query& query, std::int64_t block,
                                   Scratch& scratch, Sums& sums) const {
  const VectorOps& ops = context.ops;
  const std::int64_t visible = std::min(kBlockTokens, query.position + 1 - block * kBlockTokens);
  const float* const rows = rows_of(context, query.state->block(parts_.layer, block), visible, scratch.room);
  ops.gemm(visible, scratch.heads, width(), rows, width(), scratch.q, scratch.heads, scratch.transposed, scratch.heads,
           false, nullptr);
  for (std::int64_t head = 0; head < scratch.heads; ++head) {
    float* const scores = scratch.scores + head * kBlockTokens;
    for (std::int64_t i = 0; i < visible; ++i) scores[i] = scratch.transposed[i * scratch.heads + head];
    const float before = sums.maximum[head];
    sums.maximum[head] = std::max(before, ops.max(scores, visible));
    scratch.factor[head] = before - sums.maximum[head];
  }
  // All factors are one call: alone, each would wait for the whole latency of an exponential.
  ops.exp_sub_sum(0.0F, scratch.factor, scratch.heads);
  for (std::int64_t head = 0; head < scratch.heads; ++head) {
    const float factor = scratch.factor[head];
    float* const scores = scratch.scores + head * kBlockTokens;
    sums.sum[head] = sums.sum[head] * factor + ops.exp_sub_sum(sums.maximum[head], scores, visible);
    if (factor != 1.0F) ops.scale(factor, sums.out + head * parts_.latent, parts_.latent);
  }
  ops.gemm(scratch.heads, parts_.latent, visible, scratch.scores, kBlockTokens, rows, width(), sums.out, parts_.latent,
           true, nullptr);
}

void LatentAttention::project_values(const ForwardContext& context, const Chunk& chunk, const Buffers& buffers) const {
  const std::int64_t heads = parts_.heads;
  float* const out = buffers.out + chunk.begin * heads * parts_.value;
  const float* const values = floats(parts_.kv_b.values);
  context.pool.parallel_for(ceil_div(chunk.tokens, kProductTokens) * heads, [&](std::int64_t task, int) {
    const std::int64_t head = task % heads;
    const std::int64_t first = task / heads * kProductTokens;
    context.ops.gemm(std::min(kProductTokens, chunk.tokens - first), parts_.value, parts_.latent,
                     buffers.absorbed + (first * heads + head) * width(), heads * width(),
                     values + head * parts_.latent * parts_.value, parts_.value,
                     out + (first * heads + head) * parts_.value, heads * parts_.value, false, nullptr);
  });
}

}  // namespace moracle
