// A layer's share of a block has 64 positions of [kv_lora_rank | qk_rope_head_dim]; with int8, behind them two f32
// scales for each position; then keys of the indexer, where the layer has one. Softmax is computed as sections.h tells.
// Multi-head latent attention: DeepSeek-V2, arXiv 2405.04434.
#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "base/generic/count.h"
#include "base/memory.h"
#include "kernels/cpu/ops/cpu_ops.h"
#include "kernels/cpu/ops/kv_codes.h"
#include "kernels/cpu/ops/sections.h"
#include "kernels/input_quant.h"
#include "scheme/activation_codes.h"

namespace moracle {

namespace cpu {

namespace {

// Tokens whose absorbed queries exist at a time: a head's query is as wide as the latent, so all of a long prompt would
// take gigabytes. Enough to make reading the projection of every head worth it.
constexpr std::int64_t kChunkTokens = 128;
// Tokens of one product with a head's projection.
constexpr std::int64_t kProductTokens = 32;
// Heads of one query that share a block of latents from cache, at least and at most.
constexpr std::int64_t kLeastHeads = 8;
constexpr std::int64_t kMostHeads = 32;
// Sections in work at a time, for each thread; below so many tasks for each thread, sections are shared out.
constexpr std::int64_t kSectionsPerThread = 4;

// to[cols, rows] = from[rows, cols], each value times `factor`.
void transpose(const float* from, std::int64_t rows, std::int64_t cols, std::int64_t stride, float factor, float* to) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) to[c * rows + r] = from[r * stride + c] * factor;
  }
}

// One call.
class PagedLatents {
 public:
  PagedLatents(const LatentAttentionArgs& args, const VectorOps& ops)
      : args_(args), shape_(args.shape), input_(key_of(args.input)), ops_(ops) {}

  [[nodiscard]] std::size_t bytes(int threads) const {
    return bytes_taken([&](BumpArena& arena) { static_cast<void>(lay_out(arena, threads)); });
  }

  void run(const RunContext& context) {
    pool_ = &context.pool();
    BumpArena arena(context.workspace);
    const Buffers buffers = lay_out(arena, pool_->threads());
    std::fill(buffers.queries.begin(), buffers.queries.end(), Query{});
    for (const KvSpan& span : std::span(args_.spans, count(args_.span_count))) {
      for (std::int64_t i = 0; i < span.count; ++i) {
        buffers.queries[count(span.begin + i)] = query(span, i);
      }
    }
    append(buffers);
    for (std::int64_t begin = 0; begin < args_.tokens; begin += kChunkTokens) {
      const Chunk chunk{.begin = begin, .tokens = std::min(kChunkTokens, args_.tokens - begin)};
      absorb(chunk, buffers);
      attend(chunk, buffers);
      project_values(chunk, buffers);
    }
  }

 private:
  // One token of the batch.
  struct Query {
    const std::uint32_t* table = nullptr;  // null: of no span
    std::int64_t position = 0;
    std::int64_t visible = 0;                // positions that it sees,
    const std::int32_t* selected = nullptr;  // which are these, or the first ones
  };

  struct Buffers {
    float* absorbed = nullptr;  // [chunk, heads, width()]: queries, then in their place the attended latents
    float* scratch = nullptr;   // of all threads
    float* sums = nullptr;      // of all sections in work, and twice of all threads
    std::span<Query> queries;   // [tokens]
  };

  // Tokens [begin, begin + tokens) of the batch.
  struct Chunk {
    std::int64_t begin = 0;
    std::int64_t tokens = 0;
  };

  // What some heads of one query compute in one go: blocks [first, end).
  struct Section {
    const Query* query = nullptr;
    float* rows = nullptr;  // the heads' absorbed queries
    std::int64_t heads = 0;
    std::int64_t first = 0;
    std::int64_t end = 0;
  };

  // What one section gives, or several that are merged.
  struct Sums {
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
  struct Scratch {
    std::int64_t heads = 0;
    float* q = nullptr;           // [width, heads], scaled
    float* transposed = nullptr;  // [64, heads]
    float* scores = nullptr;      // [heads, 64]
    float* factor = nullptr;      // [heads]: of what was summed before a block, now that the maximum has grown
    float* room = nullptr;        // [64, width]

