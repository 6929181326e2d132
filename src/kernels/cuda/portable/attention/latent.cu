// Multi-head latent attention, absorbed: DeepSeek-V2, arXiv 2405.04434. A block of threads takes 32 heads of one token
// and looks at one block of latents after the other, of which two are in shared memory: keys of the first product, and,
// transposed, values of the second.
#include "kernels/cuda/common/arithmetic.h"
#include "kernels/cuda/common/attention/splits.cuh"
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/ops/block.cuh"
#include "kernels/cuda/portable/attention/tokens.cuh"
#include "kernels/cuda/portable/ops/heads.cuh"

namespace moracle::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kHeads = 32;  // of a block of threads
constexpr int kPage = static_cast<int>(kKvBlock);
constexpr int kPageChunks = kPage / 8;
constexpr float kLog2E = 1.4426950408889634F;

// Number i of a rotated row: pairs go half a head apart, on queries and keys alike, which leaves their products as they
// are.
__device__ float rotated(const LatentAttentionArgs& args, const float* from, std::int64_t token, int i) {
  const auto half = static_cast<int>(args.shape.qk_rope_head_dim / 2);
  const int pair = i < half ? i : i - half;
  const float first = args.shape.interleaved ? from[2 * pair] : from[pair];
  const float second = args.shape.interleaved ? from[2 * pair + 1] : from[pair + half];
  const float cos = args.rope.cos[token * half + pair];
  const float sin = args.rope.sin[token * half + pair];
  return i < half ? first * cos - second * sin : second * cos + first * sin;
}

// What the projection does to the latent that it reads; a group of columns at a time.
__device__ void quantize(const InputQuant& input, float* row, int rank) {
  if (input.kind == InputKind::split) return;
  const int group = input.group > 0 ? input.group : input_group(input.kind) > 0 ? input_group(input.kind) : rank;
  __syncthreads();
  // A warp takes a group.
  for (int from = static_cast<int>(threadIdx.x) / 32 * group; from < rank; from += kWarps * group) {
    const int end = min(from + group, rank);
    float most = 0.0F;
    for (int i = from + static_cast<int>(threadIdx.x) % 32; i < end; i += 32) most = fmaxf(most, fabsf(row[i]));
    for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0U, most, step));
    const InputScale scale = input_scale(input.kind, most, input.scale);
    for (int i = from + static_cast<int>(threadIdx.x) % 32; i < end; i += 32)
      row[i] = decode_bf16(input_code(input.kind, row[i], scale)) * scale.scale;
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads)
    append_latents(const __grid_constant__ LatentAttentionArgs args, std::int32_t* counters) {
  allow_next_grid();
  wait_for_last_grid();
  __shared__ float row[kMostRank];
  __shared__ Place place;
  const LatentAttentionShape& shape = args.shape;
  const std::int64_t token = blockIdx.x;
  find_place<kThreads>(args.spans, args.span_count, token, place);
  for (std::int64_t i = threadIdx.x; i < shape.heads; i += kThreads) counters[token * shape.heads + i] = 0;
  const auto rank = static_cast<int>(shape.kv_lora_rank);
  const float* const from = args.latents + token * shape.latent_width();
  float squares = 0.0F;
  for (int i = static_cast<int>(threadIdx.x); i < rank; i += kThreads) squares += from[i] * from[i];
  const float inverse = rsqrtf(block_sum<kThreads>(squares) / static_cast<float>(rank) + args.kv_norm.eps);
  for (int i = static_cast<int>(threadIdx.x); i < rank; i += kThreads)
    row[i] = args.kv_norm.weight[i] * (from[i] * inverse);
  quantize(args.input, row, rank);
  __syncthreads();
  if (place.span < 0) return;
  const auto width = static_cast<int>(latent_row(shape));
  auto* const to = reinterpret_cast<std::uint16_t*>(args.blocks.block(place.block)) + place.position % kKvBlock * width;
  const auto used = static_cast<int>(shape.latent_width());
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) {
    const float value = i < rank ? row[i] : i < used ? rotated(args, from + rank, token, i - rank) : 0.0F;
    to[i] = encode_bf16(value);
  }
}

// Tokens [first, first + count) of the batch, whose queries and results are in the workspace.
struct Chunk {
  std::int64_t first;
  std::int64_t count;
  std::uint16_t* queries;  // [count, heads, latent_row]
  float* attended;         // [count, heads, kv_lora_rank]
};

