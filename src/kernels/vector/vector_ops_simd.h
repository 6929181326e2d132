// The vector loops, written once over a `Lanes` type that the including .isa.cpp file has defined in its own anonymous
// namespace. Everything here stays in an anonymous namespace too: a function compiled for one instruction set must
// never be merged by the linker with one compiled for another.
#pragma once

#include <cstdint>

#include "kernels/vector/vector_ops.h"

namespace moracle {
namespace {  // NOLINT(google-build-namespaces): see above

using V = Lanes::V;
constexpr std::int64_t W = Lanes::kWidth;

// exp(x) = 2^n exp(r) with |r| <= ln2/2. The Taylor series to r^7 leaves 0.35^8/8! = 5e-9, a tenth of half an ulp. ln2
// is split so that n * kLn2High is exact. 2^n is applied as two factors, because n reaches -150 and 128.
inline V exp_of(V x) {
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  // Argument order matters: min and max return the second operand where one is NaN.
  x = Lanes::max(Lanes::set1(-104.0F), Lanes::min(Lanes::set1(89.0F), x));
  const V n = Lanes::round(Lanes::mul(x, Lanes::set1(kLog2E)));
  V r = Lanes::fma(n, Lanes::set1(-kLn2High), x);
  r = Lanes::fma(n, Lanes::set1(-kLn2Low), r);
  V p = Lanes::set1(1.0F / 5040.0F);
  p = Lanes::fma(p, r, Lanes::set1(1.0F / 720.0F));
  p = Lanes::fma(p, r, Lanes::set1(1.0F / 120.0F));
  p = Lanes::fma(p, r, Lanes::set1(1.0F / 24.0F));
  p = Lanes::fma(p, r, Lanes::set1(1.0F / 6.0F));
  p = Lanes::fma(p, r, Lanes::set1(0.5F));
  p = Lanes::fma(p, r, Lanes::set1(1.0F));
  p = Lanes::fma(p, r, Lanes::set1(1.0F));
  const V half = Lanes::round(Lanes::mul(n, Lanes::set1(0.5F)));
  return Lanes::mul(Lanes::mul(p, Lanes::power_of_two(half)), Lanes::power_of_two(Lanes::sub(n, half)));
}

// Calls full(i) for whole vectors and part(i, left) for the rest.
template <class Full, class Part>
inline void for_lanes(std::int64_t n, Full full, Part part) {
  std::int64_t i = 0;
  for (; i + W <= n; i += W) full(i);
  if (i < n) part(i, n - i);
}

float dot(const float* a, const float* b, std::int64_t n) {
  V sum[4] = {Lanes::zero(), Lanes::zero(), Lanes::zero(), Lanes::zero()};  // four chains hide the latency of FMA
  std::int64_t i = 0;
  for (; i + 4 * W <= n; i += 4 * W) {
    for (int j = 0; j < 4; ++j) sum[j] = Lanes::fma(Lanes::load(a + i + j * W), Lanes::load(b + i + j * W), sum[j]);
  }
  for (; i + W <= n; i += W) sum[0] = Lanes::fma(Lanes::load(a + i), Lanes::load(b + i), sum[0]);
  if (i < n) sum[1] = Lanes::fma(Lanes::load_part(a + i, n - i), Lanes::load_part(b + i, n - i), sum[1]);
  return Lanes::sum(Lanes::add(Lanes::add(sum[0], sum[1]), Lanes::add(sum[2], sum[3])));
}

// R rows of C, kVectors vectors wide; the tail of n one (partial) vector at a time.
template <int R>
void gemm_rows(std::int64_t n, std::int64_t k, const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
               float* c, std::int64_t ldc, bool accumulate) {
  constexpr int kVectors = Lanes::kGemmVectors;
  std::int64_t j = 0;
  for (; j + kVectors * W <= n; j += kVectors * W) {
    V sum[R][kVectors];
    for (int r = 0; r < R; ++r) {
      for (int v = 0; v < kVectors; ++v) sum[r][v] = accumulate ? Lanes::load(c + r * ldc + j + v * W) : Lanes::zero();
    }
    for (std::int64_t i = 0; i < k; ++i) {
      V row[kVectors];
      for (int v = 0; v < kVectors; ++v) row[v] = Lanes::load(b + i * ldb + j + v * W);
      for (int r = 0; r < R; ++r) {
        const V factor = Lanes::set1(a[r * lda + i]);
        for (int v = 0; v < kVectors; ++v) sum[r][v] = Lanes::fma(factor, row[v], sum[r][v]);
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int v = 0; v < kVectors; ++v) Lanes::store(c + r * ldc + j + v * W, sum[r][v]);
    }
  }
  for (; j < n; j += W) {
    const std::int64_t left = n - j < W ? n - j : W;
    V sum[R];
    for (int r = 0; r < R; ++r) sum[r] = accumulate ? Lanes::load_part(c + r * ldc + j, left) : Lanes::zero();
    for (std::int64_t i = 0; i < k; ++i) {
      const V row = Lanes::load_part(b + i * ldb + j, left);
      for (int r = 0; r < R; ++r) sum[r] = Lanes::fma(Lanes::set1(a[r * lda + i]), row, sum[r]);
    }
    for (int r = 0; r < R; ++r) Lanes::store_part(c + r * ldc + j, sum[r], left);
  }
}

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda, const float* b,
          std::int64_t ldb, float* c, std::int64_t ldc, bool accumulate) {
  std::int64_t row = 0;
  for (; row + 4 <= m; row += 4) gemm_rows<4>(n, k, a + row * lda, lda, b, ldb, c + row * ldc, ldc, accumulate);
  for (; row < m; ++row) gemm_rows<1>(n, k, a + row * lda, lda, b, ldb, c + row * ldc, ldc, accumulate);
}

void add(const float* x, float* y, std::int64_t n) {
  for_lanes(
      n, [&](std::int64_t i) { Lanes::store(y + i, Lanes::add(Lanes::load(y + i), Lanes::load(x + i))); },
      [&](std::int64_t i, std::int64_t left) {
        Lanes::store_part(y + i, Lanes::add(Lanes::load_part(y + i, left), Lanes::load_part(x + i, left)), left);
      });
}

void scale(float factor, float* x, std::int64_t n) {
  const V f = Lanes::set1(factor);
  for_lanes(
      n, [&](std::int64_t i) { Lanes::store(x + i, Lanes::mul(f, Lanes::load(x + i))); },
      [&](std::int64_t i, std::int64_t left) {
        Lanes::store_part(x + i, Lanes::mul(f, Lanes::load_part(x + i, left)), left);
      });
}

float max(const float* x, std::int64_t n) {
  float best = -__builtin_inff();
  V all = Lanes::set1(best);
  std::int64_t i = 0;
  for (; i + W <= n; i += W) all = Lanes::max(all, Lanes::load(x + i));
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  const float other = Lanes::largest(all);
  return other > best ? other : best;
}

float exp_sub_sum(float shift, float* x, std::int64_t n) {
  const V s = Lanes::set1(shift);
  V sum = Lanes::zero();
  for_lanes(
      n,
      [&](std::int64_t i) {
        const V e = exp_of(Lanes::sub(Lanes::load(x + i), s));
        Lanes::store(x + i, e);
        sum = Lanes::add(sum, e);
      },
      [&](std::int64_t i, std::int64_t left) {
        Lanes::store_part(x + i, exp_of(Lanes::sub(Lanes::load_part(x + i, left), s)), left);
        sum = Lanes::add(sum, Lanes::load_part(x + i, left));  // read back: lanes beyond the end count as zero
      });
  return Lanes::sum(sum);
}

inline V silu_mul_of(V gate, V up) {
  const V one = Lanes::set1(1.0F);
  return Lanes::mul(Lanes::div(gate, Lanes::add(one, exp_of(Lanes::sub(Lanes::zero(), gate)))), up);
}

void silu_mul(const float* gate, const float* up, float* out, std::int64_t n) {
  for_lanes(
      n, [&](std::int64_t i) { Lanes::store(out + i, silu_mul_of(Lanes::load(gate + i), Lanes::load(up + i))); },
      [&](std::int64_t i, std::int64_t left) {
        Lanes::store_part(out + i, silu_mul_of(Lanes::load_part(gate + i, left), Lanes::load_part(up + i, left)), left);
      });
}

void rms_norm(const float* x, const float* weight, float eps, float* y, std::int64_t n) {
  const float mean = dot(x, x, n) / static_cast<float>(n);
  const V inverse = Lanes::set1(1.0F / __builtin_sqrtf(mean + eps));
  for_lanes(
      n,
      [&](std::int64_t i) {
        Lanes::store(y + i, Lanes::mul(Lanes::load(weight + i), Lanes::mul(Lanes::load(x + i), inverse)));
      },
      [&](std::int64_t i, std::int64_t left) {
        Lanes::store_part(
            y + i, Lanes::mul(Lanes::load_part(weight + i, left), Lanes::mul(Lanes::load_part(x + i, left), inverse)),
            left);
      });
}

void rotate(float* a, float* b, const float* cos, const float* sin, std::int64_t n) {
  for_lanes(
      n,
      [&](std::int64_t i) {
        const V x = Lanes::load(a + i);
        const V y = Lanes::load(b + i);
        const V c = Lanes::load(cos + i);
        const V s = Lanes::load(sin + i);
        Lanes::store(a + i, Lanes::sub(Lanes::mul(x, c), Lanes::mul(y, s)));
        Lanes::store(b + i, Lanes::add(Lanes::mul(y, c), Lanes::mul(x, s)));
      },
      [&](std::int64_t i, std::int64_t left) {
        const V x = Lanes::load_part(a + i, left);
        const V y = Lanes::load_part(b + i, left);
        const V c = Lanes::load_part(cos + i, left);
        const V s = Lanes::load_part(sin + i, left);
        Lanes::store_part(a + i, Lanes::sub(Lanes::mul(x, c), Lanes::mul(y, s)), left);
        Lanes::store_part(b + i, Lanes::add(Lanes::mul(y, c), Lanes::mul(x, s)), left);
      });
}

constexpr VectorOps kOps{Lanes::kName, dot, gemm, add, scale, max, exp_sub_sum, silu_mul, rms_norm, rotate};

}  // namespace
}  // namespace moracle
