// What a model needs beside matrices.
#include "kernels/cuda/arithmetic.h"
#include "kernels/cuda/launch.h"

namespace moracle::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr float kLowest = -3.402823466e38F;

// Element k of a row of codes.
__device__ float element(const PackArgs& pack, const std::uint8_t* line, int k, int zero) {
  const auto* const words = reinterpret_cast<const std::uint32_t*>(line);
  switch (pack.code) {
    case DeviceCode::int4:
      return decode_bf16(Int4::decode(words, k, zero, 0));
    case DeviceCode::int8:
      return decode_bf16(Int8::decode(words, k, zero, 0));
    case DeviceCode::e2m1:
      return decode_bf16(E2m1::decode(words, k, zero, 0));
    case DeviceCode::e4m3:
      return decode_bf16(E4m3::decode(words, k, zero, 0));
    case DeviceCode::bf16:
      return decode_bf16(Bf16::decode(words, k, zero, 0));
    case DeviceCode::f16:
      return decode_f16(reinterpret_cast<const std::uint16_t*>(line)[k]);
    case DeviceCode::f32:
      break;
  }
  return reinterpret_cast<const float*>(line)[k];
}

__global__ void __launch_bounds__(kThreads) embed(const __grid_constant__ EmbedArgs args) {
  const std::int64_t token = blockIdx.x;
  const std::int64_t row = args.ids[token];
  const MatrixArgs& matrix = args.matrix;
  const std::uint8_t* const weights = args.pack.weights;
  const std::uint8_t* const line = weights + matrix.codes + row * matrix.padded * bits_of(args.pack.code) / 8;
  const auto* const order =
      matrix.order != kAbsent ? reinterpret_cast<const std::int32_t*>(weights + matrix.order) : nullptr;
  const float global = *reinterpret_cast<const float*>(weights + matrix.global_scale);
  for (int k = static_cast<int>(threadIdx.x); k < matrix.cols; k += kThreads) {
    const std::int64_t group = row * matrix.groups + k / matrix.group;
    const int zero = matrix.zeros != kAbsent ? weights[matrix.zeros + group] : neutral_zero(args.pack.code);
    const float scale = matrix.scales != kAbsent ? decode_scale(args.pack.scale, weights + matrix.scales, group) : 1.0F;
    args.out[token * matrix.cols + (order != nullptr ? order[k] : k)] =
        element(args.pack, line, k, zero) * (scale * global);
  }
}

// A value and its index; the larger value ranks first, of equal ones the lower index. -1: none.
struct Ranked {
  float value;
  int index;
};
__device__ Ranked better(const Ranked& a, const Ranked& b) {
  if (a.index < 0) return b;
  if (b.index < 0) return a;
  return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}

// The best of the block; every thread gets it.
__device__ Ranked block_best(Ranked own) {
  __shared__ Ranked best[kWarps];
  for (int step = 16; step > 0; step /= 2) {
    const Ranked other{__shfl_xor_sync(~0U, own.value, step), __shfl_xor_sync(~0U, own.index, step)};
    own = better(own, other);
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) best[threadIdx.x / 32] = own;
  __syncthreads();
  for (int warp = 0; warp < kWarps; ++warp) own = better(own, best[warp]);
  return own;
}

__device__ float block_sum(float value) {
  __shared__ float sums[kWarps];
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0U, value, step);
  __syncthreads();
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.0F;
  for (int warp = 0; warp < kWarps; ++warp) total += sums[warp];
  return total;
}

__global__ void __launch_bounds__(kThreads) rms_norm(const __grid_constant__ RmsNormArgs args) {
  const float* const x = args.x + static_cast<std::int64_t>(blockIdx.x) * args.cols;
  float* const out = args.out + static_cast<std::int64_t>(blockIdx.x) * args.cols;
  float squares = 0.0F;
  for (int k = static_cast<int>(threadIdx.x); k < args.cols; k += kThreads) squares += x[k] * x[k];
  const float scale = 1.0F / sqrtf(block_sum(squares) / static_cast<float>(args.cols) + args.eps);
  for (int k = static_cast<int>(threadIdx.x); k < args.cols; k += kThreads) out[k] = x[k] * scale * args.weight[k];
}

