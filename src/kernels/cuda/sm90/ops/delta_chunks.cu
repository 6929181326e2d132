// The gated delta rule of many tokens of a sequence, 64 at a time by products (Yang et al., arXiv 2412.06464). With
// G(t, i) the decay from token i to token t, and S the state before the chunk, all sums in f32:
//
//   D = (I + tril(beta G k k^T, -1))^-1 beta (v - G k S)    what the tokens write
//   o = G q S + tril(G q k^T) D
//   S' = G S + (G k)^T D
//
// A kernel forms the inverse and the products of keys and queries, of every chunk and head at once; another goes from
// chunk to chunk, a block for 32 columns of a head's state. Decays are taken as sums of logarithms, so that none of
// them divides by what has become zero. Operands are two numbers of TF32 each.
#include "kernels/cuda/common/arithmetic.h"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/layout.h"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/ops/tf32.cuh"

namespace moracle::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kTokens = static_cast<int>(kDeltaChunk);
constexpr int kDim = static_cast<int>(kMostChunkDim);  // of keys; beyond a head's own: zeros
constexpr int kColumns = 32;                           // of values, of a block that walks
// Pitches at which the numbers of a fragment lie in banks of their own.
constexpr int kRowPitch = kDim + 4;
constexpr int kTilePitch = kTokens + 4;
constexpr int kColumnPitch = kColumns + 8;

// Where a chunk of a sequence lies.
struct ChunkPlace {
  std::int64_t first;  // token
  int tokens;          // 0: there is none
};

__device__ int chunks_of(const RecurrentSpan& span) {
  return span.count < kLeastChunked ? 0 : static_cast<int>((span.count + kDeltaChunk - 1) / kDeltaChunk);
}

// Chunk `index` of those of all sequences, one after the other. By a warp.
__device__ ChunkPlace find_chunk(const DeltaRuleArgs& args, int index) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (std::int64_t from = 0; from < args.span_count; from += 32) {
    const RecurrentSpan span = from + lane < args.span_count ? args.spans[from + lane] : RecurrentSpan{};
    const int own = chunks_of(span);
    int before = own;
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(~0U, before, step);
      if (lane >= step) before += other;
    }
    const int all = __shfl_sync(~0U, before, 31);
    before -= own;
    const unsigned here = __ballot_sync(~0U, index >= before && index < before + own);
    if (here != 0) {
      const std::int64_t offset = static_cast<std::int64_t>(index - before) * kTokens;
      const int owner = __ffs(static_cast<int>(here)) - 1;
      const std::int64_t first = __shfl_sync(~0U, span.begin + offset, owner);
      const std::int64_t left = __shfl_sync(~0U, span.count - offset, owner);
      return {first, static_cast<int>(min(left, kDeltaChunk))};
    }
    index -= all;
  }
  return {0, 0};
}

// Chunks of the sequences before one. By a warp.
__device__ int chunks_before(const DeltaRuleArgs& args, std::int64_t sequence) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int sum = 0;
  for (std::int64_t i = lane; i < sequence; i += 32) sum += chunks_of(args.spans[i]);
  return __reduce_add_sync(~0U, sum);
}

// What chunks leave for the walk, of each head.
struct ChunkWork {
  float* inverse;  // [64, 64], of columns times beta
  float* weights;  // [64, 64]: of what tokens before have written
  float* decays;   // [64]: logarithms of those from the chunk's first token on

  __device__ ChunkWork(const DeltaWork& work, std::byte* workspace, std::int64_t chunk, std::int64_t heads,
                       std::int64_t head) {
    const std::int64_t at = chunk * heads + head;
    inverse = reinterpret_cast<float*>(workspace + work.inverses) + at * kTokens * kTokens;
    weights = reinterpret_cast<float*>(workspace + work.weights) + at * kTokens * kTokens;
    decays = reinterpret_cast<float*>(workspace + work.decays) + at * kTokens;
  }
};

