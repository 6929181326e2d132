// The gated delta rule: a causal convolution, then a recurrence whose tokens are taken one after the other. A head's
// state is [key_dim, value_dim].
#include "kernels/cuda/arithmetic.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/ops/block.cuh"

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

// The convolution's input of a channel, `t` tokens from the first of the span; what is before it lies in the state.
__device__ float input_of(const DeltaRuleArgs& args, const RecurrentSpan& span, std::int64_t t, int channel) {
  const std::int64_t width = args.shape.channels();
  if (t >= 0) return args.mixed[(span.begin + t) * width + channel];
  return state_of(args, span.before)[(args.shape.kernel - 1 + t) * width + channel];
}

// The sequence of a token, -1 for none; all threads of a block ask for one.
__device__ std::int64_t span_of(const DeltaRuleArgs& args, std::int64_t token) {
  __shared__ std::int64_t found;
  if (threadIdx.x == 0) found = -1;
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < args.span_count; i += kThreads) {
    const std::int64_t offset = token - args.spans[i].begin;
    if (offset >= 0 && offset < args.spans[i].count) found = i;
  }
  __syncthreads();
  return found;
}

// Blocks (token, channels).
__global__ void __launch_bounds__(kThreads) convolve(const __grid_constant__ DeltaRuleArgs args) {
  const std::int64_t token = blockIdx.x;
  const std::int64_t span = span_of(args, token);
  const int channel = own_channel();
  if (span < 0 || channel >= args.shape.channels()) return;
  const RecurrentSpan at = args.spans[span];
  float sum = 0.0F;
  for (std::int64_t j = 0; j < args.shape.kernel; ++j) {
    const std::int64_t t = token - at.begin - (args.shape.kernel - 1) + j;
    sum = fmaf(args.taps[j * args.shape.channels() + channel], input_of(args, at, t, channel), sum);
  }
  args.work[token * args.shape.channels() + channel] = sum * sigmoid(sum);
}

// The last inputs of the convolution become its state. Blocks (sequence, channels); a thread takes a channel from the
// oldest on, so that both blocks may be one.
__global__ void __launch_bounds__(kThreads) keep_inputs(const __grid_constant__ DeltaRuleArgs args) {
  const RecurrentSpan span = args.spans[blockIdx.x];
  const int channel = own_channel();
  if (span.count == 0 || channel >= args.shape.channels()) return;
  const std::int64_t past = args.shape.kernel - 1;
  for (std::int64_t i = 0; i < past; ++i)
    state_of(args, span.after)[i * args.shape.channels() + channel] =
        input_of(args, span, span.count - past + i, channel);
}

