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

// Queries or keys of one token.
struct HeadRow {
  float* at;
  std::int64_t heads;
  std::int64_t stride;  // from head to head
  NormArgs norm;
};

// A norm over more or less than a head.
__device__ void norm_groups(const HeadRow& row) {
  const NormArgs& norm = row.norm;
  for (std::int64_t from = 0; from < row.heads * row.stride; from += norm.size) {
    float* const x = row.at + from;
    float squares = 0.0F;
    for (std::int64_t i = threadIdx.x; i < norm.size; i += kThreads) squares += x[i] * x[i];
    const float inverse = rsqrtf(__fdividef(block_sum<kThreads>(squares), static_cast<float>(norm.size)) + norm.eps);
    for (std::int64_t i = threadIdx.x; i < norm.size; i += kThreads) x[i] = norm.weight[i] * (x[i] * inverse);
  }
  __syncthreads();
}

__device__ float clipped(float x, float clip) {
  // NaN stays.
  return clip == 0.0F ? x : x > clip ? clip : x < -clip ? -clip : x;
}

// A warp takes a head: its norm, its clip, its rotation.
__device__ void prepare(const AttentionArgs& args, const HeadRow& row, std::int64_t token) {
  const std::int64_t dim = args.shape.head_dim;
  const std::int64_t half = args.rope.half;
  const bool norms_heads = row.norm.size == dim;
  if (row.norm.size != 0 && !norms_heads) norm_groups(row);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (std::int64_t head = threadIdx.x / 32; head < row.heads; head += kWarps) {
    float* const x = row.at + head * row.stride;
    float inverse = 1.0F;
    if (norms_heads) {
      float squares = 0.0F;
      for (std::int64_t i = lane; i < dim; i += 32) squares += x[i] * x[i];
      inverse = rsqrtf(__fdividef(warp_sum(squares), static_cast<float>(dim)) + row.norm.eps);
    }
    const auto number = [&](std::int64_t i) {
      return clipped(norms_heads ? row.norm.weight[i] * (x[i] * inverse) : x[i], args.shape.clip);
    };
    for (std::int64_t i = lane; i < half; i += 32) {
      const float first = number(i);
      const float second = number(i + half);
      const float cos = args.rope.cos[token * half + i];
      const float sin = args.rope.sin[token * half + i];
      x[i] = first * cos - second * sin;
      x[i + half] = second * cos + first * sin;
    }
    for (std::int64_t i = 2 * half + lane; i < dim; i += 32) x[i] = number(i);
  }
  __syncthreads();
}

// Keys go to the block in rows of key_row numbers, values in columns. A warp takes a head.
__device__ void store(const AttentionArgs& args, std::int64_t token, const Place& place) {
  const AttentionShape& shape = args.shape;
  auto* const share = reinterpret_cast<std::uint16_t*>(args.blocks.block(place.block));
  const auto slot = static_cast<int>(place.position % kKvBlock);
  const auto row = static_cast<int>(key_row(shape));
  const auto dims = static_cast<int>(shape.head_dim);
  for (std::int64_t head = threadIdx.x / 32; head < shape.kv_heads; head += kWarps) {
    const std::int64_t from = (token * shape.kv_heads + head) * dims;
    std::uint16_t* const keys = share + (head * kKvBlock + slot) * row;
    std::uint16_t* const values = share + ((shape.kv_heads + head) * 2 + slot / kHalf) * kHalf * row + slot % kHalf;
    for (int dim = static_cast<int>(threadIdx.x) % 32; dim < row; dim += 32) {
      keys[dim] = dim < dims ? encode_bf16(args.k[from + dim]) : 0;
      if (dim < dims) values[dim * kHalf] = encode_bf16(clipped(args.v[from + dim], shape.clip));
    }
  }
}

// Blocks (token, 0) take queries, (token, 1) keys and values.
__global__ void __launch_bounds__(kThreads)
    append(const __grid_constant__ AttentionArgs args, std::int32_t* counters, std::int64_t counter_count) {
  const AttentionShape& shape = args.shape;
  const std::int64_t token = blockIdx.x;
  if (blockIdx.y == 0) {
#pragma unroll 1
    for (std::int64_t i = token * kThreads + threadIdx.x; i < counter_count; i += args.tokens * kThreads)
      counters[i] = 0;
    prepare(args, {args.q + token * shape.q_width(), shape.heads, query_stride(shape), args.q_norm}, token);
  } else {
    __shared__ Place place;
    find_place<kThreads>(args.spans, args.span_count, token, place);
    prepare(args, {args.k + token * shape.kv_width(), shape.kv_heads, shape.head_dim, args.k_norm}, token);
    if (place.span >= 0) store(args, token, place);
  }
}

}  // namespace

int launch(const AttentionArgs& args, std::byte* workspace, cudaStream_t stream) {
  if (args.tokens == 0) return cudaSuccess;
  const AttentionWork work = AttentionWork::lay_out(args);
  const std::int64_t counters = args.tokens * args.shape.heads;
  const dim3 grid(grid_of(args.tokens), 2);
  append<<<grid, kThreads, 0, stream>>>(args, reinterpret_cast<std::int32_t*>(workspace + work.splits.counters),
                                        counters);
  // Sequences of one token take the first kernel, wherever they stand, and others the second.
  const int error = attend_sections(args, work.splits, workspace, stream);
  return error != cudaSuccess || args.tokens <= args.span_count ? error : attend_tiles(args, stream);
}

}  // namespace moracle::cuda