// A block's products of one head: tiles, or whatever shape.
template <bool kTiles>
struct HeadForm {
  static constexpr int kThreads = kTiles ? HeadTile::kThreads : kHeadThreads;
  static constexpr int kTokens = kTiles ? HeadTile::kTokens : kHeadTokens;
  static constexpr int kColumns = kTiles ? HeadTile::kColumns : kHeadColumns;
  static constexpr std::size_t kBytes = kTiles ? sizeof(HeadTile) : 0;

  template <class Write>
  static __device__ void multiply(const HeadRows& x, const float* weights, int depth, int columns, std::int64_t tokens,
                                  const Write& write) {
    if constexpr (kTiles) {
      extern __shared__ uint4 head_memory[];
      multiply_head_tile(*reinterpret_cast<HeadTile*>(head_memory), x, weights, depth, columns, tokens, write);
    } else {
      multiply_head(x, weights, depth, columns, tokens, write);
    }
  }
};

template <bool kTiles>
__global__ void __launch_bounds__(HeadForm<kTiles>::kThreads, kTiles ? 3 : 1)
    absorb_keys(const __grid_constant__ LatentAttentionArgs args, const Chunk chunk) {
  allow_next_grid();
  using Form = HeadForm<kTiles>;
  const LatentAttentionShape& shape = args.shape;
  const auto width = static_cast<int>(latent_row(shape));
  const auto rank = static_cast<int>(shape.kv_lora_rank);
  const std::int64_t stride = shape.heads * shape.q_head_dim();
  const float* const q = args.q + chunk.first * stride;
  const std::int64_t head = blockIdx.y;
  Form::multiply({q, stride, shape.q_head_dim()}, args.keys, static_cast<int>(shape.qk_nope_head_dim), rank,
                 chunk.count, [&](std::int64_t token, int column, float sum) {
                   chunk.queries[(token * shape.heads + head) * width + column] = encode_bf16(sum);
                 });
  if (blockIdx.x != 0) return;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.z) * Form::kTokens;
  const auto tokens = static_cast<int>(min(chunk.count - first, std::int64_t{Form::kTokens}));
  const int rest = width - rank;
  for (int at = static_cast<int>(threadIdx.x); at < tokens * rest; at += Form::kThreads) {
    const std::int64_t token = first + at / rest;
    const int i = at % rest;
    const float* const from = q + token * stride + head * shape.q_head_dim() + shape.qk_nope_head_dim;
    chunk.queries[(token * shape.heads + head) * width + rank + i] =
        i < shape.qk_rope_head_dim ? encode_bf16(rotated(args, from, chunk.first + token, i)) : 0;
  }
}

template <bool kTiles>
__global__ void __launch_bounds__(HeadForm<kTiles>::kThreads, kTiles ? 3 : 1)
    project_values(const __grid_constant__ LatentAttentionArgs args, const Chunk chunk) {
  allow_next_grid();
  const LatentAttentionShape& shape = args.shape;
  const std::int64_t head = blockIdx.y;
  float* const out = args.out + chunk.first * shape.heads * shape.v_head_dim;
  HeadForm<kTiles>::multiply({chunk.attended, shape.heads * shape.kv_lora_rank, shape.kv_lora_rank}, args.values,
                             static_cast<int>(shape.kv_lora_rank), static_cast<int>(shape.v_head_dim), chunk.count,
                             [&](std::int64_t token, int column, float sum) {
                               out[(token * shape.heads + head) * shape.v_head_dim + column] = sum;
                             });
}

// Products of heads and attention do not start early: the blocks of such a grid would lie on the few multiprocessors
// that the one before leaves free.
using HeadKernel = void (*)(LatentAttentionArgs, Chunk);
template <bool kTiles>
cudaError_t launch_heads(HeadKernel kernel, const LatentAttentionArgs& args, const Chunk& chunk, std::int64_t columns,
                         cudaStream_t stream) {
  using Form = HeadForm<kTiles>;
  if (Form::kBytes > 0) {
    if (const cudaError_t error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(Form::kBytes));
        error != cudaSuccess)
      return error;
  }
  const dim3 grid(grid_of(columns, Form::kColumns), static_cast<unsigned>(args.shape.heads),
                  grid_of(chunk.count, Form::kTokens));
  return launch_grid(kernel, {.grid = grid, .threads = Form::kThreads, .shared = Form::kBytes, .early = false}, stream,
                     args, chunk);
}

