// What all SIMD vocabularies share.
#pragma once

#include <cstdint>

namespace moracle::cpu {

// Four bytes from memory to all lanes. A type of its own, since copies of neighbours would be merged into one wide load
// and reach the lanes by way of two general registers.
using SimdLane [[gnu::may_alias, gnu::aligned(1)]] = std::int32_t;

// Registers of kBytes bytes with the operators of their elements.
template <class T, int kBytes>
struct VectorOf {
  using Type [[gnu::vector_size(kBytes)]] = T;
};

}  // namespace moracle::cpu
