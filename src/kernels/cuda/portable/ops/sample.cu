// Sampling: many blocks of threads look for the best of a row, then one chooses. From the logits on, numbers are
// double, as on the host; sums of probabilities that choose what is kept are integers, so that their order changes
// nothing.
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/layout.h"
#include "kernels/cuda/portable/ops/noise.cuh"
#include "kernels/cuda/portable/ops/select.cuh"

namespace moracle::cuda {

namespace {

// Tokens, ids ascending.
struct AllTokens {
  const float* at;
  int count;
  [[nodiscard]] __device__ float logit(int i) const { return at[i]; }
  [[nodiscard]] __device__ std::int32_t id(int i) const { return i; }
};
struct ListedTokens {
  const TokenLogit* at;
  int count;
  [[nodiscard]] __device__ float logit(int i) const { return at[i].logit; }
  [[nodiscard]] __device__ std::int32_t id(int i) const { return at[i].id; }
};

// The part of a list that a row has.
template <class T>
struct Part {
  const T* at = nullptr;
  int count = 0;
  __device__ Part(const T* list, const std::int32_t* start, std::int64_t row) {
    if (start == nullptr) return;
    at = list + start[row];
    count = start[row + 1] - start[row];
  }
};

__device__ void penalize(float* logits, std::int32_t vocab, const SampleParams& params,
                         const Part<TokenCount>& counts) {
  const auto repetition = static_cast<float>(params.repetition_penalty);
  const auto presence = static_cast<float>(params.presence_penalty);
  const auto frequency = static_cast<float>(params.frequency_penalty);
  constexpr float kLargest = 3.402823466e38F;
  const auto bounded = [](float logit) { return fminf(fmaxf(logit, -kLargest), kLargest); };
  for (int i = static_cast<int>(threadIdx.x); i < counts.count; i += kSampleThreads) {
    const TokenCount token = counts.at[i];
    if (token.id < 0 || token.id >= vocab) continue;
    float logit = logits[token.id];
    if (!isfinite(logit)) continue;
    if (repetition != 1.0F) logit = bounded(logit < 0.0F ? logit * repetition : logit / repetition);
    // The host rounds each step: no fused one may take their place.
    if (token.answered != 0 && (presence != 0.0F || frequency != 0.0F)) {
      const float often = __fmul_rn(static_cast<float>(token.answered), frequency);
      logit = bounded(__fsub_rn(__fsub_rn(logit, often), presence));
    }
    logits[token.id] = logit;
  }
  __syncthreads();
}

// The first of a token's biases adds all of them.
__device__ void add_biases(float* logits, const Part<LogitBias>& biases) {
  for (int i = static_cast<int>(threadIdx.x); i < biases.count; i += kSampleThreads) {
    const std::int32_t id = biases.at[i].id;
    bool first = true;
    for (int j = 0; j < i; ++j) first = first && biases.at[j].id != id;
    for (int j = i; first && j < biases.count; ++j) {
      if (biases.at[j].id == id) logits[id] += biases.at[j].bias;
    }
  }
  __syncthreads();
}

// What changes a row's logits before it chooses.
struct Changes {
  Part<TokenCount> counts;
  Part<LogitBias> biases;
  bool penalizes;
  bool any;

  __device__ Changes(const SampleArgs& args, std::int64_t row)
      : counts(args.counts, args.counts_start, row),
        biases(args.bias, args.bias_start, row),
        penalizes(args.params[row].penalizes() && counts.count > 0),
        any(penalizes || biases.count > 0 || args.mask != nullptr) {}
};

__device__ const float* logits_of(const SampleArgs& args, std::int64_t row) {
  return args.logits + (args.logit_row != nullptr ? args.logit_row[row] : row) * std::int64_t{args.vocab};
}

// The logits that a row chooses from. `changed`: [rows, vocab], what change_logits writes.
__device__ const float* chosen_logits(const SampleArgs& args, std::int64_t row, const float* changed) {
  return Changes(args, row).any ? changed + row * args.vocab : logits_of(args, row);
}

// Whether a row chooses among all logits.
__device__ bool chooses_from_all(const SampleArgs& args, std::int64_t row) {
  if (Part<TokenLogit>(args.candidates, args.candidates_start, row).count > 0) return false;
  return args.given == nullptr || args.given[row] < 0;
}

// Blocks are rows.
__global__ void __launch_bounds__(kSampleThreads)
    change_logits(const __grid_constant__ SampleArgs args, float* changed) {
  const std::int64_t row = blockIdx.x;
  const Changes changes(args, row);
  if (!changes.any || !chooses_from_all(args, row)) return;
  const float* const logits = logits_of(args, row);
  float* const own = changed + row * args.vocab;
#pragma unroll 8
  for (int i = static_cast<int>(threadIdx.x); i < args.vocab; i += kSampleThreads) own[i] = logits[i];
  __syncthreads();
  if (changes.penalizes) penalize(own, args.vocab, args.params[row], changes.counts);
  add_biases(own, changes.biases);
  if (args.mask == nullptr) return;
  const std::uint32_t* const words = args.mask + row * mask_words(args.vocab);
  for (int i = static_cast<int>(threadIdx.x); i < args.vocab; i += kSampleThreads) {
    if ((words[i / 32] >> (i % 32) & 1U) == 0) own[i] = -INFINITY;
  }
}

// Quotients by one divisor, correctly rounded: Markstein's correction, IBM Journal of Research and Development 34.
class Divided {
 public:
  explicit __device__ Divided(double divisor) : divisor_(divisor), inverse_(1.0 / divisor) {}
  [[nodiscard]] __device__ double operator()(double x) const {
    const double quotient = x * inverse_;
    return isfinite(quotient) ? fma(fma(-divisor_, quotient, x), inverse_, quotient) : quotient;
  }

