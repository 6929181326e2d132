// Grouped queries over paged keys and values; sections.h tells how softmax is computed. A layer's share of a block has
// keys as [kv_heads, head_dim, 64], values as [kv_heads, 64, value_size]; with int8, behind them scales of keys, then
// of values, f32 [kv_heads, 64] each.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/checked.h"
#include "base/generic/count.h"
#include "base/memory.h"
#include "kernels/cpu/ops/cpu_ops.h"
#include "kernels/cpu/ops/kv_codes.h"
#include "kernels/cpu/ops/sections.h"

namespace moracle {

namespace cpu {

namespace {

// Query rows of one task: enough to reuse a block of keys from cache, few enough to keep every core busy.
constexpr std::int64_t kTileRows = 32;

// Sections in work at a time, for each thread; below so many tasks for each thread, sections are shared out.
constexpr std::int64_t kSectionsPerThread = 8;

// One call.
class PagedAttention {
 public:
  PagedAttention(const AttentionArgs& args, const VectorOps& ops)
      : args_(args),
        shape_(args.shape),
        ops_(ops),
        group_(shape_.heads / shape_.kv_heads),
        tile_queries_(std::max<std::int64_t>(1, kTileRows / group_)) {}

  [[nodiscard]] std::size_t bytes(int threads) const {
    return bytes_taken([&](BumpArena& arena) { static_cast<void>(lay_out(arena, threads)); });
  }

  void run(const RunContext& context) {
    pool_ = &context.pool();
    BumpArena arena(context.workspace);
    Buffers buffers = lay_out(arena, pool_->threads());
    norm_and_rotate();
    append();
    std::size_t used = 0;
    for (const KvSpan& span : spans()) {
      for (std::int64_t i = 0; i < span.count; i += tile_queries_) {
        buffers.tiles[used++] = {span.table, span.begin + i, span.start + i, std::min(tile_queries_, span.count - i)};
      }
    }
    buffers.tiles = buffers.tiles.first(used);
    if (shares_sections(buffers, pool_->threads())) {
      attend_sections(buffers);
    } else {
      attend_tiles(buffers);
    }
  }

 private:
  // Queries [first, first + queries) of one sequence; `row` is the first one's place in the batch.
  struct Tile {
    const std::uint32_t* table = nullptr;
    std::int64_t row = 0;
    std::int64_t first = 0;
    std::int64_t queries = 0;
  };

  // What a tile's head computes in one go: blocks [first, end).
  struct Section {
    const Tile* tile = nullptr;
    std::int64_t kv_head = 0;
    std::int64_t first = 0;
    std::int64_t end = 0;
    bool opens = false;   // the tile's first
    bool closes = false;  // the tile's last
  };

  struct Buffers {
    float* maximum = nullptr;     // [tokens, heads]: of all merged sections' scores
    float* sum = nullptr;         // [tokens, heads]: of their exponentials
    float* scratch = nullptr;     // of all threads
    float* sums = nullptr;        // of all sections in work
    std::span<Section> sections;  // in work
    std::span<Tile> tiles;
  };

  // What one section gives; rows are (query, head of the group).
  struct Sums {
    float* out = nullptr;      // [rows, value_size], not yet divided by `sum`
    float* maximum = nullptr;  // [rows]
    float* sum = nullptr;      // [rows]

    static std::int64_t floats(std::int64_t rows, std::int64_t size) { return round_up(rows * (size + 2), 16); }
    Sums(float* at, std::int64_t rows, std::int64_t size) : out(at), maximum(out + rows * size), sum(maximum + rows) {}
  };

  // Of one thread.
  struct Scratch {
    float* q = nullptr;       // [rows, head_dim], scaled
    float* scores = nullptr;  // [rows, 64]
    float* factor = nullptr;  // [rows]: of what was summed before a block, now that the maximum has grown

    static std::int64_t floats(std::int64_t rows, std::int64_t head_dim) {
      return round_up(rows * (head_dim + kKvBlock + 1), 16);
    }
    Scratch(float* at, std::int64_t rows, std::int64_t head_dim)
        : q(at), scores(q + rows * head_dim), factor(scores + rows * kKvBlock) {}
  };

  // One head's part of a block.
  struct Share {
    std::byte* keys = nullptr;      // [head_dim, 64]
    std::byte* values = nullptr;    // [64, value_size]
    float* key_scales = nullptr;    // [64], int8 only
    float* value_scales = nullptr;  // [64], int8 only
  };

