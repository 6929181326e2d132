// Scores of a query are its own and are chosen from by their order alone, so the choice depends on no other query and
// on no number of threads.
#include <algorithm>

#include "base/checked.h"
#include "base/generic/count.h"
#include "base/memory.h"
#include "kernels/cpu/ops/cpu_ops.h"
#include "kernels/cpu/ops/kv_codes.h"
#include "kernels/cpu/ops/sections.h"

namespace moracle::cpu {

namespace {

// Blocks in work at a time, for each thread, where a query is shared out.
constexpr std::int64_t kBlocksPerThread = 8;

struct Candidate {
  float score = 0.0F;
  std::int32_t position = 0;

  [[nodiscard]] bool before(const Candidate& other) const {
    return score != other.score ? score > other.score : position < other.position;
  }
};

// The best of what was added, in room for twice as many.
class Best {
 public:
  explicit Best(std::span<Candidate> room) : room_(room) {}

  void add(std::span<const float> scores, std::int64_t first) {
    for (std::size_t i = 0; i < scores.size(); ++i) {
      if (used_ == room_.size()) shrink();
      // What is no number comes last.
      const float score = scores[i] > kMinusInfinity ? scores[i] : kMinusInfinity;
      room_[used_++] = {.score = score, .position = narrow<std::int32_t>(first + static_cast<std::int64_t>(i))};
    }
  }

  void write(std::int32_t* to) {
    if (used_ > room_.size() / 2) shrink();
    std::transform(room_.begin(), room_.begin() + static_cast<std::ptrdiff_t>(used_), to,
                   [](const Candidate& candidate) { return candidate.position; });
    std::sort(to, to + used_);
  }

 private:
  void shrink() {
    const std::size_t kept = room_.size() / 2;
    std::nth_element(room_.begin(), room_.begin() + static_cast<std::ptrdiff_t>(kept),
                     room_.begin() + static_cast<std::ptrdiff_t>(used_),
                     [](const Candidate& a, const Candidate& b) { return a.before(b); });
    used_ = kept;
  }

  std::span<Candidate> room_;
  std::size_t used_ = 0;
};

// One call.
class PositionIndex {
 public:
  PositionIndex(const IndexArgs& args, const VectorOps& ops)
      : args_(args), shape_(args.shape), kv_(args.kv == KvType::f32 ? KvType::f32 : KvType::bf16), ops_(ops) {}

  [[nodiscard]] std::size_t bytes(int threads) const {
    return bytes_taken([&](BumpArena& arena) { static_cast<void>(lay_out(arena, threads)); });
  }

  void run(const RunContext& context) const {
    ThreadPool& pool = context.pool();
    BumpArena arena(context.workspace);
    const Buffers buffers = lay_out(arena, pool.threads());
    for (const KvSpan& span : std::span(args_.spans, count(args_.span_count))) append(pool, span, buffers);
    for (const KvSpan& span : std::span(args_.spans, count(args_.span_count))) {
      const std::int64_t first = std::max<std::int64_t>(0, shape_.top_k - span.start);  // that has so many positions
      if (first >= span.count) continue;
      if (span.count - first < pool.threads()) {
        for (std::int64_t i = first; i < span.count; ++i) select_together(pool, span, i, buffers);
      } else {
        pool.parallel_for(span.count - first,
                          [&](std::int64_t i, int thread) { select(span, first + i, thread, buffers); });
      }
    }
  }

 private:
  struct Buffers {
    float* scratch = nullptr;         // of all threads
    float* scores = nullptr;          // [threads, kBlocksPerThread, 64]
    std::span<Candidate> candidates;  // [threads, 2 top_k]
  };

  // A block's keys as f32, and products with all heads.
  [[nodiscard]] std::int64_t scratch_floats() const {
    return round_up(kKvBlock * (shape_.dim + shape_.heads), std::int64_t{16});
  }

  Buffers lay_out(BumpArena& arena, int threads) const {
    Buffers buffers;
    buffers.scratch = arena.take<float>(count(threads * scratch_floats())).data();
    buffers.scores = arena.take<float>(count(threads * kBlocksPerThread * kKvBlock)).data();
    buffers.candidates = arena.take<Candidate>(count(threads * 2 * shape_.top_k));
    return buffers;
  }

  [[nodiscard]] std::byte* keys(const KvSpan& span, std::int64_t block) const {
    return args_.blocks.block(span.table[block]) + args_.block_offset;
  }

  // Rotated pairs go half the rotated part apart, on queries and keys alike.
  void rotate(std::int64_t token, float* head, float* room) const {
    const std::int64_t half = shape_.rotated / 2;
    if (shape_.interleaved) {
      std::copy_n(head, shape_.rotated, room);
      for (std::int64_t i = 0; i < half; ++i) {
        head[i] = room[2 * i];
        head[half + i] = room[2 * i + 1];
      }
    }
    ops_.rotate(head, head + half, args_.rope.cos + token * half, args_.rope.sin + token * half, half);
  }