// Step sizes and decays of every value head; q and k of length 1, q also times key_dim^-0.5. Blocks are tokens.
__global__ void __launch_bounds__(kThreads)
    prepare_heads(const __grid_constant__ DeltaRuleArgs args, float* beta, float* decay) {
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
    decay[at] = expf(-args.rate[h] * softplus(a + args.dt_bias[h]));
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

constexpr int kColumns = 16;  // of a block, eight lanes each: a lane has every eighth row of its column
constexpr int kLanes = 8;
constexpr int kStateThreads = kColumns * kLanes;
constexpr int kTokensAhead = 8;

__device__ float sum_of_lanes(float value) {
  for (int step = kLanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(~0U, value, step);
  return value;
}

// Blocks (columns, value head, sequence). kRows: of a lane at most. Tokens' keys and queries pass through shared
// memory, kTokensAhead at a time.
template <int kRows>
__global__ void __launch_bounds__(kStateThreads)
    recur(const __grid_constant__ DeltaRuleArgs args, const float* beta, const float* decay) {
  __shared__ float keys[kTokensAhead][kRows * kLanes];
  __shared__ float queries[kTokensAhead][kRows * kLanes];
  __shared__ float values[kTokensAhead][kColumns];
  __shared__ float steps[kTokensAhead][2];
  const DeltaNetShape& shape = args.shape;
  const RecurrentSpan span = args.spans[blockIdx.z];
  if (span.count == 0) return;
  const std::int64_t head = blockIdx.y;
  const auto dim = static_cast<int>(shape.key_dim);
  const auto width = static_cast<int>(shape.value_dim);
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int own = static_cast<int>(threadIdx.x) / kLanes;
  const int first_column = static_cast<int>(blockIdx.x) * kColumns;
  const int column = first_column + own;
  const std::int64_t offset = shape.conv_floats() + head * shape.value_dim * dim + column;
  const std::int64_t key_head = head / (shape.value_heads / shape.key_heads);
  float state[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = r * kLanes + lane;
    state[r] = row < dim && column < width
                   ? state_of(args, span.before)[offset + static_cast<std::int64_t>(row) * width]
                   : 0.0F;
  }
  for (std::int64_t from = 0; from < span.count; from += kTokensAhead) {
    const auto tokens = static_cast<int>(min(span.count - from, static_cast<std::int64_t>(kTokensAhead)));
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < tokens * kRows * kLanes; i += kStateThreads) {
      const int t = i / (kRows * kLanes);
      const int row = i % (kRows * kLanes);
      const float* const query = args.work + (span.begin + from + t) * shape.channels() + key_head * dim;
      queries[t][row] = row < dim ? query[row] : 0.0F;
      keys[t][row] = row < dim ? query[shape.key_width() + row] : 0.0F;
    }
    for (int i = static_cast<int>(threadIdx.x); i < tokens * kColumns; i += kStateThreads) {
      const std::int64_t token = span.begin + from + i / kColumns;
      const int c = first_column + i % kColumns;
      values[i / kColumns][i % kColumns] =
          c < width ? args.work[token * shape.channels() + 2 * shape.key_width() + head * width + c] : 0.0F;
    }
    if (threadIdx.x < 2 * tokens) {
      const std::int64_t at = (span.begin + from + threadIdx.x / 2) * shape.value_heads + head;
      steps[threadIdx.x / 2][threadIdx.x % 2] = threadIdx.x % 2 == 0 ? beta[at] : decay[at];
    }
    __syncthreads();
    for (int t = 0; t < tokens; ++t) {
      float seen = 0.0F;
#pragma unroll
      for (int r = 0; r < kRows; ++r) seen = fmaf(keys[t][r * kLanes + lane], state[r], seen);
      const float fade = steps[t][1];
      const float delta = steps[t][0] * (values[t][own] - fade * sum_of_lanes(seen));
      float out = 0.0F;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        state[r] = fmaf(keys[t][r * kLanes + lane], delta, fade * state[r]);
        out = fmaf(queries[t][r * kLanes + lane], state[r], out);
      }
      out = sum_of_lanes(out);
      if (lane == 0 && column < width)
        args.mixed[(span.begin + from + t) * shape.value_width() + head * width + column] = out;
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = r * kLanes + lane;
    if (row < dim && column < width)
      state_of(args, span.after)[offset + static_cast<std::int64_t>(row) * width] = state[r];
  }
}

// A warp takes a value head of a token.
__global__ void __launch_bounds__(kThreads) norm_and_gate(const __grid_constant__ DeltaRuleArgs args) {
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
  if (shape.grouped) ungroup<<<dim3(tokens, grid_of(shape.key_heads)), kThreads, 0, stream>>>(args);
  convolve<<<dim3(tokens, channels), kThreads, 0, stream>>>(args);
  keep_inputs<<<dim3(spans, channels), kThreads, 0, stream>>>(args);
  prepare_heads<<<tokens, kThreads, 0, stream>>>(args, beta, decay);
  const dim3 columns(grid_of(shape.value_dim, kColumns), grid_of(shape.value_heads), spans);
  if (shape.key_dim <= 128) {
    recur<128 / kLanes><<<columns, kStateThreads, 0, stream>>>(args, beta, decay);
  } else {
    recur<kMostKeyDim / kLanes><<<columns, kStateThreads, 0, stream>>>(args, beta, decay);
  }
  norm_and_gate<<<grid_of(args.tokens * shape.value_heads, kThreads / 32), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace moracle::cuda