    static std::int64_t floats(std::int64_t width) {
      return round_up(kMostHeads * (width + 2 * kKvBlock + 1) + kKvBlock * width, 16);
    }
    Scratch(float* at, std::int64_t heads_, std::int64_t width)
        : heads(heads_),
          q(at),
          transposed(q + heads * width),
          scores(transposed + heads * kKvBlock),
          factor(scores + heads * kKvBlock),
          room(factor + heads) {}
  };

  // Numbers of one position's state, and of one head's query once it is absorbed: latent, then rotated part.
  [[nodiscard]] std::int64_t width() const { return shape_.latent_width(); }
  [[nodiscard]] std::int64_t query_width() const { return shape_.q_head_dim(); }
  [[nodiscard]] std::byte* block_of(const Query& query, std::int64_t index) const {
    return args_.blocks.block(query.table[index]);
  }

  [[nodiscard]] Query query(const KvSpan& span, std::int64_t index) const {
    Query query{.table = span.table, .position = span.start + index};
    query.visible = query.position + 1;
    if (shape_.top_k == 0 || query.visible <= shape_.top_k) return query;
    query.visible = shape_.top_k;
    query.selected = args_.selected + (span.begin + index) * shape_.top_k;
    return query;
  }

  Buffers lay_out(BumpArena& arena, int threads) const {
    const std::int64_t chunk = std::min(args_.tokens, kChunkTokens);
    Buffers buffers;
    buffers.absorbed = arena.take<float>(count(chunk * shape_.heads * width())).data();
    buffers.scratch = arena.take<float>(count(threads * Scratch::floats(width()))).data();
    buffers.sums =
        arena.take<float>(count(threads * (kSectionsPerThread + 2) * Sums::floats(shape_.kv_lora_rank))).data();
    buffers.queries = arena.take<Query>(count(args_.tokens));
    return buffers;
  }

  // Rotated pairs go half a head apart, on queries and keys alike, which leaves their products as they are.
  void rotate(std::int64_t token, const float* from, float* to) const {
    const RopeTable& rope = args_.rope;
    const std::int64_t half = shape_.qk_rope_head_dim / 2;
    if (!shape_.rotated) {
      std::copy_n(from, shape_.qk_rope_head_dim, to);
      return;
    }
    if (shape_.interleaved) {
      for (std::int64_t i = 0; i < half; ++i) {
        to[i] = from[2 * i];
        to[half + i] = from[2 * i + 1];
      }
    } else {
      std::copy_n(from, shape_.qk_rope_head_dim, to);
    }
    ops_.rotate(to, to + half, rope.cos + token * half, rope.sin + token * half, half);
  }

  void append(const Buffers& buffers) const {
    const std::int64_t row_bytes = width() * bytes_of(args_.kv);
    pool_->parallel_for(ceil_div(args_.tokens, kTokenTile), [&](std::int64_t tile, int thread) {
      float* const row = buffers.scratch + thread * Scratch::floats(width());
      for (std::int64_t t = tile * kTokenTile; t < std::min((tile + 1) * kTokenTile, args_.tokens); ++t) {
        const Query& query = buffers.queries[count(t)];
        if (query.table == nullptr) continue;
        const float* const from = args_.latents + t * width();
        ops_.rms_norm(from, args_.kv_norm.weight, args_.kv_norm.eps, row, shape_.kv_lora_rank);
        if (input_) quantize_dequantize_row(*input_, args_.input.scale, {row, count(shape_.kv_lora_rank)});
        rotate(t, from + shape_.kv_lora_rank, row + shape_.kv_lora_rank);
        std::byte* const block = block_of(query, query.position / kKvBlock);
        const std::int64_t slot = query.position % kKvBlock;
        std::byte* const to = block + slot * row_bytes;
        const float scale = store_kv(args_.kv, {row, count(shape_.kv_lora_rank)}, to);
        const float rotated_scale = store_kv(args_.kv, {row + shape_.kv_lora_rank, count(shape_.qk_rope_head_dim)},
                                             to + shape_.kv_lora_rank * bytes_of(args_.kv));
        if (args_.kv != KvType::int8) continue;
        auto* const scales = reinterpret_cast<float*>(block + kKvBlock * row_bytes);
        scales[2 * slot] = scale;
        scales[2 * slot + 1] = rotated_scale;
      }
    });
  }

