#pragma once

#include "kernels/args/rope.h"
#include "kernels/args/state.h"

namespace moracle {

// The choice of the positions that a query attends to (DeepSeek-V3.2).
struct IndexShape {
  std::int64_t heads = 0;
  std::int64_t dim = 0;
  std::int64_t rotated = 0;  // the first dimensions of a head
  std::int64_t top_k = 0;    // positions that a query sees
  bool interleaved = false;  // pairs to be rotated lie side by side, not half the rotated part apart
};
static_assert(kPlain<IndexShape>);

// Appends keys to the state, behind `block_offset` bytes of a layer's share of a block. A query that has more than
// top_k positions before it sees those of the largest sums over heads of weight relu(q k), the lower one where sums are
// equal.
struct IndexArgs {
  IndexShape shape{};
  KvType kv = KvType::f32;  // f32, or bf16 for all others
  std::int64_t tokens = 0;
  RopeTable rope{};
  BlockMemory blocks{};
  std::int64_t block_offset = 0;
  const KvSpan* spans = nullptr;  // [span_count]
  std::int64_t span_count = 0;
  float* q = nullptr;                // [tokens, heads, dim], is rotated
  float* k = nullptr;                // [tokens, dim], normed; is rotated
  const float* weights = nullptr;    // [tokens, heads]
  std::int32_t* selected = nullptr;  // [tokens, top_k], in ascending order; of queries with so many positions alone
};
static_assert(kPlain<IndexArgs>);

}  // namespace moracle
