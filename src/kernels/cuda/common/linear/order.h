// Where columns of formed inputs lie (InputOrder).
#pragma once

#include "kernels/cuda/common/arithmetic.h"
#include "kernels/cuda/common/launch.h"

namespace moracle::cuda {

MORACLE_BOTH int nibble_column(int k) {
  return (k & ~7) | (k & 3) << 1 | (k >> 2 & 1);
}
// A product of 16 columns takes four of each of its lanes' sixteen, the first two on its left half.
MORACLE_BOTH int fragment_column(int k) {
  return (k & ~63) | (k / 4 % 4) << 4 | (k / 2 % 2) << 3 | (k / 16 % 4) << 1 | (k & 1);
}
MORACLE_BOTH int placed_column(const InputOrder& order, int k) {
  if (order.nibbles) k = nibble_column(k);
  return order.fragments ? fragment_column(k) : k;
}

}  // namespace moracle::cuda