__global__ void __launch_bounds__(kThreads) add(const __grid_constant__ AddArgs args) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at < args.count) args.sum[at] += args.x[at];
}

__device__ float route_score(RouteScore score, float logit, float top) {
  switch (score) {
    case RouteScore::softmax:
      return expf(logit - top);
    case RouteScore::sigmoid:
      return sigmoid(logit);
    case RouteScore::sqrt_softplus:
      return sqrtf(logit > 20.0F ? logit : log1pf(expf(logit)));
    case RouteScore::logit:
      break;
  }
  return logit;
}

struct RouteRow {
  float scores[kMostRouted];
  float choice[kMostRouted];
  float groups[kMostRouted];
  bool taken[kMostRouted];
};

// Puts experts outside the best groups out of the running.
__device__ void keep_best_groups(const RouteArgs& args, RouteRow& row) {
  const int width = args.shape.experts / args.shape.groups;
  for (int g = static_cast<int>(threadIdx.x); g < args.shape.groups; g += kThreads) {
    float first = kLowest;
    float second = kLowest;
    for (int i = g * width; i < (g + 1) * width; ++i) {
      const float value = row.choice[i];
      if (value > first) {
        second = first;
        first = value;
      } else {
        second = fmaxf(second, value);
      }
    }
    row.groups[g] = args.shape.groups_by == RouteGroups::best || width < 2 ? first : first + second;
    row.taken[g] = false;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int n = 0; n < args.shape.top_groups; ++n) {
      Ranked best{0.0F, -1};
      for (int g = 0; g < args.shape.groups; ++g) {
        if (!row.taken[g]) best = better(best, {row.groups[g], g});
      }
      if (best.index >= 0) row.taken[best.index] = true;
    }
  }
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < args.shape.experts; e += kThreads) {
    if (!row.taken[e / width]) row.choice[e] = -INFINITY;
  }
  __syncthreads();
}

__device__ void weigh(const RouteArgs& args, const RouteRow& row, const float* logits, const std::int32_t* ids,
                      float* weights) {
  int taken = 0;
  while (taken < args.shape.top_k && ids[taken] >= 0) ++taken;
  for (int i = 0; i < args.shape.top_k; ++i) {
    weights[i] = ids[i] < 0                                           ? 0.0F
                 : args.shape.weight == RouteWeight::sigmoid_of_logit ? sigmoid(logits[ids[i]])
                                                                      : row.scores[ids[i]];
  }
  if (args.shape.weight == RouteWeight::softmax_of_chosen && taken > 0) {
    float top = weights[0];
    for (int i = 1; i < taken; ++i) top = fmaxf(top, weights[i]);
    float sum = 0.0F;
    for (int i = 0; i < taken; ++i) {
      weights[i] = expf(weights[i] - top);
      sum += weights[i];
    }
    for (int i = 0; i < taken; ++i) weights[i] /= sum;
  }
  float divisor = 1.0F;
  if (args.shape.renormalize != 0) {
    float sum = 0.0F;
    for (int i = 0; i < args.shape.top_k; ++i) sum += weights[i];
    if (sum > 0.0F) divisor = sum;
  }
  for (int i = 0; i < args.shape.top_k; ++i) weights[i] = weights[i] / divisor * args.shape.factor;
}