// Copies a chunk's rows of a head; zeros where there are no tokens or numbers.
__device__ __forceinline__ void copy_rows(float (*to)[kRowPitch], const float* from, std::int64_t stride, int tokens,
                                          int dim) {
  constexpr int kFours = kDim / 4;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kTokens * kFours; i += kThreads) {
    const int t = i / kFours;
    const int k = i % kFours * 4;
    const bool any = t < tokens && k < dim;
    copy_async(&to[t][k], any ? from + t * stride + k : from, any);
  }
}
__device__ __forceinline__ void copy_tile(float (*to)[kTilePitch], const float* from) {
  constexpr int kFours = kTokens / 4;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kTokens * kFours; i += kThreads)
    copy_async(&to[i / kFours][i % kFours * 4], from + i * 4);
}

// Of a warp: 16 rows, and columns from one on.
struct Lane {
  int lane = static_cast<int>(threadIdx.x) % 32;
  int warp = static_cast<int>(threadIdx.x) / 32;
  int row = lane / 4;
  int part = lane % 4;
};

// Fragment of rows `row` and `row` + 8 at columns `k` and `k` + 4.
template <int kPitch>
__device__ __forceinline__ SplitTf32<4> load_rows(const float (*from)[kPitch], int row, int k) {
  SplitTf32<4> a;
#pragma unroll
  for (int i = 0; i < 4; ++i) a.set(i, from[row + i % 2 * 8][k + i / 2 * 4]);
  return a;
}
template <int kPitch>
__device__ __forceinline__ SplitTf32<2> load_columns(const float (*from)[kPitch], int k, int column) {
  SplitTf32<2> b;
  b.set(0, from[k][column]);
  b.set(1, from[k + 4][column]);
  return b;
}

struct FormMemory {
  float keys[kTokens][kRowPitch];
  float queries[kTokens][kRowPitch];
  float below[kTokens][kTilePitch];  // beta G k k^T, of tokens before
  float decays[kTokens];
  float betas[kTokens];
  ChunkPlace place;
};

// Column `threadIdx.x` of (I + below)^-1, times beta.
__device__ __forceinline__ void invert(const FormMemory& memory, float* to) {
  const auto column = static_cast<int>(threadIdx.x);
  const float beta = memory.betas[column];
  float inverse[kTokens];
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    float sums[4] = {t == column ? 1.0F : 0.0F, 0.0F, 0.0F, 0.0F};
#pragma unroll
    for (int i = 0; i < t; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(&memory.below[t][i]);
      sums[0] = fmaf(-four.x, inverse[i], sums[0]);
      if (i + 1 < t) sums[1] = fmaf(-four.y, inverse[i + 1], sums[1]);
      if (i + 2 < t) sums[2] = fmaf(-four.z, inverse[i + 2], sums[2]);
      if (i + 3 < t) sums[3] = fmaf(-four.w, inverse[i + 3], sums[3]);
    }
    inverse[t] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    to[t * kTokens + column] = inverse[t] * beta;
  }
}

