#pragma once

#include <cstdint>

#include "kernels/args/plain.h"

namespace moracle {

// out = x / sqrt(mean(x^2) + eps) * weight, a row at a time.
struct RmsNormArgs {
  std::int32_t rows;
  std::int32_t cols;
  float eps;
  const float* x;
  const float* weight;
  float* out;
};
static_assert(kPlain<RmsNormArgs>);

// sum += x, then out = norm of sum as of RmsNormArgs, a row at a time.
struct AddNormArgs {
  std::int32_t rows;
  std::int32_t cols;
  float eps;
  const float* x;
  float* sum;
  const float* weight;
  float* out;
};
static_assert(kPlain<AddNormArgs>);

// out = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias, a row at a time; out may be x.
struct LayerNormArgs {
  std::int32_t rows = 0;
  std::int32_t cols = 0;
  float eps = 0.0F;
  const float* x = nullptr;
  const float* weight = nullptr;
  const float* bias = nullptr;  // or null
  float* out = nullptr;
};
static_assert(kPlain<LayerNormArgs>);

// A norm inside an operation.
struct NormArgs {
  const float* weight = nullptr;
  std::int64_t size = 0;  // 0: no norm
  float eps = 0.0F;
};
static_assert(kPlain<NormArgs>);

}  // namespace moracle
