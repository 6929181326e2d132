#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/vector/vector_ops.h"

namespace moracle {

namespace {

// Eight partial sums: the error of a long sum grows with the length of each chain.
constexpr std::int64_t kChains = 8;

float dot(const float* a, const float* b, std::int64_t n) {
  std::array<float, kChains> chain{};
  std::int64_t i = 0;
  for (; i + kChains <= n; i += kChains) {
    for (std::int64_t j = 0; j < kChains; ++j) chain[static_cast<std::size_t>(j)] += a[i + j] * b[i + j];
  }
  for (std::int64_t j = 0; i < n; ++i, ++j) chain[static_cast<std::size_t>(j)] += a[i] * b[i];
  float sum = 0.0F;
  for (const float part : chain) sum += part;
  return sum;
}

void dot_rows(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda, const float* b,
              std::int64_t ldb, float* c, std::int64_t ldc) {
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) c[i * ldc + j] = dot(a + i * lda, b + j * ldb, k);
  }
}

float widened(float value) {
  return value;
}
float widened(std::uint16_t bf16) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bf16) << 16U);
}
float widened(std::int8_t code) {
  return static_cast<float>(code);
}

template <class T>
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda, const T* b,
          std::int64_t ldb, float* c, std::int64_t ldc, bool accumulate, const T* /*next*/) {
  for (std::int64_t row = 0; row < m; ++row) {
    float* out = c + row * ldc;
    if (!accumulate) std::fill(out, out + n, 0.0F);
    for (std::int64_t i = 0; i < k; ++i) {
      const float factor = a[row * lda + i];
      const T* from = b + i * ldb;
      for (std::int64_t j = 0; j < n; ++j) out[j] += factor * widened(from[j]);
    }
  }
}

void add(const float* x, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += x[i];
}

void scale(float factor, float* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
}

void multiply(const float* x, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] *= x[i];
}

void widen_bf16(const std::uint16_t* x, float* y, std::int64_t n) {
  std::transform(x, x + n, y, [](std::uint16_t value) { return widened(value); });
}

void widen_int8(float scale, const std::int8_t* x, float* y, std::int64_t n) {
  std::transform(x, x + n, y, [scale](std::int8_t code) { return scale * widened(code); });
}

float max(const float* x, std::int64_t n) {
  float best = -std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < n; ++i) best = std::max(best, x[i]);
  return best;
}

bool finite(const float* x, std::int64_t n) {
  return std::all_of(x, x + n, [](float value) { return std::isfinite(value); });
}

float exp_sub_sum(float shift, float* x, std::int64_t n) {
  float sum = 0.0F;
  for (std::int64_t i = 0; i < n; ++i) {
    x[i] = std::exp(x[i] - shift);
    sum += x[i];
  }
  return sum;
}

void silu_mul(const float* gate, const float* up, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = gate[i] / (1.0F + std::exp(-gate[i])) * up[i];
}

void sigmoid_mul(const float* gate, const float* x, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] / (1.0F + std::exp(-gate[i]));
}

void rms_norm(const float* x, const float* weight, float eps, float* y, std::int64_t n) {
  const float inverse = 1.0F / std::sqrt(dot(x, x, n) / static_cast<float>(n) + eps);
  for (std::int64_t i = 0; i < n; ++i) y[i] = weight[i] * (x[i] * inverse);
}

void rotate(float* a, float* b, const float* cos, const float* sin, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float x = a[i];
    const float y = b[i];
    a[i] = x * cos[i] - y * sin[i];
    b[i] = y * cos[i] + x * sin[i];
  }
}

void delta_step(const DeltaStep& step) {
  const std::int64_t n = step.n;
  constexpr std::int64_t kColumns = 16;  // at a time, so that their sums stay in registers
  const std::int64_t stride = step.decay_by_row ? 1 : 0;
  for (std::int64_t begin = 0; begin < n; begin += kColumns) {
    const std::int64_t width = std::min(kColumns, n - begin);
    std::array<float, kColumns> delta{};
    std::array<float, kColumns> out{};
    for (std::int64_t i = 0; i < step.rows; ++i) {
      const float* const row = step.state + i * n + begin;
      const float key = step.decay[i * stride] * step.key[i];
      for (std::int64_t j = 0; j < width; ++j) delta[static_cast<std::size_t>(j)] += key * row[j];
    }
    for (std::int64_t j = 0; j < width; ++j) {
      float& d = delta[static_cast<std::size_t>(j)];
      d = step.beta * (step.value[begin + j] - d);
    }
    for (std::int64_t i = 0; i < step.rows; ++i) {
      float* const row = step.state + i * n + begin;
      for (std::int64_t j = 0; j < width; ++j) {
        row[j] = step.decay[i * stride] * row[j] + step.key[i] * delta[static_cast<std::size_t>(j)];
        out[static_cast<std::size_t>(j)] += step.query[i] * row[j];
      }
    }
    std::copy_n(out.begin(), width, step.out + begin);
  }
}

constexpr VectorOps kOps{.name = "scalar",
                         .dot = dot,
                         .dot_rows = dot_rows,
                         .gemm = gemm<float>,
                         .add = add,
                         .scale = scale,
                         .max = max,
                         .finite = finite,
                         .exp_sub_sum = exp_sub_sum,
                         .silu_mul = silu_mul,
                         .sigmoid_mul = sigmoid_mul,
                         .rms_norm = rms_norm,
                         .rotate = rotate,
                         .delta_step = delta_step,
                         .gemm_bf16 = gemm<std::uint16_t>,
                         .gemm_int8 = gemm<std::int8_t>,
                         .multiply = multiply,
                         .widen_bf16 = widen_bf16,
                         .widen_int8 = widen_int8};

}  // namespace

const VectorOps& scalar_vector_ops() {
  return kOps;
}

}  // namespace moracle
