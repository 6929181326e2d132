// What sampling keeps of a row: always the first by logit, of equal ones the lower id first. So a threshold tells it,
// and a block of threads finds that by counting: whose ranks, or whose masses, come before.
#pragma once

#include <cstdint>

#include "kernels/cuda/ops/block.cuh"

namespace moracle::cuda {

inline constexpr int kSampleThreads = 512;

// A token's place in the order: the larger comes first. 0 is below all tokens.
__device__ inline std::uint64_t order_of(float logit, std::int32_t id) {
  const std::uint32_t bits = __float_as_uint(logit + 0.0F);  // 0 and -0 are equal
  const std::uint32_t ordered = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return static_cast<std::uint64_t>(ordered) << 32U | static_cast<std::uint32_t>(~id);
}

// Sums of a row's measure by bins, and where they reach what is wanted.
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
  [[nodiscard]] __device__ unsigned long long total() {
    __syncthreads();
    return block_sum<kSampleThreads>(measure_[2 * threadIdx.x] + measure_[2 * threadIdx.x + 1]);
  }
  // The bin in which the sum, from bin 0 on, reaches `wanted`, at least 1; -1: none does. Also what is before it.
  __device__ int reaching(unsigned long long wanted, unsigned long long& before, unsigned& tokens) {
    __syncthreads();
    const unsigned long long own = measure_[2 * threadIdx.x] + measure_[2 * threadIdx.x + 1];
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
    for (int bin = static_cast<int>(2 * threadIdx.x); bin < static_cast<int>(2 * threadIdx.x) + 2; ++bin) {
      if (sum < wanted && sum + measure_[bin] >= wanted) {
        found_ = bin;
        before_ = sum;
      }
      sum += measure_[bin];
    }
    __syncthreads();
    before = before_;
    tokens = found_ < 0 ? 0 : tokens_[found_];
    return found_;
  }

 private:
  unsigned long long measure_[kCount];
  unsigned long long warps_[kSampleThreads / 32];
  unsigned long long before_;
  unsigned tokens_[kCount];
  int found_;
};
static_assert(Bins::kCount == 2 * kSampleThreads);

// The threshold at which the measure of tokens from the first on reaches target(the measure of all); `floor` where
// there is less. Tokens below `floor` are no part of it. `best`: the largest logit.
template <class Tokens, class Measure, class Target>
__device__ std::uint64_t find_threshold(Bins& bins, const Tokens& tokens, float best, float steps, std::uint64_t floor,
                                        const Measure& measure, const Target& target) {
  // First by distance from the best, which spreads tokens over bins; behind the last whole bin lies the rest.
  const auto bin_of = [&](float logit) {
    return static_cast<int>(fminf((best - logit) * steps, static_cast<float>(Bins::kCount - 1)));
  };
  bins.clear();
  unsigned long long rest = 0;
  unsigned rest_tokens = 0;
  for (int i = static_cast<int>(threadIdx.x); i < tokens.count; i += kSampleThreads) {
    const float logit = tokens.logit(i);
    if (logit == -INFINITY || order_of(logit, tokens.id(i)) < floor) continue;
    const int bin = bin_of(logit);
    if (bin < Bins::kCount - 1) {
      bins.add(bin, measure(logit), 1);
    } else {
      rest += measure(logit);
      ++rest_tokens;
    }
  }
  bins.add(Bins::kCount - 1, rest, rest_tokens);
  const unsigned long long wanted = target(bins.total());
  unsigned long long before = 0;
  unsigned left = 0;
  const int bin = bins.reaching(wanted, before, left);
  if (bin < 0) return floor;
  // Then by eight bits of the order after the other, the highest first, until one token is left.
  std::uint64_t prefix = 0;
  int shift = 64;
  const auto each_left = [&](const auto& body) {
    for (int i = static_cast<int>(threadIdx.x); i < tokens.count; i += kSampleThreads) {
      const float logit = tokens.logit(i);
      if (logit == -INFINITY || bin_of(logit) != bin) continue;
      const std::uint64_t order = order_of(logit, tokens.id(i));
      if (order >= floor && (shift == 64 || order >> shift == prefix)) body(logit, order);
    }
  };
  while (left > 1) {
    bins.clear();
    each_left([&](float logit, std::uint64_t order) {
      bins.add(255 - static_cast<int>(order >> (shift - 8) & 255U), measure(logit), 1);
    });
    unsigned long long more = 0;
    const int digit = bins.reaching(wanted - before, more, left);
    before += more;
    shift -= 8;
    prefix = prefix << 8U | static_cast<std::uint64_t>(255 - digit);
  }
  __shared__ std::uint64_t threshold;
  each_left([&](float, std::uint64_t order) { threshold = order; });
  __syncthreads();
  return threshold;
}

}  // namespace moracle::cuda
