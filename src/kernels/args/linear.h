// A linear layer, and rows of a matrix by their numbers.
#pragma once

#include "kernels/args/matrix.h"

namespace moracle {

// y[tokens, rows] = x[tokens, cols] W^T + bias.
struct LinearArgs {
  PackArgs pack;
  MatrixArgs matrix;
  std::int32_t tokens;
  std::int32_t batch_invariant;  // else a call of few tokens may add in another order
  const float* x;
  float* y;
  std::uint16_t* x_codes;
  float* x_scales;
};
static_assert(kPlain<LinearArgs>);

// out[tokens, cols] = rows of a matrix by id; zeros of an id of -1.
struct EmbedArgs {
  PackArgs pack;
  MatrixArgs matrix;
  std::int32_t tokens;
  const std::int32_t* ids;
  float* out;
};
static_assert(kPlain<EmbedArgs>);

}  // namespace moracle