// Whether tiles take what is there, 16 bytes at a time; few tokens are done sooner without. The rank is a multiple of
// 16.
bool has_tiles(const LatentAttentionArgs& args) {
  const LatentAttentionShape& shape = args.shape;
  const auto whole = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 16 == 0; };
  if (args.batch_invariant == 0 && args.tokens <= kHeadTokens) return false;
  return shape.qk_nope_head_dim % 4 == 0 && shape.q_head_dim() % 4 == 0 && shape.v_head_dim % 4 == 0 && whole(args.q) &&
         whole(args.keys) && whole(args.values);
}

// In shared memory. Chunks of a row change places within 8, so that the rows that lanes read at once lie in different
// banks. `kLarge`: queries and two blocks of latents have room; else one block has, and queries are read where they
// lie.
template <bool kLarge_>
struct Stages {
  static constexpr bool kLarge = kLarge_;
  static constexpr int kStages = kLarge ? 2 : 1;
  const uint4* queries;    // [kHeads, row chunks]
  uint4* latents;          // [kStages][64, row chunks]
  std::uint32_t* weights;  // [kHeads, 32]: exponentials, two bf16 each
  float* maxima;           // [4, kHeads]: of 16 positions each
  int chunks;              // of a row in memory
  int row_chunks;          // in shared memory
  int last_query = 0;

  static constexpr std::int64_t bytes(std::int64_t row) {
    return 2 * ((kLarge ? kHeads : 0) + kStages * kKvBlock) * up_to(row, 64) + kHeads * 32 * 4 + 4 * kHeads * 4;
  }
  // `from`: queries of `heads` heads of the block.
  __device__ Stages(uint4* at, const LatentAttentionShape& shape, const uint4* from, int heads)
      : chunks(static_cast<int>(latent_row(shape) / 8)),
        row_chunks(static_cast<int>(up_to(latent_row(shape), 64) / 8)) {
    if constexpr (kLarge) {
      queries = at;
      latents = at + kHeads * row_chunks;
      for (int i = static_cast<int>(threadIdx.x); i < kHeads * chunks; i += kThreads)
        at[query_place(i / chunks, i % chunks)] = i / chunks < heads ? from[i] : uint4{};
    } else {
      queries = from;
      last_query = heads - 1;
      latents = at;
    }
    weights = reinterpret_cast<std::uint32_t*>(latents + kStages * kPage * row_chunks);
    maxima = reinterpret_cast<float*>(weights + kHeads * 32);
  }

  [[nodiscard]] __device__ int query_place(int row, int chunk) const {
    return row * row_chunks + (chunk ^ (row % 2 != 0 ? 4 : 0));
  }
  // Behind the last head anything.
  [[nodiscard]] __device__ uint4 query(int row, int chunk) const {
    return kLarge ? queries[query_place(row, chunk)] : queries[min(row, last_query) * chunks + chunk];
  }
  [[nodiscard]] __device__ uint4* latent(int stage, int row, int chunk) const {
    return latents + (stage * kPage + row) * row_chunks + (chunk ^ row % 8);
  }
  [[nodiscard]] __device__ uint4* weight(int row, int chunk) const {
    return reinterpret_cast<uint4*>(weights) + row * kPageChunks + (chunk ^ row % 8);
  }
  // Zeros take the place of positions that hold nothing yet.
  __device__ void load(const std::byte* block, int stored, int stage) const {
    const auto* const from = reinterpret_cast<const uint4*>(block);
    for (int row = static_cast<int>(threadIdx.x) / 32; row < kPage; row += kWarps) {
      for (int chunk = static_cast<int>(threadIdx.x) % 32; chunk < chunks; chunk += 32)
        copy_async(latent(stage, row, chunk), from + row * chunks + chunk, row < stored);
    }
  }
};

// What a warp has: scores of 16 heads and 16 positions, then sums of 32 heads and, of every 128 columns, 16.
struct Lane {
  int warp = static_cast<int>(threadIdx.x) / 32;
  int lane = static_cast<int>(threadIdx.x) % 32;
  int row = lane / 4;
  int part = lane % 4;
  int heads = warp / 4 * 16;        // first of the scores
  int keys = warp % 4 * 16;         // first of the scores
  static constexpr int kTiles = 8;  // of 8 columns: 16 * (8 tile / 2 + warp) + 8 (tile % 2)
};

