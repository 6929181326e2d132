// Grouped queries: what comes before attention, and its launches.
#include "kernels/cuda/attention/attend.h"
#include "kernels/cuda/attention/page.cuh"
#include "kernels/cuda/attention/tokens.cuh"
#include "kernels/cuda/ops/block.cuh"
#include "scheme/codes.h"

namespace moracle::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

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

__device__ float clipped(float x, float clip) {
  // NaN stays.
  return clip == 0.0F ? x : x > clip ? clip : x < -clip ? -clip : x;
}

// One head of one token, by a warp: lane l has numbers l, l + 32, ... All loads come before what needs them.
template <int kMost>
struct HeadNumbers {
  float at[kMost];

  __device__ void load(const float* from, int dims) {
#pragma unroll
    for (int j = 0; j < kMost; ++j) {
      const int i = static_cast<int>(threadIdx.x) % 32 + 32 * j;
      at[j] = i < dims ? from[i] : 0.0F;
    }
  }
  template <class Body>
  __device__ void each(int dims, const Body& body) {
#pragma unroll
    for (int j = 0; j < kMost; ++j) {
      const int i = static_cast<int>(threadIdx.x) % 32 + 32 * j;
      if (i < dims) body(i, at[j]);
    }
  }
};

// Norm, clip and rotation of queries or keys. `row`: room for a head in shared memory.
template <int kMost>
__device__ void prepare(const AttentionArgs& args, const NormArgs& norm, std::int64_t token,
                        HeadNumbers<kMost>& numbers, float* row) {
  const auto dims = static_cast<int>(args.shape.head_dim);
  const auto half = static_cast<int>(args.rope.half);
  HeadNumbers<kMost> weights;
  HeadNumbers<kMost> cos;
  HeadNumbers<kMost> sin;
  const bool norms = norm.size == dims;
  if (norms) weights.load(norm.weight, dims);
  cos.load(args.rope.cos + token * half, half);
  sin.load(args.rope.sin + token * half, half);
  if (norms) {
    float squares = 0.0F;
    numbers.each(dims, [&](int, float x) { squares += x * x; });
    const float inverse = rsqrtf(__fdividef(warp_sum(squares), static_cast<float>(dims)) + norm.eps);
#pragma unroll
    for (int j = 0; j < kMost; ++j) numbers.at[j] = weights.at[j] * (numbers.at[j] * inverse);
  }
  numbers.each(dims, [&](int i, float& x) { row[i] = x = clipped(x, args.shape.clip); });
  if (half == 0) return;
  __syncwarp();
#pragma unroll
  for (int j = 0; j < kMost; ++j) {
    const int i = static_cast<int>(threadIdx.x) % 32 + 32 * j;
    if (i >= half) continue;
    const float first = row[i];
    const float second = row[i + half];
    row[i] = first * cos.at[j] - second * sin.at[j];
    row[i + half] = second * cos.at[j] + first * sin.at[j];
  }
  __syncwarp();
  numbers.each(dims, [&](int i, float& x) { x = row[i]; });
}

// A warp takes a head of queries, or of keys, or of values. Keys go to the block in rows of key_row numbers, values in
// columns. kMost: numbers of a lane.
template <int kMost>
__global__ void __launch_bounds__(kThreads)
    append(const __grid_constant__ AttentionArgs args, std::int32_t* counters, std::int64_t counter_count) {
  __shared__ float rows[kWarps][32 * kMost];
  allow_next_grid();
  const AttentionShape& shape = args.shape;
  const std::int64_t token = blockIdx.x;
  const auto dims = static_cast<int>(shape.head_dim);
  if (blockIdx.y == 0) {
#pragma unroll 1
    for (std::int64_t i = token * kThreads + threadIdx.x; i < counter_count; i += args.tokens * kThreads)
      counters[i] = 0;
  }
  const int warp = static_cast<int>(threadIdx.x) / 32;
  std::int64_t head = static_cast<std::int64_t>(blockIdx.y) * kWarps + warp;
  HeadNumbers<kMost> numbers;
  if (head < shape.heads) {
    float* const q = args.q + token * shape.q_width() + head * query_stride(shape);
    numbers.load(q, dims);
    prepare(args, args.q_norm, token, numbers, rows[warp]);
    numbers.each(dims, [&](int i, float x) { q[i] = x; });
    return;
  }
  head -= shape.heads;
  const bool is_key = head < shape.kv_heads;
  if (!is_key) head -= shape.kv_heads;
  if (head >= shape.kv_heads) return;
  numbers.load((is_key ? args.k : args.v) + token * shape.kv_width() + head * dims, dims);
  const Place place = place_for_warp(args.spans, args.span_count, token);
  if (place.span < 0) return;
  const auto row = static_cast<int>(key_row(shape));
  const auto slot = static_cast<int>(place.position % kKvBlock);
  auto* const share = reinterpret_cast<std::uint16_t*>(args.blocks.block(place.block));
  if (is_key) {
    prepare(args, args.k_norm, token, numbers, rows[warp]);
    std::uint16_t* const key = share + (head * kKvBlock + slot) * row;
    numbers.each(row, [&](int i, float x) { key[i] = i < dims ? encode_bf16(x) : 0; });
  } else {
    std::uint16_t* const value = share + ((shape.kv_heads + head) * 2 + slot / kHalf) * kHalf * row + slot % kHalf;
    numbers.each(dims, [&](int i, float x) { value[i * kHalf] = encode_bf16(clipped(x, shape.clip)); });
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
  const AttentionWork work = AttentionWork::lay_out(args);
  const unsigned tokens = grid_of(args.tokens);
  if (norms_rows(args.q_norm, shape) || norms_rows(args.k_norm, shape))
    norm_rows<<<dim3(tokens, 2), kThreads, 0, stream>>>(args);
  auto* const kernel = shape.head_dim <= 64 ? append<2> : shape.head_dim <= 128 ? append<4> : append<8>;
  kernel<<<dim3(tokens, grid_of(shape.heads + 2 * shape.kv_heads, kWarps)), kThreads, 0, stream>>>(
      args, reinterpret_cast<std::int32_t*>(workspace + work.splits.counters), args.tokens * shape.heads);
  // Sequences of one token take the first kernel, wherever they stand, and others the second.
  const int error = attend_sections(args, work.splits, workspace, stream);
  return error != cudaSuccess || args.tokens <= args.span_count ? error : attend_tiles(args, stream);
}

}  // namespace moracle::cuda
