// The gated delta rule: a causal convolution, then a recurrence, whose tokens are taken one after the other here, and
// 64 at a time in delta_chunks.cu. A head's state is [value_dim, key_dim].
#include "kernels/cuda/common/arithmetic.h"
#include "kernels/cuda/common/grid.cuh"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/layout.h"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/ops/block.cuh"

namespace moracle::cuda {

namespace {

constexpr int kThreads = 256;
constexpr float kNormEpsilon = 1e-6F;  // inside the root of the l2 norms of q and k

__device__ float softplus(float x) {
  return x > 20.0F ? x : log1pf(expf(x));
}
__device__ float* state_of(const DeltaRuleArgs& args, std::uint32_t block) {
  return reinterpret_cast<float*>(args.states.block(block));
}
__device__ int own_channel() {
  return static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
}

// Rows of key heads to separate rows. Blocks (token, key head).
__global__ void __launch_bounds__(kThreads) ungroup(const __grid_constant__ DeltaRuleArgs args) {
  allow_next_grid();
  wait_for_last_grid();
  const DeltaNetShape& shape = args.shape;
  const std::int64_t token = blockIdx.x;
  const std::int64_t head = blockIdx.y;
  const auto dim = static_cast<int>(shape.key_dim);
  const auto share = static_cast<int>(shape.value_width() / shape.key_heads);
  const float* const from = args.work + token * (shape.channels() + shape.value_width()) + head * 2 * (dim + share);
  float* const mixed = args.mixed + token * shape.channels();
  for (int i = static_cast<int>(threadIdx.x); i < 2 * (dim + share); i += kThreads) {
    float* const to = i < dim               ? mixed + head * dim + i
                      : i < 2 * dim         ? mixed + shape.key_width() + head * dim + i - dim
                      : i < 2 * dim + share ? mixed + 2 * shape.key_width() + head * share + i - 2 * dim
                                            : args.z + token * shape.value_width() + head * share + i - 2 * dim - share;
    *to = from[i];
  }
}

// One channel, or four neighbours.
template <int kWide>
struct Channels {
  float of[kWide];
};
template <int kWide>
__device__ __forceinline__ Channels<kWide> load_channels(const float* from) {
  if constexpr (kWide == 4) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    return {four.x, four.y, four.z, four.w};
  } else {
    return {*from};
  }
}

// The convolution's inputs, `t` tokens from the first of the span; what is before it lies in the state.
template <int kWide>
__device__ __forceinline__ Channels<kWide> inputs_of(const DeltaRuleArgs& args, const RecurrentSpan& span,
                                                     std::int64_t t, int channel) {
  const std::int64_t width = args.shape.channels();
  return load_channels<kWide>(t >= 0 ? args.mixed + (span.begin + t) * width + channel
                                     : state_of(args, span.before) + (args.shape.kernel - 1 + t) * width + channel);
}

constexpr int kRun = 4;  // tokens of a block, whose inputs mostly are the same

// Blocks (run of tokens, channels).
template <int kWide>
__global__ void __launch_bounds__(kThreads) convolve(const __grid_constant__ DeltaRuleArgs args) {
  allow_next_grid();
  wait_for_last_grid();
  __shared__ std::int32_t spans[kRun];  // -1: no sequence has the token
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kRun;
  if (threadIdx.x < kRun) spans[threadIdx.x] = -1;
  __syncthreads();
  for (auto i = static_cast<std::int32_t>(threadIdx.x); i < args.span_count; i += kThreads) {
    const std::int64_t offset = first - args.spans[i].begin;
#pragma unroll
    for (int t = 0; t < kRun; ++t) {
      if (offset + t >= 0 && offset + t < args.spans[i].count) spans[t] = i;
    }
  }
  __syncthreads();
  const auto width = static_cast<int>(args.shape.channels());
  const auto taps = static_cast<int>(args.shape.kernel);
  const int channel = (static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x)) * kWide;
  if (channel >= width) return;
#pragma unroll
  for (int t = 0; t < kRun; ++t) {
    if (spans[t] < 0) continue;
    const RecurrentSpan at = args.spans[spans[t]];
    Channels<kWide> sums{};
    for (int j = 0; j < taps; ++j) {
      const Channels<kWide> weights = load_channels<kWide>(args.taps + j * width + channel);
      const Channels<kWide> inputs = inputs_of<kWide>(args, at, first + t - at.begin - (taps - 1) + j, channel);
#pragma unroll
      for (int i = 0; i < kWide; ++i) sums.of[i] = fmaf(weights.of[i], inputs.of[i], sums.of[i]);
    }
    float* const to = args.work + (first + t) * width + channel;
#pragma unroll
    for (float& sum : sums.of) sum *= sigmoid(sum);
    if constexpr (kWide == 4) {
      *reinterpret_cast<float4*>(to) = {sums.of[0], sums.of[1], sums.of[2], sums.of[3]};
    } else {
      *to = sums.of[0];
    }
  }
}