  [[nodiscard]] std::span<const KvSpan> spans() const { return {args_.spans, count(args_.span_count)}; }
  [[nodiscard]] std::byte* block_of(const std::uint32_t* table, std::int64_t index) const {
    return args_.blocks.block(table[index]);
  }
  [[nodiscard]] std::int64_t tile_rows() const { return tile_queries_ * group_; }
  // From one head's query to the next one's in q.
  [[nodiscard]] std::int64_t query_stride() const {
    return shape_.element_gate ? 2 * shape_.head_dim : shape_.head_dim;
  }

  Buffers lay_out(BumpArena& arena, int threads) const {
    const std::int64_t slots = threads * kSectionsPerThread;
    Buffers buffers;
    buffers.maximum = arena.take<float>(count(args_.tokens * shape_.heads)).data();
    buffers.sum = arena.take<float>(count(args_.tokens * shape_.heads)).data();
    buffers.tiles = arena.take<Tile>(count(args_.tokens));
    buffers.scratch = arena.take<float>(count(threads * Scratch::floats(tile_rows(), shape_.head_dim))).data();
    buffers.sums = arena.take<float>(count(slots * Sums::floats(tile_rows(), shape_.value_size()))).data();
    buffers.sections = arena.take<Section>(count(slots));
    return buffers;
  }

  Share share_of(std::byte* block, std::int64_t kv_head) const {
    const std::int64_t key_bytes = shape_.head_dim * kKvBlock * bytes_of(args_.kv);
    const std::int64_t value_bytes = shape_.value_size() * kKvBlock * bytes_of(args_.kv);
    Share share;
    share.keys = block + kv_head * key_bytes;
    share.values = block + shape_.kv_heads * key_bytes + kv_head * value_bytes;
    if (args_.kv == KvType::int8) {
      auto* const scales = reinterpret_cast<float*>(block + shape_.kv_heads * (key_bytes + value_bytes));
      share.key_scales = scales + kv_head * kKvBlock;
      share.value_scales = scales + (shape_.kv_heads + kv_head) * kKvBlock;
    }
    return share;
  }

  void norm_and_rotate() const {
    const std::int64_t dim = shape_.head_dim;
    const RopeTable& rope = args_.rope;
    const std::int64_t half = rope.half;
    const auto norm_all = [&](float* vector, std::int64_t heads, std::int64_t stride, const NormArgs& norm) {
      const std::int64_t norm_step = norm.size == dim ? stride : norm.size;
      for (std::int64_t at = 0; norm.size != 0 && at < heads * stride; at += norm_step) {
        ops_.rms_norm(vector + at, norm.weight, norm.eps, vector + at, norm.size);
      }
    };
    const auto prepare = [&](std::int64_t token, float* vector, std::int64_t heads, std::int64_t stride,
                             const NormArgs& norm) {
      if (!shape_.norm_behind_rope) norm_all(vector, heads, stride, norm);
      for (std::int64_t head = 0; head < heads; ++head) {
        float* const first = vector + head * stride;
        clip(first, dim);
        if (half != 0) rotate(first, rope.cos + token * half, rope.sin + token * half, half);
      }
      if (shape_.norm_behind_rope) norm_all(vector, heads, stride, norm);
      if (shape_.qk_eps != 0.0F) divide_by_root(shape_.qk_eps, dim, vector, heads, stride);
    };
    pool_->parallel_for(ceil_div(args_.tokens, kTokenTile), [&](std::int64_t tile, int) {
      for (std::int64_t t = tile * kTokenTile; t < std::min((tile + 1) * kTokenTile, args_.tokens); ++t) {
        prepare(t, args_.q + t * shape_.heads * query_stride(), shape_.heads, query_stride(), args_.q_norm);
        prepare(t, args_.k + t * shape_.kv_heads * dim, shape_.kv_heads, dim, args_.k_norm);
        prepare_values(args_.v + t * shape_.value_width());
      }
    });
  }

  void rotate(float* head, const float* cos, const float* sin, std::int64_t half) const {
    if (!shape_.pairwise) return ops_.rotate(head, head + half, cos, sin, half);
    for (std::int64_t i = 0; i < half; ++i) {
      const float first = head[2 * i];
      const float second = head[2 * i + 1];
      head[2 * i] = first * cos[i] - second * sin[i];
      head[2 * i + 1] = second * cos[i] + first * sin[i];
    }
  }

  void prepare_values(float* v) const {
    const std::int64_t size = shape_.value_size();
    clip(v, shape_.value_width());
    if (shape_.value_eps != 0.0F) divide_by_root(shape_.value_eps, size, v, shape_.kv_heads, size);
    if (shape_.value_scale != 1.0F) ops_.scale(shape_.value_scale, v, shape_.value_width());
  }

