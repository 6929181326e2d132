// Grouped queries: what comes before attention, and its launches.
#include "kernels/cuda/common/attention/attend.h"
#include "kernels/cuda/common/attention/head.cuh"
#include "kernels/cuda/common/attention/page.cuh"
#include "kernels/cuda/common/ops/block.cuh"
#include "kernels/cuda/portable/attention/tokens.cuh"
#include "scheme/codes.h"

namespace moracle::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr std::int64_t kSharedTokens = 16;  // up to which blocks share the heads of a token

// A norm over more or less than a head. Blocks (token, 0) take queries, (token, 1) keys.
__global__ void __launch_bounds__(kThreads) norm_rows(const __grid_constant__ AttentionArgs args) {
  const AttentionShape& shape = args.shape;
  const NormArgs& norm = blockIdx.y == 0 ? args.q_norm : args.k_norm;
  if (norm.size == 0 || norm.size == shape.head_dim) return;
  const std::int64_t width = blockIdx.y == 0 ? shape.q_width() : shape.kv_width();
  float* const row = (blockIdx.y == 0 ? args.q : args.k) + blockIdx.x * width;
  for (std::int64_t from = 0; from < width; from += norm.size) {
    float* const x = row + from;
    float squares = 0.0F;
    for (std::int64_t i = threadIdx.x; i < norm.size; i += kThreads) squares += x[i] * x[i];
    const float mean = __fdividef(block_sum<kThreads>(squares), static_cast<float>(norm.size));
    const float inverse = rsqrtf(mean + norm.eps);
    for (std::int64_t i = threadIdx.x; i < norm.size; i += kThreads) x[i] = norm.weight[i] * (x[i] * inverse);
  }
}

// The warps of a block share the heads of a token: of queries, of keys, of values. Keys go to the block in rows of
// key_row numbers, values in columns. Blocks (token, share of the heads). kMost: numbers of a lane. `counters`:
// [tokens, kv_heads], to be cleared; null: sequences of one token are left out.
template <int kMost>
__global__ void __launch_bounds__(kThreads) append(const __grid_constant__ AttentionArgs args, std::int32_t* counters) {
  __shared__ float rows[kWarps][32 * kMost];
  const AttentionShape& shape = args.shape;
  const std::int64_t token = blockIdx.x;
  const auto dims = static_cast<int>(shape.head_dim);
  const Place place = place_for_warp(args.spans, args.span_count, token);
  if (place.span < 0 || (counters == nullptr && args.spans[place.span].count == 1)) return;
  if (counters != nullptr) {
    for (std::int64_t i = threadIdx.x; i < shape.kv_heads; i += kThreads) counters[token * shape.kv_heads + i] = 0;
  }
  const int warp = static_cast<int>(threadIdx.x) / 32;
  HeadNumbers<kMost> heads[1];
  HeadNumbers<kMost>& numbers = heads[0];
  HeadTerms<kMost> terms;
  terms.load(args, args.q_norm, token);
  const auto step = static_cast<std::int64_t>(gridDim.y) * kWarps;
  std::int64_t head = blockIdx.y * kWarps + warp;
  for (; head < shape.heads; head += step) {
    float* const q = args.q + token * shape.q_width() + head * query_stride(shape);
    numbers.load(q, dims);
    prepare(args, args.q_norm, terms, heads, rows[warp]);
    numbers.each(dims, [&](int i, float x) { q[i] = x; });
    __syncwarp();
  }
  terms.load(args, args.k_norm, token);
  const auto row = static_cast<int>(key_row(shape));
  for (head -= shape.heads; head < 2 * shape.kv_heads; head += step) {
    const bool is_key = head < shape.kv_heads;
    const std::int64_t own = is_key ? head : head - shape.kv_heads;
    numbers.load((is_key ? args.k : args.v) + token * shape.kv_width() + own * dims, dims);
    const StoredHead to = stored_head(args, place.block, own, static_cast<int>(place.position % kKvBlock));
    if (is_key) {
      prepare(args, args.k_norm, terms, heads, rows[warp]);
      numbers.each(row, [&](int i, float x) { to.key[i] = i < dims ? encode_bf16(x) : 0; });
      __syncwarp();
    } else {
      numbers.each(dims, [&](int i, float x) { to.value[i * kHalfPositions] = encode_bf16(clipped(x, shape.clip)); });
    }
  }
}

// Whether a norm is over more or less than a head.
bool norms_rows(const NormArgs& norm, const AttentionShape& shape) {
  return norm.size != 0 && norm.size != shape.head_dim;
}

}  // namespace

int launch(const AttentionArgs& args, std::byte* workspace, cudaStream_t stream) {
  if (args.tokens == 0) return cudaSuccess;
  const AttentionShape& shape = args.shape;
  const unsigned tokens = grid_of(args.tokens);
  if (norms_rows(args.q_norm, shape) || norms_rows(args.k_norm, shape))
    norm_rows<<<dim3(tokens, 2), kThreads, 0, stream>>>(args);
  // Sequences of one token take the first kernel, wherever they stand, and others the second. Clusters append the
  // token for themselves.
  const bool clusters = has_sm90();
  const bool several = args.tokens > args.span_count;
  if (several || !clusters) {
    auto* const counters =
        clusters ? nullptr : reinterpret_cast<std::int32_t*>(workspace + AttentionWork::lay_out(args).splits.counters);
    auto* const kernel = shape.head_dim <= 64 ? append<2> : shape.head_dim <= 128 ? append<4> : append<8>;
    const unsigned shares = args.tokens <= kSharedTokens ? grid_of(shape.heads + 2 * shape.kv_heads, kWarps) : 1;
    kernel<<<dim3(tokens, shares), kThreads, 0, stream>>>(args, counters);
  }
  const int error = clusters ? attend_sections(args, stream) : attend_splits(args, workspace, stream);
  return error != cudaSuccess || !several ? error : attend_tiles(args, stream);
}

}  // namespace moracle::cuda
