// A linear layer, and rows of a matrix by their numbers.
#pragma once

#include "kernels/args/matrix.h"

namespace moracle {

// One matrix of a call: y[tokens, rows] = x[tokens, cols] W^T + bias.
struct LinearPart {
  PackArgs pack;
  MatrixArgs matrix;
  float* y;
};
static_assert(kPlain<LinearPart>);

inline constexpr std::int32_t kMostFused = 4;

// Matrices that read the same x[tokens, cols], alike in code, form of inputs and columns. Where a form depends on the
// matrix, by a stored scale or an order of columns, it is made for each.
struct LinearArgs {
  LinearPart parts[kMostFused];
  std::int32_t count;
  std::int32_t tokens;
  std::int32_t batch_invariant;  // else a call of few tokens may add in another order
  const float* x;
  std::uint16_t* x_codes;  // scratch, of one matrix
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