 private:
  double divisor_;
  double inverse_;
};

// What of a row is kept, and what it weighs.
struct Kept {
  std::uint64_t threshold;
  float best;
  Divided by_temperature;
  double min_p;

  [[nodiscard]] __device__ double likelihood(float logit) const {
    return exp(by_temperature(static_cast<double>(logit) - static_cast<double>(best)));
  }
  [[nodiscard]] __device__ double weight(float logit, std::int32_t id) const {
    if (logit == -INFINITY || order_of(logit, id) < threshold) return 0.0;
    const double each = likelihood(logit);  // the best one weighs 1
    return each < min_p ? 0.0 : each;
  }
};

// Tokens [begin, end), the mass of those before, and the mass at which one of them is drawn.
struct DrawRange {
  int begin;
  int end;
  double before;
  double target;
};

// The first token of a range at which the mass of weights passes the target, by one warp; the last that weighs anything
// where rounding keeps the mass below.
template <class Tokens>
__device__ std::int32_t find_target(const Tokens& tokens, const Kept& kept, const DrawRange& range) {
  double before = range.before;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::int32_t last = -1;
  for (int from = range.begin; from < range.end; from += 32) {
    const int i = min(from + lane, range.end - 1);
    const double weight = from + lane < range.end ? kept.weight(tokens.logit(i), tokens.id(i)) : 0.0;
    double reached = weight;
    for (int step = 1; step < 32; step *= 2) {
      const double lower = __shfl_up_sync(~0U, reached, step);
      if (lane >= step) reached += lower;
    }
    const unsigned weighs = __ballot_sync(~0U, weight > 0.0);
    const unsigned past = __ballot_sync(~0U, weight > 0.0 && range.target < before + reached);
    if (past != 0) return __shfl_sync(~0U, tokens.id(i), __ffs(static_cast<int>(past)) - 1);
    if (weighs != 0) last = __shfl_sync(~0U, tokens.id(i), 31 - __clz(static_cast<int>(weighs)));
    before += __shfl_sync(~0U, reached, 31);
  }
  return last;
}

// A draw by weights, ids ascending. Each warp sums a part of a range, and the part in which the target lies is the next
// range, until one warp looks through it.
template <class Tokens>
__device__ std::int32_t draw(SampleMemory& memory, const Tokens& tokens, const Kept& kept, std::uint64_t seed) {
  __shared__ double sums[kSampleWarps];
  __shared__ std::int32_t drawn;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  DrawRange range{0, tokens.count, 0.0, -1.0};
  do {
    const int part = (range.end - range.begin + kSampleThreads - 1) / kSampleThreads * 32;
    const int begin = min(range.begin + warp * part, range.end);
    double sum = 0.0;
    memory.tile.each(tokens, begin + static_cast<int>(threadIdx.x) % 32, min(begin + part, range.end), 32,
                     [&](int i, float logit) { sum += kept.weight(logit, tokens.id(i)); });
    sum = warp_sum(sum);
    __syncthreads();
    if (threadIdx.x % 32 == 0) sums[warp] = sum;
    __syncthreads();
    if (range.target < 0.0) {
      double total = 0.0;
      for (const double each : sums) total += each;
      range.target = static_cast<double>(seed >> 11U) * 0x1.0p-53 * total;
    }
    // The last part that weighs anything has what rounding leaves behind the end.
    DrawRange next = range;
    double mass = range.before;
    for (int w = 0; w < kSampleWarps; ++w) {
      if (sums[w] <= 0.0 || (mass > range.before && range.target < mass)) continue;
      next.begin = range.begin + w * part;
      next.end = min(next.begin + part, range.end);
      next.before = mass;
      mass += sums[w];
    }
    range = next;
  } while (range.end - range.begin > kSampleThreads);
  if (warp == 0) {
    const std::int32_t found = find_target(tokens, kept, range);
    if (threadIdx.x == 0) drawn = found;
  }
  __syncthreads();
  return drawn;
}

// What top-k, top-p and min-p leave, drawn from. `top_k`: 0 where it has been applied.
template <class Tokens>
__device__ std::int32_t choose(SampleMemory& memory, const Tokens& tokens, const SampleParams& params, float best,
                               std::int64_t top_k) {
  Kept kept{0, best, Divided(params.temperature), params.min_p};
  constexpr double kWhole = 0x1p44;  // what the best one weighs; 2^18 tokens of it do not overflow
  const float steps = 32.0F;
  if (top_k > 0 && top_k < tokens.count) {
    kept.threshold = find_threshold(memory, tokens, best, steps, 0, CountTokens{},
                                    [&](unsigned long long) { return static_cast<unsigned long long>(top_k); });
  }
  if (params.top_p < 1.0) {
    const auto scaled = static_cast<float>(static_cast<double>(steps) / params.temperature);
    kept.threshold = find_threshold(
        memory, tokens, best, scaled, kept.threshold,
        [&](float logit) { return static_cast<unsigned long long>(kept.likelihood(logit) * kWhole + 0.5); },
        [&](unsigned long long total) {
          const double wanted = ceil(params.top_p * static_cast<double>(total));
          return wanted < 1.0 ? 1ULL : static_cast<unsigned long long>(wanted);
        });
  }
  return draw(memory, tokens, kept, params.seed);
}

__device__ std::int32_t choose_from_list(SampleMemory& memory, const Part<TokenLogit>& list, const SampleParams& params,
                                         TokenLogit* sorted) {
  if (params.temperature == 0.0 || params.draws_from_all()) return list.at[0].id;
  for (int i = static_cast<int>(threadIdx.x); i < list.count; i += kSampleThreads) {
    int place = 0;
    for (int j = 0; j < list.count; ++j) place += list.at[j].id < list.at[i].id ? 1 : 0;
    sorted[place] = list.at[i];
  }
  __syncthreads();
  return choose(memory, ListedTokens{sorted, list.count}, params, list.at[0].logit, 0);
}

// The log-probability of a token, and those of the likeliest.
__device__ void score(const SampleArgs& args, SampleMemory& memory, std::int64_t row, const AllTokens& tokens,
                      std::int32_t id) {
  // The best of those behind `last`.
  const auto best_behind = [&](const Ranked<float>& last) {
    Ranked<float> best{0.0F, -1};
    memory.tile.each(tokens, [&](int i, float logit) {
      const bool behind = last.index < 0 || logit < last.value || (logit == last.value && i > last.index);
      if (behind) best = better(best, {logit, i});
    });
    return block_best<kSampleThreads>(best);
  };
  Ranked<float> best = best_behind({0.0F, -1});
  const auto most = static_cast<double>(best.value);
  double sum = 0.0;
  memory.tile.each(tokens, [&](int, float logit) { sum += exp(static_cast<double>(logit) - most); });
  const double shift = most + log(block_sum<kSampleThreads>(sum));
  if (threadIdx.x == 0) args.logprobs[row] = static_cast<double>(tokens.logit(id)) - shift;
  const int tops = min(args.tops[row], args.vocab);
  for (int place = 0; place < tops; ++place) {
    if (threadIdx.x == 0)
      args.top[row * args.most_tops + place] = {best.index, static_cast<double>(best.value) - shift};
    if (place + 1 < tops) best = best_behind(best);
  }
}

constexpr int kScanThreads = 256;

// body(i, logit) for every token of [begin, end), of one thread ascending.
template <class Body>
__device__ void each_of_piece(const float* logits, int begin, int end, const Body& body) {
  constexpr int kAtOnce = 8;
  for (int from = begin + static_cast<int>(threadIdx.x); from < end; from += kAtOnce * kScanThreads) {
    float ahead[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) ahead[j] = from + j * kScanThreads < end ? logits[from + j * kScanThreads] : 0.0F;
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (from + j * kScanThreads < end) body(from + j * kScanThreads, ahead[j]);
    }
  }
}

// The first of a piece by logit / temperature + noise. Logarithms are for those alone that bounds let be first.
__device__ Ranked<double> first_of_piece(const float* logits, int begin, int end, const SampleParams& params) {
  const Divided by_temperature(params.temperature);
  const auto bounds = [&](int i) { return noise_bounds(params.seed, static_cast<std::uint64_t>(i)); };
  Ranked<double> least{-INFINITY, -1};
  each_of_piece(logits, begin, end, [&](int i, float logit) {
    const double key = by_temperature(static_cast<double>(logit)) + bounds(i).least;
    if (key > least.value) least = {key, i};
  });
  least = block_best<kScanThreads>(least);
  Ranked<double> best{-INFINITY, -1};
  for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kScanThreads) {
    const double scaled = by_temperature(static_cast<double>(logits[i]));
    if (scaled + bounds(i).most < least.value) continue;
    const double key = scaled + gumbel_noise(params.seed, static_cast<std::uint64_t>(i));
    if (key > best.value) best = {key, i};
  }
  return block_best<kScanThreads>(best);
}