// Blocks (chunk, value head).
__global__ void __launch_bounds__(kThreads, 2)
    form_chunks(const __grid_constant__ DeltaRuleArgs args, const DeltaWork work, std::byte* workspace) {
  extern __shared__ __align__(16) std::uint8_t form_memory[];
  auto& memory = *reinterpret_cast<FormMemory*>(form_memory);
  const DeltaNetShape& shape = args.shape;
  const Lane at;
  if (at.warp == 0) {
    const ChunkPlace found = find_chunk(args, static_cast<int>(blockIdx.x));
    if (at.lane == 0) memory.place = found;
  }
  __syncthreads();
  const ChunkPlace place = memory.place;
  if (place.tokens == 0) return;
  const std::int64_t head = blockIdx.y;
  const std::int64_t key_head = head / (shape.value_heads / shape.key_heads);
  const auto dim = static_cast<int>(shape.key_dim);
  const float* const queries = args.work + place.first * shape.channels() + key_head * dim;
  copy_rows(memory.queries, queries, shape.channels(), place.tokens, dim);
  copy_rows(memory.keys, queries + shape.key_width(), shape.channels(), place.tokens, dim);
  commit_copies();
  const ChunkWork to(work, workspace, blockIdx.x, shape.value_heads, head);
  if (at.warp == 0) {
    const auto* const betas = reinterpret_cast<const float*>(workspace + work.beta);
    const auto* const logs = reinterpret_cast<const float*>(workspace + work.log_decay);
    float last = 0.0F;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int t = 32 * half + at.lane;
      const std::int64_t from = (place.first + t) * shape.value_heads + head;
      memory.betas[t] = t < place.tokens ? betas[from] : 0.0F;
      float sum = t < place.tokens ? logs[from] : 0.0F;
      for (int step = 1; step < 32; step *= 2) {
        const float other = __shfl_up_sync(~0U, sum, step);
        if (at.lane >= step) sum += other;
      }
      sum += last;
      last = __shfl_sync(~0U, sum, 31);
      memory.decays[t] = sum;
      to.decays[t] = sum;
    }
  }
  wait_copies<0>();
  __syncthreads();
  const int row = at.warp % 4 * 16 + at.row;
  const int columns = at.warp / 4 * 32;
  float of_keys[4][4] = {};
  float of_queries[4][4] = {};
#pragma unroll 2
  for (int k = at.part; k < kDim; k += 8) {
    const SplitTf32<4> keys = load_rows(memory.keys, row, k);
    const SplitTf32<4> asked = load_rows(memory.queries, row, k);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int column = columns + 8 * n;
      if (column > at.warp % 4 * 16 + 15) continue;  // tokens behind
      SplitTf32<2> b;
      b.set(0, memory.keys[column + at.row][k]);
      b.set(1, memory.keys[column + at.row][k + 4]);
      multiply_split(of_keys[n], keys, b);
      multiply_split(of_queries[n], asked, b);
    }
  }
#pragma unroll
  for (int n = 0; n < 4; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int t = row + 8 * half;
      const int first = columns + 8 * n + 2 * at.part;
      float2 weights{};
      float2 below{};
      if (first <= t) {
        const float decay = expf(memory.decays[t] - memory.decays[first]);
        weights.x = of_queries[n][2 * half] * decay;
        below.x = first < t ? of_keys[n][2 * half] * decay * memory.betas[t] : 0.0F;
      }
      if (first + 1 <= t) {
        const float decay = expf(memory.decays[t] - memory.decays[first + 1]);
        weights.y = of_queries[n][2 * half + 1] * decay;
        below.y = first + 1 < t ? of_keys[n][2 * half + 1] * decay * memory.betas[t] : 0.0F;
      }
      *reinterpret_cast<float2*>(to.weights + t * kTokens + first) = weights;
      *reinterpret_cast<float2*>(&memory.below[t][first]) = below;
    }
  }
  __syncthreads();
  if (threadIdx.x < kTokens) invert(memory, to.inverse);
}

struct WalkMemory {
  float keys[2][kTokens][kRowPitch];
  float queries[2][kTokens][kRowPitch];
  float inverse[kTokens][kTilePitch];
  float weights[kTokens][kTilePitch];
  float state[kDim][kColumnPitch];
  float wanted[kTokens][kColumnPitch];   // v - G k S
  float written[kTokens][kColumnPitch];  // D
  float decays[2][kTokens];
  float fades[kTokens];  // of what a token has written, at the chunk's end
  std::int32_t first_chunk;
};

