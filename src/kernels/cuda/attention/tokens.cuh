// Where a token of the batch stands.
#pragma once

#include <cstdint>

#include "kernels/args/state.h"

namespace moracle::cuda {

struct Place {
  std::int64_t span;  // -1: no sequence has the token
  std::int64_t position;
  std::uint32_t block;  // of the position
};

// The threads of a block look for a token; behind their next barrier all know its place.
template <int kThreads>
__device__ void find_place(const KvSpan* spans, std::int64_t count, std::int64_t token, Place& found) {
  if (threadIdx.x == 0) found.span = -1;
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) {
    const KvSpan span = spans[i];
    const std::int64_t offset = token - span.begin;
    if (offset < 0 || offset >= span.count) continue;
    const std::int64_t position = span.start + offset;
    found = {i, position, span.table[position / kKvBlock]};
  }
}

}  // namespace moracle::cuda