  void append(ThreadPool& pool, const KvSpan& span, const Buffers& buffers) const {
    pool.parallel_for(span.count, [&](std::int64_t i, int thread) {
      const std::int64_t token = span.begin + i;
      const std::int64_t position = span.start + i;
      float* const room = buffers.scratch + thread * scratch_floats();
      for (std::int64_t head = 0; head < shape_.heads; ++head) {
        rotate(token, args_.q + (token * shape_.heads + head) * shape_.dim, room);
      }
      float* const key = args_.k + token * shape_.dim;
      rotate(token, key, room);
      std::byte* const to = keys(span, position / kKvBlock) + position % kKvBlock * shape_.dim * bytes_of(kv_);
      static_cast<void>(store_kv(kv_, {key, count(shape_.dim)}, to));
    });
  }

  // Of the block's positions up to the query's own.
  std::span<const float> score(const KvSpan& span, std::int64_t query, std::int64_t block, float* scratch,
                               float* scores) const {
    const std::int64_t visible = std::min(kKvBlock, span.start + query + 1 - block * kKvBlock);
    const std::int64_t token = span.begin + query;
    const float* rows = reinterpret_cast<const float*>(keys(span, block));
    if (kv_ == KvType::bf16) {
      ops_.widen_bf16(reinterpret_cast<const std::uint16_t*>(keys(span, block)), scratch, visible * shape_.dim);
      rows = scratch;
    }
    float* const products = scratch + kKvBlock * shape_.dim;
    ops_.dot_rows(shape_.heads, visible, shape_.dim, args_.q + token * shape_.heads * shape_.dim, shape_.dim, rows,
                  shape_.dim, products, kKvBlock);
    std::fill_n(scores, visible, 0.0F);
    for (std::int64_t head = 0; head < shape_.heads; ++head) {
      const float weight = args_.weights[token * shape_.heads + head];
      const float* const of_head = products + head * kKvBlock;
      for (std::int64_t i = 0; i < visible; ++i) scores[i] += weight * std::max(of_head[i], 0.0F);
    }
    return {scores, count(visible)};
  }

  [[nodiscard]] Best best(const Buffers& buffers, int thread) const {
    return Best(buffers.candidates.subspan(count(thread * 2 * shape_.top_k), count(2 * shape_.top_k)));
  }
  [[nodiscard]] static std::int64_t blocks(const KvSpan& span, std::int64_t query) {
    return (span.start + query) / kKvBlock + 1;
  }
  [[nodiscard]] std::int32_t* selected(const KvSpan& span, std::int64_t query) const {
    return args_.selected + (span.begin + query) * shape_.top_k;
  }

  // One query on one thread.
  void select(const KvSpan& span, std::int64_t query, int thread, const Buffers& buffers) const {
    Best found = best(buffers, thread);
    for (std::int64_t block = 0; block < blocks(span, query); ++block) {
      found.add(score(span, query, block, buffers.scratch + thread * scratch_floats(),
                      buffers.scores + thread * kBlocksPerThread * kKvBlock),
                block * kKvBlock);
    }
    found.write(selected(span, query));
  }

  // One query on all threads.
  void select_together(ThreadPool& pool, const KvSpan& span, std::int64_t query, const Buffers& buffers) const {
    Best found = best(buffers, 0);
    const std::int64_t end = blocks(span, query);
    const std::int64_t slots = pool.threads() * kBlocksPerThread;
    for (std::int64_t begin = 0; begin < end; begin += slots) {
      const std::int64_t used = std::min(slots, end - begin);
      pool.parallel_for(used, [&](std::int64_t slot, int thread) {
        score(span, query, begin + slot, buffers.scratch + thread * scratch_floats(), buffers.scores + slot * kKvBlock);
      });
      for (std::int64_t slot = 0; slot < used; ++slot) {
        const std::int64_t first = (begin + slot) * kKvBlock;
        const std::int64_t visible = std::min(kKvBlock, span.start + query + 1 - first);
        found.add({buffers.scores + slot * kKvBlock, count(visible)}, first);
      }
    }
    found.write(selected(span, query));
  }

  const IndexArgs& args_;
  const IndexShape& shape_;
  KvType kv_;
  const VectorOps& ops_;
};

}  // namespace

std::size_t CpuOps::workspace(const IndexArgs& args, int threads) const {
  return PositionIndex(args, vector_).bytes(threads);
}

void CpuOps::index(const RunContext& context, const IndexArgs& args) const {
  PositionIndex(args, vector_).run(context);
}

}  // namespace moracle::cpu