// Blocks (row, piece).
__global__ void __launch_bounds__(kScanThreads, 4)
    scan_pieces(const __grid_constant__ SampleArgs args, const float* changed, SamplePiece* pieces) {
  const std::int64_t row = blockIdx.x;
  if (!chooses_from_all(args, row)) return;
  const SampleParams& params = args.params[row];
  const float* const logits = chosen_logits(args, row, changed);
  const int begin = static_cast<int>(blockIdx.y * kSamplePiece);
  const int end = min(begin + static_cast<int>(kSamplePiece), args.vocab);
  SamplePiece piece{};
  if (params.draws_from_all()) {
    const Ranked<double> first = first_of_piece(logits, begin, end, params);
    piece = {first.value, first.index, 0};
  } else {
    Ranked<float> best{-INFINITY, -1};
    bool bad = false;
    each_of_piece(logits, begin, end, [&](int i, float logit) {
      bad = bad || !(logit < INFINITY);
      if (logit > best.value) best = {logit, i};
    });
    const bool found = __syncthreads_or(bad ? 1 : 0) != 0;
    best = block_best<kScanThreads>(best);
    piece = {static_cast<double>(best.value), best.index, found ? 1 : 0};
  }
  if (threadIdx.x == 0) pieces[row * gridDim.y + blockIdx.y] = piece;
}