struct Sums {
  float out[2][Lane::kTiles][4];
  float maximum[2][2];  // of heads 16 m + row and 16 m + row + 8, in powers of two
  float sum[2];         // of the exponentials that this lane made

  __device__ void clear() {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (auto& tile : out[m]) tile[0] = tile[1] = tile[2] = tile[3] = 0.0F;
      maximum[m][0] = maximum[m][1] = -INFINITY;
      sum[m] = 0.0F;
    }
  }
};

// Scores of 16 heads and 16 positions: column c of a tile is position c / 2 + 4 (c % 2) of 8.
template <class Stages>
__device__ void score(const Stages& stages, int stage, const Lane& at, float (&scores)[2][4]) {
  const int key = at.keys + at.row / 2 + 4 * (at.row % 2);
#pragma unroll 2
  for (int group = 0; group < stages.chunks / 4; ++group) {
    const int chunk = 4 * group + at.part;
    const uint4 upper = stages.query(at.heads + at.row, chunk);
    const uint4 lower = stages.query(at.heads + at.row + 8, chunk);
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      const uint4 latent = *stages.latent(stage, key + 8 * tile, chunk);
      multiply_bf16(scores[tile], upper.x, lower.x, upper.y, lower.y, latent.x, latent.y);
      multiply_bf16(scores[tile], upper.z, lower.z, upper.w, lower.w, latent.z, latent.w);
    }
  }
}

__device__ int position_of(const Lane& at, int tile, int i) {
  return at.keys + 8 * tile + at.part + 4 * (i % 2);
}

// The maxima of the block's scores become the rows'; sums that were made before are brought to them.
template <class Stages>
__device__ void raise(const Stages& stages, const Lane& at, Sums& sums) {
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int head = 16 * m + at.row + 8 * half;
      float most = sums.maximum[m][half];
      for (int i = 0; i < 4; ++i) most = fmaxf(most, stages.maxima[i * kHeads + head]);
      const float factor = exp2f(sums.maximum[m][half] - most);
      sums.maximum[m][half] = most;
      if (m == at.warp / 4) sums.sum[half] *= factor;
#pragma unroll
      for (auto& tile : sums.out[m]) {
        tile[2 * half] *= factor;
        tile[2 * half + 1] *= factor;
      }
    }
  }
}

// One block of latents, of which positions below `visible` are seen: at least one.
template <class Stages>
__device__ void attend_page(const Stages& stages, int stage, int visible, float scale, int rank, Sums& sums) {
  const Lane at;
  float scores[2][4] = {};
  score(stages, stage, at, scores);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float most = -INFINITY;
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        scores[tile][i] = position_of(at, tile, i) < visible ? scores[tile][i] * scale : -INFINITY;
        most = fmaxf(most, scores[tile][i]);
      }
    }
    most = fmaxf(most, __shfl_xor_sync(~0U, most, 1));
    most = fmaxf(most, __shfl_xor_sync(~0U, most, 2));
    if (at.part == 0) stages.maxima[at.warp % 4 * kHeads + at.heads + at.row + 8 * half] = most;
  }
  __syncthreads();
  raise(stages, at, sums);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float most = at.warp < 4 ? sums.maximum[0][half] : sums.maximum[1][half];
    const int head = at.heads + at.row + 8 * half;
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        const float weight = exp2f(scores[tile][i] - most);
        sums.sum[half] += weight;
        const int position = position_of(at, tile, i);
        reinterpret_cast<std::uint16_t*>(stages.weight(head, position / 8))[position % 8] = encode_bf16(weight);
      }
    }
  }
  __syncthreads();
#pragma unroll
  for (int keys = 0; keys < kPage; keys += 16) {
    std::uint32_t weights[2][4];
#pragma unroll
    for (int m = 0; m < 2; ++m)
      load_matrices(weights[m], stages.weight(16 * m + at.lane % 16, keys / 8 + at.lane / 16));
#pragma unroll
    for (int pair = 0; pair < Lane::kTiles / 2; ++pair) {
      const int column = 16 * (kWarps * pair + at.warp);
      if (column >= rank) break;
      std::uint32_t latents[4];
      load_transposed(latents, stages.latent(stage, keys + at.lane % 16, column / 8 + at.lane / 16));
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        multiply_bf16(sums.out[m][2 * pair], weights[m][0], weights[m][1], weights[m][2], weights[m][3], latents[0],
                      latents[1]);
        multiply_bf16(sums.out[m][2 * pair + 1], weights[m][0], weights[m][1], weights[m][2], weights[m][3], latents[2],
                      latents[3]);
      }
    }
  }
}

