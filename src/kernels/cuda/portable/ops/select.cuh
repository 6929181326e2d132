// What sampling keeps of a row: always the first by logit, of equal ones the lower id first. So a threshold tells it,
// and a block of threads finds that by counting: whose ranks, or whose masses, come before.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/common/ops/block.cuh"

namespace moracle::cuda {

inline constexpr int kSampleThreads = 512;
inline constexpr int kSampleWarps = kSampleThreads / 32;

// Numbers on their way to one thread after the other: a thread waits once for so many.
class TokenTile {
 public:
  static constexpr int kAtOnce = 12;

  // body(i, logit) for `first` and every `step` further below `end`, ascending.
  template <class Tokens, class Body>
  __device__ void each(const Tokens& tokens, int first, int end, int step, const Body& body) {
    float* const own = logits_ + threadIdx.x;
    for (int from = first; from < end; from += kAtOnce * step) {
      float ahead[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) ahead[j] = from + j * step < end ? tokens.logit(from + j * step) : 0.0F;
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) own[j * kSampleThreads] = ahead[j];
#pragma unroll 1
      for (int j = 0; j < kAtOnce && from + j * step < end; ++j) body(from + j * step, own[j * kSampleThreads]);
    }
  }
  // Of a block's threads, all tokens.
  template <class Tokens, class Body>
  __device__ void each(const Tokens& tokens, const Body& body) {
    each(tokens, static_cast<int>(threadIdx.x), tokens.count, kSampleThreads, body);
  }

 private:
  float logits_[kAtOnce * kSampleThreads];
};

// A token's place in the order: the larger comes first. 0 is below all tokens.
__device__ inline std::uint64_t order_of(float logit, std::int32_t id) {
  const std::uint32_t bits = __float_as_uint(logit + 0.0F);  // 0 and -0 are equal
  const std::uint32_t ordered = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return static_cast<std::uint64_t>(ordered) << 32U | static_cast<std::uint32_t>(~id);
}

// How many tokens lie in each bin and what they measure, and where one of the two reaches what is wanted.
class Bins {
 public:
  static constexpr int kCount = 1024;

  __device__ void clear() {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kCount; i += kSampleThreads) measure_[i] = 0;
    for (int i = static_cast<int>(threadIdx.x); i < kCount; i += kSampleThreads) tokens_[i] = 0;
    if (threadIdx.x == 0) found_ = -1;
    __syncthreads();
  }
  __device__ void add(int bin, unsigned long long measure, unsigned tokens) {
    // Sums of integers: the same in any order.
    if (measure != 0) atomicAdd(&measure_[bin], measure);
    if (tokens != 0) atomicAdd(&tokens_[bin], tokens);
  }
  template <bool kCounts>
  [[nodiscard]] __device__ unsigned long long total() {
    __syncthreads();
    return block_sum<kSampleThreads>(at<kCounts>(2 * threadIdx.x) + at<kCounts>(2 * threadIdx.x + 1));
  }
  // The bin in which the sum, from bin 0 on, reaches `wanted`, at least 1; -1: none does. Also what is before it.
  template <bool kCounts>
  __device__ int reaching(unsigned long long wanted, unsigned long long& before, unsigned& tokens) {
    __syncthreads();
    const unsigned long long own = at<kCounts>(2 * threadIdx.x) + at<kCounts>(2 * threadIdx.x + 1);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    unsigned long long end = own;
    for (int step = 1; step < 32; step *= 2) {
      const unsigned long long lower = __shfl_up_sync(~0U, end, step);
      if (lane >= step) end += lower;
    }
    if (lane == 31) warps_[threadIdx.x / 32] = end;
    __syncthreads();
    for (unsigned warp = 0; warp < threadIdx.x / 32; ++warp) end += warps_[warp];
    unsigned long long sum = end - own;
    for (unsigned bin = 2 * threadIdx.x; bin < 2 * threadIdx.x + 2; ++bin) {
      if (sum < wanted && sum + at<kCounts>(bin) >= wanted) {
        found_ = static_cast<int>(bin);
        before_ = sum;
      }
      sum += at<kCounts>(bin);
    }
    __syncthreads();
    before = before_;
    tokens = found_ < 0 ? 0 : tokens_[found_];
    return found_;
  }

  // The token of a few at which the sum reaches `wanted`, from the first in their order on. add_to_list is called
  // between clear() and this for each.
  template <bool kCounts>
  __device__ std::uint64_t reaching_of_list(unsigned long long wanted, unsigned count) {
    __syncthreads();
    for (unsigned i = threadIdx.x; i < count; i += kSampleThreads) {
      unsigned long long before = 0;
      for (unsigned j = 0; j < count; ++j) {
        if (orders_[j] > orders_[i]) before += kCounts ? 1 : measure_[j];
      }
      if (before < wanted && before + (kCounts ? 1 : measure_[i]) >= wanted) order_ = orders_[i];
    }
    __syncthreads();
    return order_;
  }
  __device__ void add_to_list(std::uint64_t order, unsigned long long measure) {
    const unsigned at = atomicAdd(&tokens_[0], 1U);
    orders_[at] = order;
    measure_[at] = measure;
  }

 private:
  template <bool kCounts>
  [[nodiscard]] __device__ unsigned long long at(unsigned bin) const {
    return kCounts ? tokens_[bin] : measure_[bin];
  }

  unsigned long long measure_[kCount];
  std::uint64_t orders_[kCount];
  unsigned long long warps_[kSampleWarps];
  unsigned long long before_;
  std::uint64_t order_;
  unsigned tokens_[kCount];
  int found_;
};
static_assert(Bins::kCount == 2 * kSampleThreads);