  // Heads of `dim` numbers.
  void divide_by_root(float eps, std::int64_t dim, float* vector, std::int64_t heads, std::int64_t stride) const {
    for (float* head = vector; head != vector + heads * stride; head += stride) {
      ops_.scale(1.0F / std::sqrt(ops_.dot(head, head, dim) / static_cast<float>(dim) + eps), head, dim);
    }
  }

  void clip(float* vector, std::int64_t size) const {
    if (shape_.clip == 0.0F) return;
    for (std::int64_t i = 0; i < size; ++i) vector[i] = std::clamp(vector[i], -shape_.clip, shape_.clip);
  }

  void append() const {
    const std::int64_t dim = shape_.head_dim;
    const std::int64_t size = shape_.value_size();
    pool_->parallel_for(args_.span_count * shape_.kv_heads, [&](std::int64_t task, int) {
      const KvSpan& span = args_.spans[count(task / shape_.kv_heads)];
      const std::int64_t head = task % shape_.kv_heads;
      for (std::int64_t i = 0; i < span.count; ++i) {
        const std::int64_t position = span.start + i;
        const std::int64_t slot = position % kKvBlock;
        const Share share = share_of(block_of(span.table, position / kKvBlock), head);
        const std::int64_t from = (span.begin + i) * shape_.kv_heads + head;
        const float* const key = args_.k + from * dim;
        const float* const value = args_.v + from * size;
        const std::int64_t width = bytes_of(args_.kv);
        const float key_scale = store_kv(args_.kv, {key, count(dim)}, share.keys + slot * width, kKvBlock);
        const float value_scale = store_kv(args_.kv, {value, count(size)}, share.values + slot * size * width);
        if (args_.kv != KvType::int8) continue;
        share.key_scales[slot] = key_scale;
        share.value_scales[slot] = value_scale;
      }
    });
  }

  // The oldest position that a query sees.
  std::int64_t first_visible(std::int64_t position) const {
    if (shape_.window == 0) return 0;
    if (shape_.chunked) return position / shape_.window * shape_.window;
    return std::max<std::int64_t>(0, position - shape_.window + 1);
  }

  // The tile's section with this number, counted from position 0; empty where the tile sees none of it.
  Section section(const Tile& tile, std::int64_t kv_head, std::int64_t index) const {
    const std::int64_t first = first_visible(tile.first) / kKvBlock;
    const std::int64_t end = (tile.first + tile.queries - 1) / kKvBlock + 1;
    const std::int64_t from = std::max(first, index * kSectionBlocks);
    const std::int64_t to = std::min(end, (index + 1) * kSectionBlocks);
    return {.tile = &tile, .kv_head = kv_head, .first = from, .end = to, .opens = from == first, .closes = to == end};
  }

  // Few tiles leave threads without work where contexts are long; who computes a section changes no bit.
  bool shares_sections(const Buffers& buffers, int threads) const {
    const auto tasks = std::ssize(buffers.tiles) * shape_.kv_heads;
    return threads > 1 && tasks < threads * kSectionsPerThread &&
           std::any_of(
               buffers.tiles.begin(), buffers.tiles.end(),
               [](const Tile& tile) { return tile.first + tile.queries > kSectionTokens; });
  }

  void attend_tiles(const Buffers& buffers) const {
    const std::int64_t rows = tile_rows();
    const std::int64_t dim = shape_.head_dim;
    const std::int64_t size = shape_.value_size();
    pool_->parallel_for(std::ssize(buffers.tiles) * shape_.kv_heads, [&](std::int64_t task, int thread) {
      // Late tiles see more keys; handing them out first keeps the end of the loop short.
      const Tile& tile = buffers.tiles[buffers.tiles.size() - 1 - count(task / shape_.kv_heads)];
      Scratch scratch(buffers.scratch + thread * Scratch::floats(rows, dim), rows, dim);
      Sums sums(buffers.sums + thread * Sums::floats(rows, size), rows, size);
      for (std::int64_t index = 0;; ++index) {
        const Section part = section(tile, task % shape_.kv_heads, index);
        if (part.first >= part.end) continue;  // before the window
        attend(part, scratch, sums);
        merge(part, buffers, sums);
        if (part.closes) break;
      }
    });
  }