// Sums of the exponentials of each head, over its four warps in their order; `to`: [kHeads].
template <class Stages>
__device__ void sum_heads(const Stages& stages, const Sums& sums, float* to) {
  const Lane at;
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = sums.sum[half];
    sum += __shfl_xor_sync(~0U, sum, 1);
    sum += __shfl_xor_sync(~0U, sum, 2);
    if (at.part == 0) stages.maxima[at.warp % 4 * kHeads + at.heads + at.row + 8 * half] = sum;
  }
  __syncthreads();
  if (threadIdx.x < kHeads) {
    float sum = 0.0F;
    for (int i = 0; i < 4; ++i) sum += stages.maxima[i * kHeads + threadIdx.x];
    to[threadIdx.x] = sum;
  }
  __syncthreads();
}

// Calls write(head of the block, column, sum, maximum) for what this lane has summed.
template <class Write>
__device__ void each_sum(const Sums& sums, int heads, int rank, const Write& write) {
  const Lane at;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int tile = 0; tile < Lane::kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int head = 16 * m + at.row + 8 * (i / 2);
        const int column = 16 * (kWarps * (tile / 2) + at.warp) + 8 * (tile % 2) + 2 * at.part + i % 2;
        if (head < heads && column < rank) write(head, column, sums.out[m][tile][i], sums.maximum[m][i / 2]);
      }
    }
  }
}

// Blocks (token of the chunk, 32 heads, share of the splits).
template <bool kLarge>
__global__ void __launch_bounds__(kThreads)
    attend_latents(const __grid_constant__ LatentAttentionArgs args, const Chunk chunk, const SplitWork work,
                   std::byte* workspace) {
  allow_next_grid();
  extern __shared__ uint4 shared[];
  __shared__ float totals[kHeads];
  const LatentAttentionShape& shape = args.shape;
  const std::int64_t token = chunk.first + blockIdx.x;
  __shared__ Place place;
  find_place<kThreads>(args.spans, args.span_count, token, place);
  __syncthreads();
  if (place.span < 0) return;
  const KvSpan span = args.spans[place.span];
  // Tokens that stand beside others of their sequence are not split.
  Sections sections = sections_of(place.position, 0, kKvBlock, kLatentSplits);
  if (span.count != 1) sections.splits = 1;
  // A split a block: what a split leaves is as large as a page.
  if (args.batch_invariant == 0) sections.splits = min(sections.splits, static_cast<int>(gridDim.z));
  const bool split = sections.splits > 1;
  if (static_cast<int>(blockIdx.z) >= sections.splits) return;
  const auto rank = static_cast<int>(shape.kv_lora_rank);
  const std::int64_t first_head = static_cast<std::int64_t>(blockIdx.y) * kHeads;
  const auto heads = static_cast<int>(min(std::int64_t{kHeads}, shape.heads - first_head));
  const std::int64_t first_row = blockIdx.x * shape.heads + first_head;
  const Stages<kLarge> stages(shared, shape,
                              reinterpret_cast<const uint4*>(chunk.queries) + first_row * latent_row(shape) / 8, heads);
  const float scale = shape.scale * kLog2E;
  const std::int64_t pages = place.position / kKvBlock + 1;
  const std::int64_t slot = args.span_count <= kSplitSpans ? place.span : static_cast<std::int64_t>(blockIdx.x);
  const SplitSums parts = split_sums(work, workspace, slot * shape.heads + first_head, kLatentSplits, rank);
  float* const attended = chunk.attended + first_row * rank;
  for (int own = static_cast<int>(blockIdx.z); own < sections.splits; own += static_cast<int>(gridDim.z)) {
    Sums sums;
    sums.clear();
    const auto load = [&](std::int64_t page, int stage) {
      if (page < pages)
        stages.load(args.blocks.block(span.table[page]),
                    static_cast<int>(min(place.position + 1 - page * kKvBlock, kKvBlock)), stage);
      commit_copies();
    };
    std::int64_t page = own;
    load(page, 0);
    for (int stage = 0; page < pages; page += sections.splits) {
      if constexpr (kLarge) load(page + sections.splits, stage ^ 1);
      wait_copies<kLarge ? 1 : 0>();
      __syncthreads();
      attend_page(stages, stage, static_cast<int>(min(place.position + 1 - page * kKvBlock, kKvBlock)), scale, rank,
                  sums);
      __syncthreads();
      if constexpr (kLarge) {
        stage ^= 1;
      } else {
        load(page + sections.splits, stage);
      }
    }
    sum_heads(stages, sums, totals);
    if (!split) {
      each_sum(sums, heads, rank,
               [&](int head, int column, float sum, float) { attended[head * rank + column] = sum / totals[head]; });
      return;
    }
    each_sum(sums, heads, rank, [&](int head, int column, float sum, float maximum) {
      parts.sums_of(head, own)[column] = sum;
      if (column != 0) return;
      parts.stats_of(head, own)[0] = maximum;
      parts.stats_of(head, own)[1] = totals[head];
    });
    wait_copies<0>();
    __syncthreads();
  }
  auto* const counters = reinterpret_cast<std::int32_t*>(workspace + work.counters);
  const int blocks = min(static_cast<int>(gridDim.z), sections.splits);
  if (!is_last(counters + token * shape.heads + blockIdx.y, blocks)) return;
  merge_splits<kThreads, kHeads, kLatentSplits>(parts, heads, sections.splits,
                                                [&](int head, int column, const float4& value, float, float sum) {
                                                  *reinterpret_cast<float4*>(attended + head * rank + column) = {
                                                      value.x / sum, value.y / sum, value.z / sum, value.w / sum};
                                                });
}

}  // namespace