// -1: none can be chosen.
__device__ std::int32_t choose_from_pieces(SampleMemory& memory, const SamplePiece* pieces, int count,
                                           const AllTokens& tokens, const SampleParams& params) {
  Ranked<double> best{-INFINITY, -1};
  bool bad = false;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kSampleThreads) {
    best = better(best, {pieces[i].key, pieces[i].index});
    bad = bad || pieces[i].bad != 0;
  }
  if (__syncthreads_or(bad ? 1 : 0) != 0) return -1;
  best = block_best<kSampleThreads>(best);
  if (best.index < 0 || params.temperature == 0.0 || params.draws_from_all()) return best.index;
  return choose(memory, tokens, params, static_cast<float>(best.value), params.top_k);
}

__global__ void __launch_bounds__(kSampleThreads)
    sample(const __grid_constant__ SampleArgs args, const SampleWork work, std::byte* workspace) {
  __shared__ SampleMemory memory;
  const std::int64_t row = blockIdx.x;
  const SampleParams& params = args.params[row];
  const Part<TokenLogit> candidates(args.candidates, args.candidates_start, row);
  if (candidates.count > 0) {
    auto* const sorted = reinterpret_cast<TokenLogit*>(workspace + work.sorted) + row * args.most_candidates;
    const std::int32_t id = choose_from_list(memory, candidates, params, sorted);
    if (threadIdx.x == 0) args.ids[row] = id;
    return;
  }
  const float* const changed = reinterpret_cast<const float*>(workspace + work.logits);
  const auto count = static_cast<int>(sample_pieces(args.vocab));
  const auto* const pieces = reinterpret_cast<const SamplePiece*>(workspace + work.pieces) + row * count;
  const std::int32_t id =
      chooses_from_all(args, row)
          ? choose_from_pieces(memory, pieces, count, {chosen_logits(args, row, changed), args.vocab}, params)
          : args.given[row];
  if (threadIdx.x == 0) args.ids[row] = id;
  if (id >= 0 && args.tops != nullptr && args.tops[row] >= 0)
    score(args, memory, row, {logits_of(args, row), args.vocab}, id);
}

}  // namespace

int launch(const SampleArgs& args, std::byte* workspace, cudaStream_t stream) {
  if (args.rows == 0) return cudaSuccess;
  const SampleWork work = SampleWork::lay_out(args);
  auto* const changed = reinterpret_cast<float*>(workspace + work.logits);
  if (args.counts_start != nullptr || args.bias_start != nullptr || args.mask != nullptr)
    change_logits<<<grid_of(args.rows), kSampleThreads, 0, stream>>>(args, changed);
  if (args.logits != nullptr) {
    const dim3 grid(grid_of(args.rows), grid_of(sample_pieces(args.vocab)));
    scan_pieces<<<grid, kScanThreads, 0, stream>>>(args, changed,
                                                   reinterpret_cast<SamplePiece*>(workspace + work.pieces));
  }
  sample<<<grid_of(args.rows), kSampleThreads, 0, stream>>>(args, work, workspace);
  return cudaGetLastError();
}

}  // namespace moracle::cuda
