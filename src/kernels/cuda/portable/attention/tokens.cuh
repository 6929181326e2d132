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

// The same by one warp, for itself.
__device__ inline Place place_for_warp(const KvSpan* spans, std::int64_t count, std::int64_t token) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (std::int64_t from = 0; from < count; from += 32) {
    const KvSpan span = from + lane < count ? spans[from + lane] : KvSpan{};
    const std::int64_t offset = token - span.begin;
    const unsigned here = __ballot_sync(~0U, offset >= 0 && offset < span.count);
    if (here == 0) continue;
    const int owner = __ffs(static_cast<int>(here)) - 1;
    Place place{from + owner, span.start + offset, 0};
    if (lane == owner) place.block = span.table[place.position / kKvBlock];
    place.position = __shfl_sync(~0U, place.position, owner);
    place.block = __shfl_sync(~0U, place.block, owner);
    return place;
  }
  return {-1, 0, 0};
}

}  // namespace moracle::cuda