  const float* rows_of(std::byte* block, std::int64_t positions, float* room) const {
    switch (args_.kv) {
      case KvType::f32:
        return reinterpret_cast<const float*>(block);
      case KvType::bf16:
        ops_.widen_bf16(reinterpret_cast<const std::uint16_t*>(block), room, positions * width());
        break;
      case KvType::int8: {
        const auto* const scales = reinterpret_cast<const float*>(block + kKvBlock * width());
        for (std::int64_t i = 0; i < positions; ++i) {
          const auto* const codes = reinterpret_cast<const std::int8_t*>(block) + i * width();
          ops_.widen_int8(scales[2 * i], codes, room + i * width(), shape_.kv_lora_rank);
          ops_.widen_int8(scales[2 * i + 1], codes + shape_.kv_lora_rank, room + i * width() + shape_.kv_lora_rank,
                          shape_.qk_rope_head_dim);
        }
        break;
      }
    }
    return room;
  }

  // The rows of chosen positions, side by side in `room`.
  const float* chosen_rows(const Query& query, std::span<const std::int32_t> positions, float* room) const {
    float* to = room;
    for (const std::int32_t position : positions) {
      std::byte* const block = block_of(query, position / kKvBlock);
      const std::int64_t slot = position % kKvBlock;
      const std::byte* const row = block + slot * width() * bytes_of(args_.kv);
      switch (args_.kv) {
        case KvType::f32:
          std::copy_n(reinterpret_cast<const float*>(row), width(), to);
          break;
        case KvType::bf16:
          ops_.widen_bf16(reinterpret_cast<const std::uint16_t*>(row), to, width());
          break;
        case KvType::int8: {
          const auto* const scales = reinterpret_cast<const float*>(block + kKvBlock * width());
          const auto* const codes = reinterpret_cast<const std::int8_t*>(row);
          ops_.widen_int8(scales[2 * slot], codes, to, shape_.kv_lora_rank);
          ops_.widen_int8(scales[2 * slot + 1], codes + shape_.kv_lora_rank, to + shape_.kv_lora_rank,
                          shape_.qk_rope_head_dim);
          break;
        }
      }
      to += width();
    }
    return room;
  }

  void absorb(const Chunk& chunk, const Buffers& buffers) const {
    const std::int64_t heads = shape_.heads;
    const float* const q = args_.q + chunk.begin * heads * query_width();
    const float* const keys = args_.keys;
    pool_->parallel_for(ceil_div(chunk.tokens, kProductTokens) * heads, [&](std::int64_t task, int) {
      const std::int64_t head = task % heads;
      const std::int64_t first = task / heads * kProductTokens;
      const std::int64_t tokens = std::min(kProductTokens, chunk.tokens - first);
      const float* const from = q + (first * heads + head) * query_width();
      float* const to = buffers.absorbed + (first * heads + head) * width();
      ops_.gemm(tokens, shape_.kv_lora_rank, shape_.qk_nope_head_dim, from, heads * query_width(),
                keys + head * shape_.qk_nope_head_dim * shape_.kv_lora_rank, shape_.kv_lora_rank, to, heads * width(),
                false, nullptr);
      for (std::int64_t t = 0; t < tokens; ++t) {
        rotate(chunk.begin + first + t, from + t * heads * query_width() + shape_.qk_nope_head_dim,
               to + t * heads * width() + shape_.kv_lora_rank);
      }
    });
  }

  void attend(const Chunk& chunk, const Buffers& buffers) const {
    const int threads = pool_->threads();
    // Fewer heads a task where there would be too few tasks for the threads; the results do not depend on it.
    const std::int64_t share = ceil_div(chunk.tokens * shape_.heads, std::int64_t{4} * threads);
    const std::int64_t tile = std::clamp(share, kLeastHeads, kMostHeads);
    const std::int64_t tasks = chunk.tokens * ceil_div(shape_.heads, tile);
    const auto is_long = [](const Query& query) { return query.visible > kSectionBlocks * kKvBlock; };
    const auto queries = buffers.queries.subspan(count(chunk.begin), count(chunk.tokens));
    if (threads > 1 && tasks < threads * kSectionsPerThread && std::any_of(queries.begin(), queries.end(), is_long)) {
      attend_sections(chunk, buffers);
    } else {
      attend_heads(chunk, tile, buffers);
    }
  }