// One sequence's columns of one value head.
class Walk {
 public:
  __device__ Walk(const DeltaRuleArgs& args, const DeltaWork& work, std::byte* workspace, WalkMemory& memory)
      : args_(args),
        work_(work),
        workspace_(workspace),
        memory_(memory),
        span_(args.spans[blockIdx.z]),
        head_(blockIdx.y),
        key_head_(blockIdx.y / static_cast<unsigned>(static_cast<int>(args.shape.value_heads) /
                                                     static_cast<int>(args.shape.key_heads))),
        first_column_(static_cast<int>(blockIdx.x) * kColumns),
        chunks_(chunks_of(span_)) {}

  __device__ void run() {
    if (chunks_ == 0) return;
    if (at_.warp == 0) {
      const int before = chunks_before(args_, blockIdx.z);
      if (at_.lane == 0) memory_.first_chunk = before;
    }
    load_state();
    __syncthreads();
    copy_inputs(0);
    copy_tile(memory_.inverse, work_of(0).inverse);
    commit_copies();
#pragma unroll 1
    for (int chunk = 0; chunk < chunks_; ++chunk) {
      wait_copies<0>();
      __syncthreads();
      copy_tile(memory_.weights, work_of(chunk).weights);
      commit_copies();
      if (chunk + 1 < chunks_) copy_inputs(chunk + 1);
      commit_copies();
      take(chunk);
    }
    store_state();
  }

 private:
  [[nodiscard]] __device__ ChunkWork work_of(int chunk) const {
    return {work_, workspace_, memory_.first_chunk + chunk, args_.shape.value_heads, head_};
  }
  [[nodiscard]] __device__ int tokens_of(int chunk) const {
    return static_cast<int>(min(span_.count - static_cast<std::int64_t>(chunk) * kTokens, kDeltaChunk));
  }
  [[nodiscard]] __device__ int width() const { return static_cast<int>(args_.shape.value_dim); }
  [[nodiscard]] __device__ int dim() const { return static_cast<int>(args_.shape.key_dim); }

  __device__ void copy_inputs(int chunk) {
    const DeltaNetShape& shape = args_.shape;
    const int stage = chunk % 2;
    const float* const queries =
        args_.work + (span_.begin + static_cast<std::int64_t>(chunk) * kTokens) * shape.channels() + key_head_ * dim();
    copy_rows(memory_.queries[stage], queries, shape.channels(), tokens_of(chunk), dim());
    copy_rows(memory_.keys[stage], queries + shape.key_width(), shape.channels(), tokens_of(chunk), dim());
    if (threadIdx.x < kTokens / 4)
      copy_async(&memory_.decays[stage][4 * threadIdx.x], work_of(chunk).decays + 4 * threadIdx.x);
  }