template <int kWide>
void launch_convolution(const DeltaRuleArgs& args, cudaStream_t stream) {
  launch_grid(
      convolve<kWide>,
      {.grid = dim3(grid_of(args.tokens, kRun), grid_of(args.shape.channels(), kThreads * kWide)), .threads = kThreads},
      stream, args);
}
bool has_whole_channels(const DeltaRuleArgs& args) {
  const auto whole = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 16 == 0; };
  return args.shape.channels() % 4 == 0 && whole(args.mixed) && whole(args.taps) && whole(args.work) &&
         whole(args.states.memory) && args.states.stride % 16 == 0;
}

// The last inputs of the convolution become its state. Blocks (sequence, channels); a thread takes a channel from the
// oldest on, so that both blocks may be one.
__global__ void __launch_bounds__(kThreads) keep_inputs(const __grid_constant__ DeltaRuleArgs args) {
  allow_next_grid();
  wait_for_last_grid();
  const RecurrentSpan span = args.spans[blockIdx.x];
  const int channel = own_channel();
  if (span.count == 0 || channel >= args.shape.channels()) return;
  const std::int64_t past = args.shape.kernel - 1;
  for (std::int64_t i = 0; i < past; ++i)
    state_of(args, span.after)[i * args.shape.channels() + channel] =
        inputs_of<1>(args, span, span.count - past + i, channel).of[0];
}

// Step sizes and decays of every value head; q and k of length 1, q also times key_dim^-0.5. Blocks are tokens.
__global__ void __launch_bounds__(kThreads)
    prepare_heads(const __grid_constant__ DeltaRuleArgs args, float* beta, float* decay, float* log_decay) {
  allow_next_grid();
  wait_for_last_grid();
  const DeltaNetShape& shape = args.shape;
  const std::int64_t token = blockIdx.x;
  const auto heads = static_cast<int>(shape.value_heads);
  const auto ratio = static_cast<int>(shape.value_heads / shape.key_heads);
  for (int h = static_cast<int>(threadIdx.x); h < heads; h += kThreads) {
    const std::int64_t at = token * heads + h;
    const float* const group = args.b + 2 * (token * heads + h / ratio * ratio) + h % ratio;
    const float b = shape.grouped ? group[0] : args.b[at];
    const float a = shape.grouped ? group[ratio] : args.a[at];
    beta[at] = sigmoid(b);
    log_decay[at] = -args.rate[h] * softplus(a + args.dt_bias[h]);
    decay[at] = expf(log_decay[at]);
  }
  const auto dim = static_cast<int>(shape.key_dim);
  const float scale = rsqrtf(static_cast<float>(dim));
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int h = static_cast<int>(threadIdx.x) / 32; h < 2 * shape.key_heads; h += kThreads / 32) {
    float* const vector = args.work + token * shape.channels() + static_cast<std::int64_t>(h) * dim;
    float squares = 0.0F;
    for (int i = lane; i < dim; i += 32) squares += vector[i] * vector[i];
    const float inverse = rsqrtf(warp_sum(squares) + kNormEpsilon) * (h < shape.key_heads ? scale : 1.0F);
    for (int i = lane; i < dim; i += 32) vector[i] *= inverse;
  }
}

constexpr int kColumns = 16;  // of a block, eight lanes each
constexpr int kLanes = 8;
constexpr int kStateThreads = kColumns * kLanes;
constexpr int kTokensAhead = 8;