__global__ void __launch_bounds__(kThreads) route(const __grid_constant__ RouteArgs args) {
  __shared__ RouteRow row;
  const std::int64_t token = blockIdx.x;
  const float* const logits = args.logits + token * args.shape.experts;
  std::int32_t* const ids = args.ids + token * args.shape.top_k;
  float* const weights = args.weights + token * args.shape.top_k;
  Ranked top{0.0F, -1};
  bool bad = false;
  for (int e = static_cast<int>(threadIdx.x); e < args.shape.experts; e += kThreads) {
    bad = bad || !isfinite(logits[e]);
    top = better(top, {logits[e], e});
  }
  if (__syncthreads_or(bad ? 1 : 0) != 0) {
    for (int i = static_cast<int>(threadIdx.x); i < args.shape.top_k; i += kThreads) {
      ids[i] = -1;
      weights[i] = 0.0F;
    }
    if (threadIdx.x == 0 && args.bad_layer != nullptr) args.bad_layer[token] = min(args.bad_layer[token], args.layer);
    return;
  }
  const float most = block_best(top).value;
  float sum = 0.0F;
  for (int e = static_cast<int>(threadIdx.x); e < args.shape.experts; e += kThreads) {
    row.scores[e] = route_score(args.shape.score, logits[e], most);
    sum += row.scores[e];
  }
  const float divisor = args.shape.score == RouteScore::softmax ? block_sum(sum) : 1.0F;
  for (int e = static_cast<int>(threadIdx.x); e < args.shape.experts; e += kThreads) {
    row.scores[e] /= divisor;
    row.choice[e] = row.scores[e] + (args.bias != nullptr ? args.bias[e] : 0.0F);
  }
  __syncthreads();
  if (args.shape.groups_by != RouteGroups::none && args.shape.groups > 1) keep_best_groups(args, row);
  for (int e = static_cast<int>(threadIdx.x); e < args.shape.experts; e += kThreads) row.taken[e] = false;
  __syncthreads();
  for (int i = 0; i < args.shape.top_k; ++i) {
    int id = -1;
    if (args.prescribed != nullptr) {
      id = args.prescribed[token * args.shape.top_k + i];
      if (id < 0 || id >= args.shape.experts) id = -1;
    } else {
      Ranked best{0.0F, -1};
      for (int e = static_cast<int>(threadIdx.x); e < args.shape.experts; e += kThreads) {
        if (!row.taken[e]) best = better(best, {row.choice[e], e});
      }
      id = block_best(best).index;
    }
    if (threadIdx.x == 0) {
      ids[i] = id;
      if (id >= 0) row.taken[id] = true;
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) weigh(args, row, logits, ids, weights);
}

__global__ void __launch_bounds__(kThreads) top_k(const __grid_constant__ RankArgs args) {
  const std::int64_t row = blockIdx.x;
  if (args.bad != nullptr && args.bad[row] != 0) return;
  const float* const x = args.x + row * args.cols;
  const int cols = static_cast<int>(args.cols);
  Ranked last{0.0F, -1};
  for (std::int64_t i = 0; i < args.k; ++i) {
    Ranked best{0.0F, -1};
    for (int k = static_cast<int>(threadIdx.x); k < cols; k += kThreads) {
      const bool later = i == 0 || x[k] < last.value || (x[k] == last.value && k > last.index);
      if (later) best = better(best, {x[k], k});
    }
    last = block_best(best);
    if (threadIdx.x == 0) args.out[row * args.k + i] = {last.value, last.index};
  }
}

unsigned blocks(std::int64_t count) {
  return static_cast<unsigned>(count);
}

}  // namespace

int launch(const EmbedArgs& args, cudaStream_t stream) {
  if (args.tokens > 0) embed<<<blocks(args.tokens), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

int launch(const RmsNormArgs& args, cudaStream_t stream) {
  if (args.rows > 0) rms_norm<<<blocks(args.rows), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

int launch(const AddArgs& args, cudaStream_t stream) {
  if (args.count > 0) add<<<blocks((args.count + kThreads - 1) / kThreads), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

int launch(const RouteArgs& args, cudaStream_t stream) {
  if (args.shape.experts > kMostRouted) return cudaErrorInvalidValue;
  if (args.tokens > 0) route<<<blocks(args.tokens), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

int launch(const RankArgs& args, cudaStream_t stream) {
  if (args.seeds != nullptr) return cudaErrorNotSupported;
  if (args.rows > 0) top_k<<<blocks(args.rows), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace moracle::cuda