  // Numbers of the state that a lane sums: rows 16 warp + row and 8 further, of each tile of 8 columns.
  [[nodiscard]] __device__ int state_row(int i) const { return 16 * at_.warp + at_.row + i / 2 * 8; }
  [[nodiscard]] __device__ int state_column(int tile, int i) const { return 8 * tile + 2 * at_.part + i % 2; }
  [[nodiscard]] __device__ float* state_at(std::uint32_t block, int row, int column) const {
    return reinterpret_cast<float*>(args_.states.block(block)) + args_.shape.conv_floats() +
           (head_ * width() + first_column_ + column) * dim() + row;
  }
  // Calls body(number, row, column) for those that lie in the state.
  template <class Body>
  __device__ void each_number(const Body& body) {
#pragma unroll
    for (int tile = 0; tile < 4; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = state_row(i);
        const int column = state_column(tile, i);
        if (row < dim() && first_column_ + column < width()) body(state_[tile][i], row, column);
      }
    }
  }
  __device__ void load_state() {
#pragma unroll
    for (auto& tile : state_) tile[0] = tile[1] = tile[2] = tile[3] = 0.0F;
    each_number([&](float& number, int row, int column) { number = *state_at(span_.before, row, column); });
    show_state();
  }
  __device__ void store_state() {
    each_number([&](float number, int row, int column) { *state_at(span_.after, row, column) = number; });
  }
  __device__ void show_state() {
#pragma unroll
    for (int tile = 0; tile < 4; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; i += 2)
        *reinterpret_cast<float2*>(&memory_.state[state_row(i)][state_column(tile, i)]) = {state_[tile][i],
                                                                                           state_[tile][i + 1]};
    }
  }

  // Numbers of tokens and columns that a lane sums: rows `row()` and 8 further, of two tiles of 8 columns.
  [[nodiscard]] __device__ int row() const { return at_.warp % 4 * 16 + at_.row; }
  [[nodiscard]] __device__ int column(int tile) const { return at_.warp / 4 * 16 + 8 * tile + 2 * at_.part; }

  __device__ void take(int chunk) {
    const int stage = chunk % 2;
    const int tokens = tokens_of(chunk);
    const std::int64_t first = span_.begin + static_cast<std::int64_t>(chunk) * kTokens;
    const float* const decays = memory_.decays[stage];
    const float last = decays[kTokens - 1];
    if (threadIdx.x < kTokens) memory_.fades[threadIdx.x] = expf(last - decays[threadIdx.x]);
    const float since[2] = {expf(decays[row()]), expf(decays[row() + 8])};
    float2 values[2][2];
    load_values(first, tokens, values);
    float of_keys[2][4] = {};
    float out[2][4] = {};
    multiply_state(stage, of_keys, out);
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        *reinterpret_cast<float2*>(&memory_.wanted[row() + 8 * half][column(tile)]) = {
            fmaf(-since[half], of_keys[tile][2 * half], values[tile][half].x),
            fmaf(-since[half], of_keys[tile][2 * half + 1], values[tile][half].y)};
        out[tile][2 * half] *= since[half];
        out[tile][2 * half + 1] *= since[half];
      }
    }
    __syncthreads();
    float written[2][4] = {};
    multiply_lower(written, memory_.inverse, memory_.wanted);
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<float2*>(&memory_.written[row() + 8 * half][column(tile)]) = {written[tile][2 * half],
                                                                                        written[tile][2 * half + 1]};
    }
    wait_copies<1>();  // the weights
    __syncthreads();
    if (chunk + 1 < chunks_) copy_tile(memory_.inverse, work_of(chunk + 1).inverse);
    commit_copies();
    multiply_lower(out, memory_.weights, memory_.written);
    store_values(first, tokens, out);
    advance(stage, expf(last));
    show_state();
  }

  __device__ void load_values(std::int64_t first, int tokens, float2 (&values)[2][2]) const {
    const DeltaNetShape& shape = args_.shape;
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int t = row() + 8 * half;
        const int own = first_column_ + column(tile);
        values[tile][half] = {};
        if (t < tokens && own < width())
          values[tile][half] = *reinterpret_cast<const float2*>(args_.work + (first + t) * shape.channels() +
                                                                2 * shape.key_width() + head_ * width() + own);
      }
    }
  }
  __device__ void store_values(std::int64_t first, int tokens, const float (&out)[2][4]) const {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int t = row() + 8 * half;
        const int own = first_column_ + column(tile);
        if (t < tokens && own < width())
          *reinterpret_cast<float2*>(args_.mixed + (first + t) * args_.shape.value_width() + head_ * width() + own) = {
              out[tile][2 * half], out[tile][2 * half + 1]};
      }
    }
  }

  // Keys and queries of the chunk with the state.
  __device__ void multiply_state(int stage, float (&of_keys)[2][4], float (&of_queries)[2][4]) const {
#pragma unroll 4
    for (int k = at_.part; k < kDim; k += 8) {
      const SplitTf32<4> keys = load_rows(memory_.keys[stage], row(), k);
      const SplitTf32<4> queries = load_rows(memory_.queries[stage], row(), k);
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        const SplitTf32<2> b = load_columns(memory_.state, k, at_.warp / 4 * 16 + 8 * tile + at_.row);
        multiply_split(of_keys[tile], keys, b);
        multiply_split(of_queries[tile], queries, b);
      }
    }
  }
  // A lower triangle of tokens with columns.
  __device__ void multiply_lower(float (&sums)[2][4], const float (*rows)[kTilePitch],
                                 const float (*columns)[kColumnPitch]) const {
    const int end = at_.warp % 4 * 16 + 16;
#pragma unroll 2
    for (int k = at_.part; k < end; k += 8) {
      const SplitTf32<4> a = load_rows(rows, row(), k);
#pragma unroll
      for (int tile = 0; tile < 2; ++tile)
        multiply_split(sums[tile], a, load_columns(columns, k, at_.warp / 4 * 16 + 8 * tile + at_.row));
    }
  }
  // The state fades, and takes what the tokens have written.
  __device__ void advance(int stage, float fade) {
#pragma unroll
    for (auto& tile : state_) {
#pragma unroll
      for (float& number : tile) number *= fade;
    }
#pragma unroll 2
    for (int k = at_.part; k < kTokens; k += 8) {
      SplitTf32<4> keys;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = k + i / 2 * 4;
        keys.set(i, memory_.keys[stage][token][16 * at_.warp + at_.row + i % 2 * 8] * memory_.fades[token]);
      }
#pragma unroll
      for (int tile = 0; tile < 4; ++tile)
        multiply_split(state_[tile], keys, load_columns(memory_.written, k, 8 * tile + at_.row));
    }
  }

  const DeltaRuleArgs& args_;
  const DeltaWork& work_;
  std::byte* workspace_;
  WalkMemory& memory_;
  RecurrentSpan span_;
  std::int64_t head_;
  std::int64_t key_head_;
  int first_column_;
  int chunks_;
  Lane at_;
  float state_[4][4];
};