  void attend_heads(const Chunk& chunk, std::int64_t tile, const Buffers& buffers) const {
    const std::int64_t tiles = ceil_div(shape_.heads, tile);
    pool_->parallel_for(chunk.tokens * tiles, [&](std::int64_t task, int thread) {
      // Late queries see more keys; handing them out first keeps the end of the loop short.
      const std::int64_t token = chunk.tokens - 1 - task / tiles;
      if (buffers.queries[count(chunk.begin + token)].table == nullptr) return;
      const std::int64_t head = task % tiles * tile;
      const std::int64_t heads = std::min(tile, shape_.heads - head);
      Scratch scratch(buffers.scratch + thread * Scratch::floats(width()), heads, width());
      float* const memory = buffers.sums + 2 * thread * Sums::floats(shape_.kv_lora_rank);
      Sums sums(memory, heads, shape_.kv_lora_rank);
      Sums added(memory + Sums::floats(shape_.kv_lora_rank), heads, shape_.kv_lora_rank);
      Section section{.query = &buffers.queries[count(chunk.begin + token)],
                      .rows = buffers.absorbed + (token * shape_.heads + head) * width(),
                      .heads = heads};
      const std::int64_t end = ceil_div(section.query->visible, kKvBlock);
      for (; section.first < end; section.first += kSectionBlocks) {
        section.end = std::min(end, section.first + kSectionBlocks);
        attend_section(section, scratch, added);
        merge(added, section.first == 0, sums);
      }
      finish(sums, section.rows);
    });
  }

  void attend_sections(const Chunk& chunk, const Buffers& buffers) const {
    const std::int64_t sums_floats = Sums::floats(shape_.kv_lora_rank);
    const std::int64_t slots = pool_->threads() * kSectionsPerThread;
    const auto sums_at = [&](std::int64_t slot, std::int64_t heads) {
      return Sums(buffers.sums + slot * sums_floats, heads, shape_.kv_lora_rank);
    };
    for (std::int64_t token = 0; token < chunk.tokens; ++token) {
      const Query& query = buffers.queries[count(chunk.begin + token)];
      if (query.table == nullptr) continue;
      const std::int64_t end = ceil_div(query.visible, kKvBlock);
      for (std::int64_t head = 0; head < shape_.heads; head += kMostHeads) {
        Section whole{.query = &query,
                      .rows = buffers.absorbed + (token * shape_.heads + head) * width(),
                      .heads = std::min(kMostHeads, shape_.heads - head)};
        // Behind the slots: what is merged.
        Sums sums = sums_at(slots, whole.heads);
        for (std::int64_t begin = 0; begin < end; begin += slots * kSectionBlocks) {
          const std::int64_t used = std::min(slots, ceil_div(end - begin, kSectionBlocks));
          pool_->parallel_for(used, [&](std::int64_t slot, int thread) {
            Section section = whole;
            section.first = begin + slot * kSectionBlocks;
            section.end = std::min(end, section.first + kSectionBlocks);
            Scratch scratch(buffers.scratch + thread * Scratch::floats(width()), whole.heads, width());
            Sums own = sums_at(slot, whole.heads);
            attend_section(section, scratch, own);
          });
          for (std::int64_t slot = 0; slot < used; ++slot) {
            merge(sums_at(slot, whole.heads), begin == 0 && slot == 0, sums);
          }
        }
        finish(sums, whole.rows);
      }
    }
  }

  void attend_section(const Section& section, Scratch& scratch, Sums& sums) const {
    const float scale = shape_.scale * factor_at(shape_.position_scale, section.query->position);
    transpose(section.rows, section.heads, width(), width(), scale, scratch.q);
    std::fill_n(sums.out, sums.heads * shape_.kv_lora_rank, 0.0F);
    std::fill_n(sums.maximum, sums.heads, kMinusInfinity);
    std::fill_n(sums.sum, sums.heads, 0.0F);
    for (std::int64_t block = section.first; block < section.end; ++block) {
      attend_block(*section.query, block, scratch, sums);
    }
  }

  void merge(const Sums& added, bool first, Sums& sums) const {
    for (std::int64_t head = 0; head < sums.heads; ++head) {
      float* const out = sums.out + head * shape_.kv_lora_rank;
      float* const more = added.out + head * shape_.kv_lora_rank;
      if (first) {
        std::copy_n(more, shape_.kv_lora_rank, out);
        sums.maximum[head] = added.maximum[head];
        sums.sum[head] = added.sum[head];
        continue;
      }
      merge_sums(ops_, shape_.kv_lora_rank, more, added.maximum[head], added.sum[head], out, sums.maximum[head],
                 sums.sum[head]);
    }
  }