  void attend_sections(const Buffers& buffers) const {
    const std::int64_t rows = tile_rows();
    const std::int64_t dim = shape_.head_dim;
    const auto sums_of = [&, size = shape_.value_size()](std::int64_t slot) {
      return Sums(buffers.sums + slot * Sums::floats(rows, size), rows, size);
    };
    std::size_t used = 0;
    const auto compute = [&] {
      pool_->parallel_for(static_cast<std::int64_t>(used), [&](std::int64_t slot, int thread) {
        Scratch scratch(buffers.scratch + thread * Scratch::floats(rows, dim), rows, dim);
        Sums sums = sums_of(slot);
        attend(buffers.sections[count(slot)], scratch, sums);
      });
      // The sections of one head of one tile lie side by side: whoever meets the first of them merges all.
      pool_->parallel_for(static_cast<std::int64_t>(used), [&](std::int64_t slot, int) {
        const auto same = [&](std::size_t a, std::size_t b) {
          return buffers.sections[a].tile == buffers.sections[b].tile &&
                 buffers.sections[a].kv_head == buffers.sections[b].kv_head;
        };
        const std::size_t first = count(slot);
        if (first > 0 && same(first - 1, first)) return;
        for (std::size_t i = first; i < used && same(first, i); ++i) {
          merge(buffers.sections[i], buffers, sums_of(static_cast<std::int64_t>(i)));
        }
      });
      used = 0;
    };
    for (const Tile& tile : buffers.tiles) {
      for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
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

  // Of all scores of the query at this position.
  float score_scale(std::int64_t position) const {
    const float scale = shape_.scale != 0.0F ? shape_.scale : 1.0F / std::sqrt(static_cast<float>(shape_.head_dim));
    return scale * factor_at(shape_.position_scale, position);
  }

  void attend(const Section& section, Scratch& scratch, Sums& sums) const {
    const Tile& tile = *section.tile;
    const std::int64_t dim = shape_.head_dim;
    const std::int64_t rows = tile.queries * group_;
    for (std::int64_t query = 0; query < tile.queries; ++query) {
      for (std::int64_t i = 0; i < group_; ++i) {
        const float* const from =
            args_.q + ((tile.row + query) * shape_.heads + section.kv_head * group_ + i) * query_stride();
        std::copy_n(from, dim, scratch.q + (query * group_ + i) * dim);
      }
      ops_.scale(score_scale(tile.first + query), scratch.q + query * group_ * dim, group_ * dim);
    }
    std::fill_n(sums.out, rows * shape_.value_size(), 0.0F);
    std::fill_n(sums.maximum, rows, kMinusInfinity);
    std::fill_n(sums.sum, rows, 0.0F);
    for (std::int64_t block = section.first; block < section.end; ++block) {
      attend_block(section, block, scratch, sums);
    }
  }

  // C[m, n] = A[m, k] B[k, n] with keys or values as B, row after row.
  void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda, const std::byte* b,
                float* c, bool accumulate, const std::byte* next) const {
    const auto run = [&](auto gemm, auto* type) {
      using T = decltype(type);
      gemm(m, n, k, a, lda, reinterpret_cast<T>(b), n, c, n, accumulate, reinterpret_cast<T>(next));
    };
    switch (args_.kv) {
      case KvType::f32:
        return run(ops_.gemm, static_cast<const float*>(nullptr));
      case KvType::bf16:
        return run(ops_.gemm_bf16, static_cast<const std::uint16_t*>(nullptr));
      case KvType::int8:
        return run(ops_.gemm_int8, static_cast<const std::int8_t*>(nullptr));
    }
  }

  void attend_block(const Section& section, std::int64_t block, Scratch& scratch, Sums& sums) const {
    const Tile& tile = *section.tile;
    const std::int64_t dim = shape_.head_dim;
    const std::int64_t size = shape_.value_size();
    const std::int64_t rows = tile.queries * group_;
    const Share share = share_of(block_of(tile.table, block), section.kv_head);
    const std::int64_t base = block * kKvBlock;
    const std::int64_t stored = std::min(kKvBlock, tile.first + tile.queries - base);
    // Keys and values come from memory, or of a long context from L3: each product prefetches what the next one reads.
    const std::byte* next_keys = nullptr;
    if (block + 1 < section.end) next_keys = share_of(block_of(tile.table, block + 1), section.kv_head).keys;

    multiply(rows, kKvBlock, dim, scratch.q, dim, share.keys, scratch.scores, false, share.values);
    // Visible positions of this block: [first, second).
    const auto visible = [&](std::int64_t row) {
      const std::int64_t position = tile.first + row / group_;
      const std::int64_t end = std::clamp<std::int64_t>(position + 1 - base, 0, kKvBlock);
      return std::pair{std::clamp<std::int64_t>(first_visible(position) - base, 0, end), end};
    };
    // The factors of all rows are one call: alone, each would wait for the whole latency of an exponential.
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto [begin, end] = visible(row);
      scratch.factor[row] = 0.0F;
      if (begin == end) continue;
      float* const scores = scratch.scores + row * kKvBlock + begin;
      if (share.key_scales != nullptr) ops_.multiply(share.key_scales + begin, scores, end - begin);
      const float before = sums.maximum[row];
      sums.maximum[row] = std::max(before, ops_.max(scores, end - begin));
      scratch.factor[row] = before - sums.maximum[row];
    }
    ops_.exp_sub_sum(0.0F, scratch.factor, rows);
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto [begin, end] = visible(row);
      float* const scores = scratch.scores + row * kKvBlock;
      std::fill_n(scores, begin, 0.0F);
      std::fill(scores + end, scores + kKvBlock, 0.0F);
      if (begin == end) continue;
      const float factor = scratch.factor[row];
      sums.sum[row] = sums.sum[row] * factor + ops_.exp_sub_sum(sums.maximum[row], scores + begin, end - begin);
      if (factor != 1.0F) ops_.scale(factor, sums.out + row * size, size);
      if (share.value_scales != nullptr) ops_.multiply(share.value_scales + begin, scores + begin, end - begin);
    }
    multiply(rows, size, stored, scratch.scores, kKvBlock, share.values, sums.out, true, next_keys);
  }