// Blocks (columns, value head, sequence).
__global__ void __launch_bounds__(kThreads, 1)
    walk_chunks(const __grid_constant__ DeltaRuleArgs args, const DeltaWork work, std::byte* workspace) {
  extern __shared__ __align__(16) std::uint8_t walk_memory[];
  Walk(args, work, workspace, *reinterpret_cast<WalkMemory*>(walk_memory)).run();
}

}  // namespace

bool has_delta_chunks(const DeltaRuleArgs& args) {
  const DeltaNetShape& shape = args.shape;
  return has_sm90() && delta_chunks(args) > 0 && shape.key_dim % 4 == 0 && shape.value_dim % 2 == 0 &&
         shape.channels() % 4 == 0 && shape.value_width() % 2 == 0 &&
         reinterpret_cast<std::uintptr_t>(args.work) % 16 == 0 &&
         reinterpret_cast<std::uintptr_t>(args.mixed) % 16 == 0;
}

int launch_delta_chunks(const DeltaRuleArgs& args, const DeltaWork& work, std::byte* workspace, cudaStream_t stream) {
  const DeltaNetShape& shape = args.shape;
  const auto allow = [](auto* kernel, std::size_t bytes) {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  };
  if (const cudaError_t error = allow(form_chunks, sizeof(FormMemory)); error != cudaSuccess) return error;
  if (const cudaError_t error = allow(walk_chunks, sizeof(WalkMemory)); error != cudaSuccess) return error;
  const auto heads = static_cast<unsigned>(shape.value_heads);
  form_chunks<<<dim3(static_cast<unsigned>(delta_chunks(args)), heads), kThreads, sizeof(FormMemory), stream>>>(
      args, work, workspace);
  const dim3 grid(grid_of(shape.value_dim, kColumns), heads, grid_of(args.span_count));
  walk_chunks<<<grid, kThreads, sizeof(WalkMemory), stream>>>(args, work, workspace);
  return cudaGetLastError();
}

}  // namespace moracle::cuda