__device__ float sum_of_lanes(float value) {
  for (int step = kLanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(~0U, value, step);
  return value;
}

// What tokens bring to a block of columns. Rows beyond key_dim are zeros.
template <int kDim>
struct TokenInputs {
  alignas(16) float keys[kTokensAhead][kDim];
  alignas(16) float queries[kTokensAhead][kDim];
  float values[kTokensAhead][kColumns];
  float steps[kTokensAhead][2];  // beta, decay

  __device__ void clear() {
    for (int i = static_cast<int>(threadIdx.x); i < kTokensAhead * kDim; i += kStateThreads)
      keys[i / kDim][i % kDim] = queries[i / kDim][i % kDim] = 0.0F;
  }
};

// One sequence's columns of one value head.
struct StateColumns {
  std::int64_t head;
  std::int64_t key_head;
  int first;  // column
  int dim;    // of keys
  int width;  // of values

  __device__ explicit StateColumns(const DeltaNetShape& shape)
      : head(blockIdx.y),
        key_head(blockIdx.y /
                 static_cast<unsigned>(static_cast<int>(shape.value_heads) / static_cast<int>(shape.key_heads))),
        first(static_cast<int>(blockIdx.x) * kColumns),
        dim(static_cast<int>(shape.key_dim)),
        width(static_cast<int>(shape.value_dim)) {}
};

__device__ void copy_number(float* to, const float* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

template <int kDim>
__device__ void copy_inputs(const DeltaRuleArgs& args, const DeltaWork& work, const std::byte* workspace,
                            const StateColumns& own, std::int64_t first_token, int tokens, TokenInputs<kDim>& to) {
  const DeltaNetShape& shape = args.shape;
  const auto* const beta = reinterpret_cast<const float*>(workspace + work.beta);
  const auto* const decay = reinterpret_cast<const float*>(workspace + work.decay);
  for (int t = 0; t < tokens; ++t) {
    const std::int64_t token = first_token + t;
    const float* const query = args.work + token * shape.channels() + own.key_head * own.dim;
    for (int row = static_cast<int>(threadIdx.x); row < own.dim; row += kStateThreads) {
      copy_number(&to.queries[t][row], query + row);
      copy_number(&to.keys[t][row], query + shape.key_width() + row);
    }
  }
  const int t = static_cast<int>(threadIdx.x) / kColumns;
  const int column = static_cast<int>(threadIdx.x) % kColumns;
  static_assert(kStateThreads == kTokensAhead * kColumns);
  if (t < tokens) {
    const std::int64_t token = first_token + t;
    const float* const value = args.work + token * shape.channels() + 2 * shape.key_width() + own.head * own.width;
    copy_number(&to.values[t][column], value + min(own.first + column, own.width - 1));
    const float* const step = (column % 2 == 0 ? beta : decay) + token * shape.value_heads + own.head;
    if (column < 2) copy_number(&to.steps[t][column], step);
  }
  commit_copies();
}

// Blocks (columns, value head, sequence). Of every 32 rows of its column, a lane has four in a row; the state lies in
// memory column by column. `chunked`: sequences of many tokens are left out. Tokens' inputs are copied to shared memory
// while those before are worked on.
template <int kDim>
__global__ void __launch_bounds__(kStateThreads, 4)
    recur(const __grid_constant__ DeltaRuleArgs args, const DeltaWork work, const std::byte* workspace, bool chunked) {
  allow_next_grid();
  wait_for_last_grid();
  extern __shared__ uint4 memory[];
  auto* const inputs = reinterpret_cast<TokenInputs<kDim>*>(memory);
  const DeltaNetShape& shape = args.shape;
  const RecurrentSpan span = args.spans[blockIdx.z];
  if (span.count == 0 || (chunked && span.count >= kLeastChunked)) return;
  const StateColumns own(shape);
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int local = static_cast<int>(threadIdx.x) / kLanes;
  const int column = own.first + local;
  const std::int64_t offset = shape.conv_floats() + (own.head * own.width + column) * own.dim;
  inputs[0].clear();
  inputs[1].clear();
  __syncthreads();
  constexpr int kRows = kDim / kLanes;  // of a lane
  const auto row_of = [&](int r) { return r / 4 * 4 * kLanes + lane * 4 + r % 4; };
  float state[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    state[r] = row_of(r) < own.dim && column < own.width ? state_of(args, span.before)[offset + row_of(r)] : 0.0F;
  const auto ahead = [&](std::int64_t from) {
    return static_cast<int>(max(std::int64_t{0}, min(span.count - from, std::int64_t{kTokensAhead})));
  };
  copy_inputs(args, work, workspace, own, span.begin, ahead(0), inputs[0]);
  for (std::int64_t from = 0, stage = 0; from < span.count; from += kTokensAhead, stage ^= 1) {
    const std::int64_t next = from + kTokensAhead;
    copy_inputs(args, work, workspace, own, span.begin + next, ahead(next), inputs[stage ^ 1]);
    wait_copies<1>();
    __syncthreads();
    const TokenInputs<kDim>& in = inputs[stage];
    for (int t = 0; t < ahead(from); ++t) {
      float4 key[kRows / 4];
      float4 query[kRows / 4];
#pragma unroll
      for (int i = 0; i < kRows / 4; ++i) {
        key[i] = *reinterpret_cast<const float4*>(&in.keys[t][row_of(4 * i)]);
        query[i] = *reinterpret_cast<const float4*>(&in.queries[t][row_of(4 * i)]);
      }
      float4 seen{};
#pragma unroll
      for (int i = 0; i < kRows / 4; ++i) {
        seen.x = fmaf(key[i].x, state[4 * i], seen.x);
        seen.y = fmaf(key[i].y, state[4 * i + 1], seen.y);
        seen.z = fmaf(key[i].z, state[4 * i + 2], seen.z);
        seen.w = fmaf(key[i].w, state[4 * i + 3], seen.w);
      }
      const float fade = in.steps[t][1];
      const float sum = sum_of_lanes((seen.x + seen.y) + (seen.z + seen.w));
      const float delta = in.steps[t][0] * fmaf(-fade, sum, in.values[t][local]);
      float4 out{};
#pragma unroll
      for (int i = 0; i < kRows / 4; ++i) {
        state[4 * i] = fmaf(key[i].x, delta, fade * state[4 * i]);
        state[4 * i + 1] = fmaf(key[i].y, delta, fade * state[4 * i + 1]);
        state[4 * i + 2] = fmaf(key[i].z, delta, fade * state[4 * i + 2]);
        state[4 * i + 3] = fmaf(key[i].w, delta, fade * state[4 * i + 3]);
        out.x = fmaf(query[i].x, state[4 * i], out.x);
        out.y = fmaf(query[i].y, state[4 * i + 1], out.y);
        out.z = fmaf(query[i].z, state[4 * i + 2], out.z);
        out.w = fmaf(query[i].w, state[4 * i + 3], out.w);
      }
      const float result = sum_of_lanes((out.x + out.y) + (out.z + out.w));
      if (lane == 0 && column < own.width)
        args.mixed[(span.begin + from + t) * shape.value_width() + own.head * own.width + column] = result;
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (row_of(r) < own.dim && column < own.width) state_of(args, span.after)[offset + row_of(r)] = state[r];
  }
}

template <int kDim>
int launch_recur(const DeltaRuleArgs& args, const DeltaWork& work, const std::byte* workspace, bool chunked,
                 cudaStream_t stream) {
  const DeltaNetShape& shape = args.shape;
  constexpr int kBytes = 2 * sizeof(TokenInputs<kDim>);
  if (const cudaError_t error = cudaFuncSetAttribute(recur<kDim>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
      error != cudaSuccess)
    return error;
  const dim3 grid(grid_of(shape.value_dim, kColumns), grid_of(shape.value_heads), grid_of(args.span_count));
  launch_grid(recur<kDim>, {.grid = grid, .threads = kStateThreads, .shared = kBytes}, stream, args, work, workspace,
              chunked);
  return cudaGetLastError();
}

// A warp takes a value head of a token.
__global__ void __launch_bounds__(kThreads) norm_and_gate(const __grid_constant__ DeltaRuleArgs args) {
  allow_next_grid();
  wait_for_last_grid();
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (row >= args.tokens * args.shape.value_heads) return;
  const auto dim = static_cast<int>(args.shape.value_dim);
  float* const vector = args.mixed + row * dim;
  const float* const z = args.z + row * dim;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float squares = 0.0F;
  for (int i = lane; i < dim; i += 32) squares += vector[i] * vector[i];
  const float inverse = rsqrtf(__fdividef(warp_sum(squares), static_cast<float>(dim)) + args.norm.eps);
  for (int i = lane; i < dim; i += 32) {
    const float normed = args.norm.weight[i] * (vector[i] * inverse);
    vector[i] = z[i] * sigmoid(z[i]) * normed;
  }
}

}  // namespace

int launch(const DeltaRuleArgs& args, std::byte* workspace, cudaStream_t stream) {
  if (args.tokens == 0) return cudaSuccess;
  const DeltaNetShape& shape = args.shape;
  const DeltaWork work = DeltaWork::lay_out(args);
  auto* const beta = reinterpret_cast<float*>(workspace + work.beta);
  auto* const decay = reinterpret_cast<float*>(workspace + work.decay);
  const unsigned tokens = grid_of(args.tokens);
  const unsigned spans = grid_of(args.span_count);
  const unsigned channels = grid_of(shape.channels(), kThreads);
  if (shape.grouped)
    launch_grid(ungroup, {.grid = dim3(tokens, grid_of(shape.key_heads)), .threads = kThreads}, stream, args);
  has_whole_channels(args) ? launch_convolution<4>(args, stream) : launch_convolution<1>(args, stream);
  launch_grid(keep_inputs, {.grid = dim3(spans, channels), .threads = kThreads}, stream, args);
  auto* const log_decay = reinterpret_cast<float*>(workspace + work.log_decay);
  launch_grid(prepare_heads, {.grid = dim3(tokens), .threads = kThreads}, stream, args, beta, decay, log_decay);
  const bool chunked = has_delta_chunks(args);
  int error = shape.key_dim <= 128 ? launch_recur<128>(args, work, workspace, chunked, stream)
                                   : launch_recur<kMostKeyDim>(args, work, workspace, chunked, stream);
  if (error == cudaSuccess && chunked) error = launch_delta_chunks(args, work, workspace, stream);
  if (error != cudaSuccess) return error;
  launch_grid(norm_and_gate,
              {.grid = dim3(grid_of(args.tokens * shape.value_heads, kThreads / 32)), .threads = kThreads}, stream,
              args);
  return cudaGetLastError();
}

}  // namespace moracle::cuda