  void gate(std::int64_t token, std::int64_t head, float* out) const {
    const std::int64_t size = shape_.value_size();
    const std::int64_t index = token * shape_.heads + head;
    if (shape_.element_gate) ops_.sigmoid_mul(args_.q + index * query_stride() + size, out, out, size);
    if (args_.head_gate != nullptr) ops_.scale(gate_of(args_.head_gate[index]), out, size);
    if (!shape_.wide_gate) return;
    const float* const gates = args_.wide_gate + index * size;
    for (std::int64_t i = 0; i < size; ++i) out[i] *= gate_of(gates[i]);
  }

  float gate_of(float x) const { return shape_.softplus_gates ? softplus(x) : sigmoid(x); }

  void merge(const Section& section, const Buffers& buffers, const Sums& sums) const {
    const Tile& tile = *section.tile;
    const std::int64_t size = shape_.value_size();
    for (std::int64_t row = 0; row < tile.queries * group_; ++row) {
      const std::int64_t token = tile.row + row / group_;
      const std::int64_t head = section.kv_head * group_ + row % group_;
      float* const out = args_.out + (token * shape_.heads + head) * size;
      float& maximum = buffers.maximum[token * shape_.heads + head];
      float& sum = buffers.sum[token * shape_.heads + head];
      float* const added = sums.out + row * size;
      const float largest = sums.maximum[row];
      // A sum of 0: the row sees nothing there.
      if (section.opens || sum == 0.0F) {
        std::copy_n(added, size, out);
        maximum = largest;
        sum = sums.sum[row];
      } else if (sums.sum[row] != 0.0F) {
        merge_sums(ops_, size, added, largest, sums.sum[row], out, maximum, sum);
      }
      if (section.closes) finish(buffers, token, head);
    }
  }

  void finish(const Buffers& buffers, std::int64_t token, std::int64_t head) const {
    const std::int64_t size = shape_.value_size();
    const float largest = buffers.maximum[token * shape_.heads + head];
    float factor = 1.0F;
    float sum = buffers.sum[token * shape_.heads + head];
    if (args_.sinks != nullptr) {
      // The sink takes part in the softmax and has no value.
      const float sink = args_.sinks[head];
      const float maximum = std::max(largest, sink);
      factor = std::exp(largest - maximum);
      sum = sum * factor + std::exp(sink - maximum);
    }
    float* const out = args_.out + (token * shape_.heads + head) * size;
    ops_.scale(factor / sum, out, size);
    gate(token, head, out);
  }

  const AttentionArgs& args_;
  const AttentionShape& shape_;
  const VectorOps& ops_;
  ThreadPool* pool_ = nullptr;
  std::int64_t group_;         // query heads that share a key head
  std::int64_t tile_queries_;  // positions of one task
};

}  // namespace

std::int64_t CpuOps::block_bytes(const AttentionShape& shape, KvType kv) const {
  const std::int64_t scales = kv == KvType::int8 ? 2 * shape.kv_heads * kKvBlock : 0;
  return (shape.kv_width() + shape.value_width()) * kKvBlock * bytes_of(kv) + scales * std::int64_t{sizeof(float)};
}

std::size_t CpuOps::workspace(const AttentionArgs& args, int threads) const {
  return PagedAttention(args, vector_).bytes(threads);
}

void CpuOps::attention(const RunContext& context, const AttentionArgs& args) const {
  PagedAttention(args, vector_).run(context);
}

}  // namespace cpu

}  // namespace moracle