// Shared memory of a row.
struct SampleMemory {
  TokenTile tile;
  Bins bins;
};

// What measures nothing: tokens are counted.
struct CountTokens {
  __device__ unsigned long long operator()(float /*logit*/) const { return 0; }
};

// The threshold at which the measure, or the number, of tokens from the first on reaches target(that of all); `floor`
// where there is less. Tokens below `floor` are no part of it. `best`: the largest logit.
template <class Tokens, class Measure, class Target>
__device__ std::uint64_t find_threshold(SampleMemory& memory, const Tokens& tokens, float best, float steps,
                                        std::uint64_t floor, const Measure& measure, const Target& target) {
  constexpr bool kCounts = std::is_same_v<Measure, CountTokens>;
  constexpr int kRest = Bins::kCount - 1;
  Bins& bins = memory.bins;
  // First by distance from the best, which spreads tokens over bins; behind the last whole bin lies the rest.
  const auto bin_of = [&](float logit) {
    return static_cast<int>(fminf((best - logit) * steps, static_cast<float>(kRest)));
  };
  const auto each_kept = [&](const auto& body) {
    memory.tile.each(tokens, [&](int i, float logit) {
      if (logit == -INFINITY) return;
      const std::uint64_t order = order_of(logit, tokens.id(i));
      if (order >= floor) body(bin_of(logit), logit, order);
    });
  };
  bins.clear();
  unsigned long long rest = 0;
  unsigned rest_tokens = 0;
  each_kept([&](int bin, float logit, std::uint64_t) {
    if (bin < kRest) return bins.add(bin, measure(logit), 1);
    rest += measure(logit);
    ++rest_tokens;
  });
  bins.add(kRest, rest, rest_tokens);
  const unsigned long long wanted = target(bins.template total<kCounts>());
  unsigned long long before = 0;
  unsigned left = 0;
  const int bin = bins.template reaching<kCounts>(wanted, before, left);
  if (bin < 0) return floor;
  // Then by eight bits of the order after the other, the highest first, until few tokens are left.
  std::uint64_t prefix = 0;
  int shift = 64;
  const auto each_left = [&](const auto& body) {
    each_kept([&](int own, float logit, std::uint64_t order) {
      if (own == bin && (shift == 64 || order >> shift == prefix)) body(logit, order);
    });
  };
  while (left > Bins::kCount) {
    bins.clear();
    each_left([&](float logit, std::uint64_t order) {
      bins.add(255 - static_cast<int>(order >> (shift - 8) & 255U), measure(logit), 1);
    });
    unsigned long long more = 0;
    const int digit = bins.template reaching<kCounts>(wanted - before, more, left);
    before += more;
    shift -= 8;
    prefix = prefix << 8U | static_cast<std::uint64_t>(255 - digit);
  }
  bins.clear();
  each_left([&](float logit, std::uint64_t order) { bins.add_to_list(order, measure(logit)); });
  return bins.template reaching_of_list<kCounts>(wanted - before, left);
}

}  // namespace moracle::cuda