  void finish(Sums& sums, float* rows) const {
    for (std::int64_t head = 0; head < sums.heads; ++head) {
      float* const out = rows + head * width();
      std::copy_n(sums.out + head * shape_.kv_lora_rank, shape_.kv_lora_rank, out);
      ops_.scale(1.0F / sums.sum[head], out, shape_.kv_lora_rank);
    }
  }

  void attend_block(const Query& query, std::int64_t block, Scratch& scratch, Sums& sums) const {
    const std::int64_t visible = std::min(kKvBlock, query.visible - block * kKvBlock);
    const float* const rows =
        query.selected == nullptr
            ? rows_of(block_of(query, block), visible, scratch.room)
            : chosen_rows(query, {query.selected + block * kKvBlock, count(visible)}, scratch.room);
    ops_.gemm(visible, scratch.heads, width(), rows, width(), scratch.q, scratch.heads, scratch.transposed,
              scratch.heads, false, nullptr);
    for (std::int64_t head = 0; head < scratch.heads; ++head) {
      float* const scores = scratch.scores + head * kKvBlock;
      for (std::int64_t i = 0; i < visible; ++i) scores[i] = scratch.transposed[i * scratch.heads + head];
      const float before = sums.maximum[head];
      sums.maximum[head] = std::max(before, ops_.max(scores, visible));
      scratch.factor[head] = before - sums.maximum[head];
    }
    // All factors are one call: alone, each would wait for the whole latency of an exponential.
    ops_.exp_sub_sum(0.0F, scratch.factor, scratch.heads);
    for (std::int64_t head = 0; head < scratch.heads; ++head) {
      const float factor = scratch.factor[head];
      float* const scores = scratch.scores + head * kKvBlock;
      sums.sum[head] = sums.sum[head] * factor + ops_.exp_sub_sum(sums.maximum[head], scores, visible);
      if (factor != 1.0F) ops_.scale(factor, sums.out + head * shape_.kv_lora_rank, shape_.kv_lora_rank);
    }
    ops_.gemm(scratch.heads, shape_.kv_lora_rank, visible, scratch.scores, kKvBlock, rows, width(), sums.out,
              shape_.kv_lora_rank, true, nullptr);
  }

  void project_values(const Chunk& chunk, const Buffers& buffers) const {
    const std::int64_t heads = shape_.heads;
    float* const out = args_.out + chunk.begin * heads * shape_.v_head_dim;
    const float* const values = args_.values;
    pool_->parallel_for(ceil_div(chunk.tokens, kProductTokens) * heads, [&](std::int64_t task, int) {
      const std::int64_t head = task % heads;
      const std::int64_t first = task / heads * kProductTokens;
      const std::int64_t tokens = std::min(kProductTokens, chunk.tokens - first);
      float* const to = out + (first * heads + head) * shape_.v_head_dim;
      ops_.gemm(tokens, shape_.v_head_dim, shape_.kv_lora_rank, buffers.absorbed + (first * heads + head) * width(),
                heads * width(), values + head * shape_.kv_lora_rank * shape_.v_head_dim, shape_.v_head_dim, to,
                heads * shape_.v_head_dim, false, nullptr);
      if (!shape_.head_gate) return;
      const float* const gate = args_.gate + (chunk.begin + first) * heads + head;
      for (std::int64_t t = 0; t < tokens; ++t) {
        ops_.scale(sigmoid(gate[t * heads]), to + t * heads * shape_.v_head_dim, shape_.v_head_dim);
      }
    });
  }

  const LatentAttentionArgs& args_;
  const LatentAttentionShape& shape_;
  const std::optional<QuantKey> input_;
  const VectorOps& ops_;
  ThreadPool* pool_ = nullptr;
};

}  // namespace

std::int64_t CpuOps::block_bytes(const LatentAttentionShape& shape, KvType kv) const {
  const std::int64_t scales = kv == KvType::int8 ? 2 * std::int64_t{sizeof(float)} : 0;
  const std::int64_t key = shape.index_dim * bytes_of(kv == KvType::f32 ? KvType::f32 : KvType::bf16);
  return kKvBlock * (shape.latent_width() * bytes_of(kv) + scales + key);
}

std::size_t CpuOps::workspace(const LatentAttentionArgs& args, int threads) const {
  return PagedLatents(args, vector_).bytes(threads);
}

void CpuOps::latent_attention(const RunContext& context, const LatentAttentionArgs& args) const {
  PagedLatents(args, vector_).run(context);
}

}  // namespace cpu

}  // namespace moracle
