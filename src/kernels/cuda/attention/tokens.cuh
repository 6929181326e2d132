// Where a token of the batch stands.
#pragma once

#include <cstdint>

#include "kernels/args/state.h"

namespace moracle::cuda {

struct Place {
  std::int64_t span;  // -1: no sequence has the token
  std::int64_t position;
};

// All threads of a block ask for one token, and get the same answer.
template <int kThreads>
__device__ Place place_of(const KvSpan* spans, std::int64_t count, std::int64_t token) {
  __shared__ Place found;
  if (threadIdx.x == 0) found.span = -1;
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) {
    const std::int64_t offset = token - spans[i].begin;
    if (offset >= 0 && offset < spans[i].count) found = {i, spans[i].start + offset};
  }
  __syncthreads();
  return found;
}

}  // namespace moracle::cuda