int launch(const LatentAttentionArgs& args, std::byte* workspace, cudaStream_t stream) {
  if (args.tokens == 0) return cudaSuccess;
  static_assert(Stages<false>::bytes(kMostLatentRow) <= kPortableShared);
  const LatentAttentionShape& shape = args.shape;
  const LatentWork work = LatentWork::lay_out(args);
  launch_grid(append_latents, {.grid = dim3(grid_of(args.tokens)), .threads = kThreads}, stream, args,
              reinterpret_cast<std::int32_t*>(workspace + work.splits.counters));
  const std::int64_t row = latent_row(shape);
  const auto bytes = static_cast<std::size_t>(has_sm90() ? Stages<true>::bytes(row) : Stages<false>::bytes(row));
  auto* const attend = has_sm90() ? attend_latents<true> : attend_latents<false>;
  if (const cudaError_t error =
          cudaFuncSetAttribute(attend, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
      error != cudaSuccess)
    return error;
  int multiprocessors = 0;
  if (const cudaError_t error = count_multiprocessors(multiprocessors); error != cudaSuccess) return error;
  const std::int64_t most = args.span_count <= kSplitSpans ? kLatentTokens : kSplitSpans;
  const unsigned head_tiles = grid_of(shape.heads, kHeads);
  const bool tiles = has_tiles(args);
  for (std::int64_t first = 0; first < args.tokens; first += most) {
    const Chunk chunk{first, lesser(args.tokens - first, most),
                      reinterpret_cast<std::uint16_t*>(workspace + work.queries),
                      reinterpret_cast<float*>(workspace + work.attended)};
    cudaError_t error = tiles ? launch_heads<true>(absorb_keys<true>, args, chunk, shape.kv_lora_rank, stream)
                              : launch_heads<false>(absorb_keys<false>, args, chunk, shape.kv_lora_rank, stream);
    if (error != cudaSuccess) return error;
    const int shares = blocks_for_splits(chunk.count * head_tiles, kLatentSplits, multiprocessors);
    launch_grid(attend,
                {.grid = dim3(grid_of(chunk.count), head_tiles, static_cast<unsigned>(shares)),
                 .threads = kThreads,
                 .shared = bytes,
                 .early = false},
                stream, args, chunk, work.splits, workspace);
    error = tiles ? launch_heads<true>(project_values<true>, args, chunk, shape.v_head_dim, stream)
                  : launch_heads<false>(project_values<false>, args, chunk, shape.v_head_dim, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaGetLastError();
}

}  // namespace moracle::cuda
