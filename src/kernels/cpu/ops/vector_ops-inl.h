// Attention, norms and activations of VectorOps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/ops/activations-inl.h"
#include "kernels/vector/vector_ops.h"

namespace moracle::cpu::vector_loops {

// Calls full(i) for whole vectors and part(i, left) for the rest.
template <class V, class Full, class Part>
inline void for_lanes(std::int64_t n, Full full, Part part) {
  std::int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) full(i);
  if (i < n) part(i, n - i);
}

template <class V>
float dot(const float* a, const float* b, std::int64_t n) {
  typename V::Reg sum[4] = {V::zero(), V::zero(), V::zero(), V::zero()};  // four chains hide the latency of FMA
  std::int64_t i = 0;
  for (; i + 4 * V::kLanes <= n; i += 4 * V::kLanes) {
    for (int j = 0; j < 4; ++j) sum[j] = V::fma(V::load(a + i + j * V::kLanes), V::load(b + i + j * V::kLanes), sum[j]);
  }
  for (; i + V::kLanes <= n; i += V::kLanes) sum[0] = V::fma(V::load(a + i), V::load(b + i), sum[0]);
  if (i < n) sum[1] = V::fma(V::load_part(a + i, n - i), V::load_part(b + i, n - i), sum[1]);
  return V::sum(V::add(V::add(sum[0], sum[1]), V::add(sum[2], sum[3])));
}

// T rows of A against R rows of B. One chain a pair, whatever T and R are: the pairs hide each other's latency.
template <class V, int T, int R>
void dot_tile(std::int64_t k, const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float* c,
              std::int64_t ldc) {
  typename V::Reg sum[T][R];
  for (int t = 0; t < T; ++t) {
    for (int r = 0; r < R; ++r) sum[t][r] = V::zero();
  }
  const auto add_columns = [&](auto load, std::int64_t i) {
    typename V::Reg row[R];
    for (int r = 0; r < R; ++r) row[r] = load(b + r * ldb + i);
    for (int t = 0; t < T; ++t) {
      const auto factor = load(a + t * lda + i);
      for (int r = 0; r < R; ++r) sum[t][r] = V::fma(factor, row[r], sum[t][r]);
    }
  };
  for_lanes<V>(
      k, [&](std::int64_t i) { add_columns([](const float* at) { return V::load(at); }, i); },
      [&](std::int64_t i, std::int64_t left) {
        add_columns([left](const float* at) { return V::load_part(at, left); }, i);
      });
  for (int t = 0; t < T; ++t) {
    for (int r = 0; r < R; ++r) c[t * ldc + r] = V::sum(sum[t][r]);
  }
}

template <class V, int R>
void dot_columns(std::int64_t m, std::int64_t k, const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
                 float* c, std::int64_t ldc) {
  constexpr int T = V::kGemmVectors;
  std::int64_t row = 0;
  for (; row + T <= m; row += T) dot_tile<V, T, R>(k, a + row * lda, lda, b, ldb, c + row * ldc, ldc);
  for (; row < m; ++row) dot_tile<V, 1, R>(k, a + row * lda, lda, b, ldb, c + row * ldc, ldc);
}

// Four rows of B stay in L1 for all rows of A.
template <class V>
void dot_rows(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda, const float* b,
              std::int64_t ldb, float* c, std::int64_t ldc) {
  std::int64_t j = 0;
  for (; j + 4 <= n; j += 4) dot_columns<V, 4>(m, k, a, lda, b + j * ldb, ldb, c + j, ldc);
  for (; j < n; ++j) dot_columns<V, 1>(m, k, a, lda, b + j * ldb, ldb, c + j, ldc);
}

template <class V>
inline typename V::Reg load_as(const float* at) {
  return V::load(at);
}
template <class V>
inline typename V::Reg load_as(const std::uint16_t* at) {
  return V::load_bf16(reinterpret_cast<const std::byte*>(at));
}
template <class V>
inline typename V::Reg load_as(const std::int8_t* at) {
  return V::load_i8(reinterpret_cast<const std::byte*>(at));
}
template <class V>
inline typename V::Reg load_part_as(const float* at, std::int64_t n) {
  return V::load_part(at, n);
}
// Narrow numbers behind the n-th are not read: they may lie behind the end of memory.
template <class V, class T>
inline typename V::Reg load_part_as(const T* at, std::int64_t n) {
  T some[V::kLanes] = {};
  __builtin_memcpy(some, at, static_cast<std::size_t>(n) * sizeof(T));
  return load_as<V>(some);
}

// R rows of C, kVectors vectors wide; the tail of n one (partial) vector at a time. With kPrefetches, `next` is
// prefetched as B is read, step by step: in one go, a core would wait for the first lines before it could prefetch the
// last.
template <class V, int R, bool kPrefetches, class T>
void gemm_rows(std::int64_t n, std::int64_t k, const float* a, std::int64_t lda, const T* b, std::int64_t ldb, float* c,
               std::int64_t ldc, bool accumulate, const T* next) {
  constexpr int kVectors = V::kGemmVectors;
  constexpr std::int64_t kLine = 64 / sizeof(T);
  std::int64_t j = 0;
  for (; j + kVectors * V::kLanes <= n; j += kVectors * V::kLanes) {
    typename V::Reg sum[R][kVectors];
    for (int r = 0; r < R; ++r) {
      for (int v = 0; v < kVectors; ++v) sum[r][v] = accumulate ? V::load(c + r * ldc + j + v * V::kLanes) : V::zero();
    }
    for (std::int64_t i = 0; i < k; ++i) {
      typename V::Reg row[kVectors];
      if constexpr (kPrefetches) {
        for (std::int64_t at = 0; at < kVectors * V::kLanes; at += kLine)
          __builtin_prefetch(next + i * kVectors * V::kLanes + at, 0, 2);
      }
      for (int v = 0; v < kVectors; ++v) row[v] = load_as<V>(b + i * ldb + j + v * V::kLanes);
      for (int r = 0; r < R; ++r) {
        const auto factor = V::set1(a[r * lda + i]);
        for (int v = 0; v < kVectors; ++v) sum[r][v] = V::fma(factor, row[v], sum[r][v]);
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int v = 0; v < kVectors; ++v) V::store(c + r * ldc + j + v * V::kLanes, sum[r][v]);
    }
  }
  for (; j < n; j += V::kLanes) {
    const std::int64_t left = n - j < V::kLanes ? n - j : V::kLanes;
    typename V::Reg sum[R];
    for (int r = 0; r < R; ++r) sum[r] = accumulate ? V::load_part(c + r * ldc + j, left) : V::zero();
    for (std::int64_t i = 0; i < k; ++i) {
      const auto row = load_part_as<V>(b + i * ldb + j, left);
      for (int r = 0; r < R; ++r) sum[r] = V::fma(V::set1(a[r * lda + i]), row, sum[r]);
    }
    for (int r = 0; r < R; ++r) V::store_part(c + r * ldc + j, sum[r], left);
  }
}

// A strip of B stays in L1 for all rows of A.
template <class V, class T>
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda, const T* b,
          std::int64_t ldb, float* c, std::int64_t ldc, bool accumulate, const T* next) {
  constexpr std::int64_t kStrip = V::kGemmVectors * V::kLanes;
  for (std::int64_t j = 0; j < n; j += kStrip) {
    const std::int64_t width = n - j < kStrip ? n - j : kStrip;
    const auto multiply = [&](auto rows, std::int64_t row) {
      const float* const from = a + row * lda;
      float* const to = c + row * ldc + j;
      if (next != nullptr && row == 0) {
        gemm_rows<V, rows(), true>(width, k, from, lda, b + j, ldb, to, ldc, accumulate, next + j * k);
      } else {
        gemm_rows<V, rows(), false, T>(width, k, from, lda, b + j, ldb, to, ldc, accumulate, nullptr);
      }
    };
    constexpr int kRows = V::kGemmRows;
    std::int64_t row = 0;
    // Eight rows are two fours: six would leave two, which wait for the latency of their own sums.
    for (; m - row >= kRows && m - row != 8; row += kRows) multiply(std::integral_constant<int, kRows>{}, row);
    for (; row + 4 <= m; row += 4) multiply(std::integral_constant<int, 4>{}, row);
    for (; row < m; ++row) multiply(std::integral_constant<int, 1>{}, row);
  }
}

template <class V>
void multiply(const float* x, float* y, std::int64_t n) {
  for_lanes<V>(
      n, [&](std::int64_t i) { V::store(y + i, V::mul(V::load(y + i), V::load(x + i))); },
      [&](std::int64_t i, std::int64_t left) {
        V::store_part(y + i, V::mul(V::load_part(y + i, left), V::load_part(x + i, left)), left);
      });
}

template <class V>
void widen_bf16(const std::uint16_t* x, float* y, std::int64_t n) {
  for_lanes<V>(
      n, [&](std::int64_t i) { V::store(y + i, load_as<V>(x + i)); },
      [&](std::int64_t i, std::int64_t left) { V::store_part(y + i, load_part_as<V>(x + i, left), left); });
}

template <class V>
void widen_int8(float scale, const std::int8_t* x, float* y, std::int64_t n) {
  const auto factor = V::set1(scale);
  for_lanes<V>(
      n, [&](std::int64_t i) { V::store(y + i, V::mul(factor, load_as<V>(x + i))); },
      [&](std::int64_t i, std::int64_t left) {
        V::store_part(y + i, V::mul(factor, load_part_as<V>(x + i, left)), left);
      });
}

template <class V>
void add(const float* x, float* y, std::int64_t n) {
  for_lanes<V>(
      n, [&](std::int64_t i) { V::store(y + i, V::add(V::load(y + i), V::load(x + i))); },
      [&](std::int64_t i, std::int64_t left) {
        V::store_part(y + i, V::add(V::load_part(y + i, left), V::load_part(x + i, left)), left);
      });
}

template <class V>
void scale(float factor, float* x, std::int64_t n) {
  const auto f = V::set1(factor);
  for_lanes<V>(
      n, [&](std::int64_t i) { V::store(x + i, V::mul(f, V::load(x + i))); },
      [&](std::int64_t i, std::int64_t left) { V::store_part(x + i, V::mul(f, V::load_part(x + i, left)), left); });
}

template <class V>
float max(const float* x, std::int64_t n) {
  float best = -__builtin_inff();
  auto all = V::set1(best);
  std::int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) all = V::max(all, V::load(x + i));
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  const float other = V::largest(all);
  return other > best ? other : best;
}

// Zero times a finite number is zero, times any other it is NaN; four chains hide the latency.
template <class V>
bool finite(const float* x, std::int64_t n) {
  const auto zero = V::zero();
  typename V::Reg sum[4] = {zero, zero, zero, zero};
  std::int64_t i = 0;
  for (; i + 4 * V::kLanes <= n; i += 4 * V::kLanes) {
    for (int j = 0; j < 4; ++j) sum[j] = V::fma(V::load(x + i + j * V::kLanes), zero, sum[j]);
  }
  for_lanes<V>(
      n - i, [&](std::int64_t at) { sum[0] = V::fma(V::load(x + i + at), zero, sum[0]); },
      [&](std::int64_t at, std::int64_t left) { sum[1] = V::fma(V::load_part(x + i + at, left), zero, sum[1]); });
  return V::sum(V::add(V::add(sum[0], sum[1]), V::add(sum[2], sum[3]))) == 0.0F;
}

template <class V>
float exp_sub_sum(float shift, float* x, std::int64_t n) {
  const auto s = V::set1(shift);
  auto sum = V::zero();
  for_lanes<V>(
      n,
      [&](std::int64_t i) {
        const auto e = exp_of<V>(V::sub(V::load(x + i), s));
        V::store(x + i, e);
        sum = V::add(sum, e);
      },
      [&](std::int64_t i, std::int64_t left) {
        V::store_part(x + i, exp_of<V>(V::sub(V::load_part(x + i, left), s)), left);
        sum = V::add(sum, V::load_part(x + i, left));  // read back: lanes beyond the end count as zero
      });
  return V::sum(sum);
}

template <class V>
void silu_mul(const float* gate, const float* up, float* out, std::int64_t n) {
  for_lanes<V>(
      n, [&](std::int64_t i) { V::store(out + i, V::mul(silu<V>(V::load(gate + i)), V::load(up + i))); },
      [&](std::int64_t i, std::int64_t left) {
        V::store_part(out + i, V::mul(silu<V>(V::load_part(gate + i, left)), V::load_part(up + i, left)), left);
      });
}

template <class V>
void sigmoid_mul(const float* gate, const float* x, float* out, std::int64_t n) {
  for_lanes<V>(
      n, [&](std::int64_t i) { V::store(out + i, times_sigmoid<V>(V::load(x + i), V::load(gate + i))); },
      [&](std::int64_t i, std::int64_t left) {
        V::store_part(out + i, times_sigmoid<V>(V::load_part(x + i, left), V::load_part(gate + i, left)), left);
      });
}

template <class V>
void rms_norm(const float* x, const float* weight, float eps, float* y, std::int64_t n) {
  const float mean = dot<V>(x, x, n) / static_cast<float>(n);
  const auto inverse = V::set1(1.0F / __builtin_sqrtf(mean + eps));
  for_lanes<V>(
      n, [&](std::int64_t i) { V::store(y + i, V::mul(V::load(weight + i), V::mul(V::load(x + i), inverse))); },
      [&](std::int64_t i, std::int64_t left) {
        V::store_part(y + i, V::mul(V::load_part(weight + i, left), V::mul(V::load_part(x + i, left), inverse)), left);
      });
}

template <class V>
void rotate(float* a, float* b, const float* cos, const float* sin, std::int64_t n) {
  for_lanes<V>(
      n,
      [&](std::int64_t i) {
        const auto x = V::load(a + i);
        const auto y = V::load(b + i);
        const auto c = V::load(cos + i);
        const auto s = V::load(sin + i);
        V::store(a + i, V::sub(V::mul(x, c), V::mul(y, s)));
        V::store(b + i, V::add(V::mul(y, c), V::mul(x, s)));
      },
      [&](std::int64_t i, std::int64_t left) {
        const auto x = V::load_part(a + i, left);
        const auto y = V::load_part(b + i, left);
        const auto c = V::load_part(cos + i, left);
        const auto s = V::load_part(sin + i, left);
        V::store_part(a + i, V::sub(V::mul(x, c), V::mul(y, s)), left);
        V::store_part(b + i, V::add(V::mul(y, c), V::mul(x, s)), left);
      });
}

// N vectors of columns from `begin`; `left` counts the columns of the last one.
template <class V, int N, class Load, class Store>
void delta_columns(const DeltaStep& step, std::int64_t begin, Load load, Store store) {
  typename V::Reg delta[N];
  typename V::Reg out[N];
  for (int v = 0; v < N; ++v) delta[v] = out[v] = V::zero();
  const std::int64_t stride = step.decay_by_row ? 1 : 0;
  for (std::int64_t i = 0; i < step.rows; ++i) {
    const auto key = V::set1(step.decay[i * stride] * step.key[i]);
    for (int v = 0; v < N; ++v) delta[v] = V::fma(key, load(step.state + i * step.n + begin + v * V::kLanes), delta[v]);
  }
  for (int v = 0; v < N; ++v) {
    const auto error = V::sub(load(step.value + begin + v * V::kLanes), delta[v]);
    delta[v] = V::mul(V::set1(step.beta), error);
  }
  for (std::int64_t i = 0; i < step.rows; ++i) {
    const auto key = V::set1(step.key[i]);
    const auto query = V::set1(step.query[i]);
    const auto decay = V::set1(step.decay[i * stride]);
    for (int v = 0; v < N; ++v) {
      float* const at = step.state + i * step.n + begin + v * V::kLanes;
      const auto next = V::fma(key, delta[v], V::mul(decay, load(at)));
      store(at, next);
      out[v] = V::fma(query, next, out[v]);
    }
  }
  for (int v = 0; v < N; ++v) store(step.out + begin + v * V::kLanes, out[v]);
}

template <class V>
void delta_step(const DeltaStep& step) {
  const auto load_all = [](const float* at) { return V::load(at); };
  const auto store_all = [](float* at, typename V::Reg v) { V::store(at, v); };
  std::int64_t j = 0;
  for (; j + 4 * V::kLanes <= step.n; j += 4 * V::kLanes) delta_columns<V, 4>(step, j, load_all, store_all);
  for (; j + V::kLanes <= step.n; j += V::kLanes) delta_columns<V, 1>(step, j, load_all, store_all);
  if (j == step.n) return;
  const std::int64_t left = step.n - j;
  delta_columns<V, 1>(
      step, j, [left](const float* at) { return V::load_part(at, left); },
      [left](float* at, typename V::Reg v) { V::store_part(at, v, left); });
}

}  // namespace moracle::cpu::vector_loops

namespace moracle::cpu {

template <class V>
constexpr VectorOps vector_ops_of(const char* name) {
  using namespace vector_loops;
  return {.name = name,
          .dot = dot<V>,
          .dot_rows = dot_rows<V>,
          .gemm = gemm<V, float>,
          .add = add<V>,
          .scale = scale<V>,
          .max = max<V>,
          .finite = finite<V>,
          .exp_sub_sum = exp_sub_sum<V>,
          .silu_mul = silu_mul<V>,
          .sigmoid_mul = sigmoid_mul<V>,
          .rms_norm = rms_norm<V>,
          .rotate = rotate<V>,
          .delta_step = delta_step<V>,
          .gemm_bf16 = gemm<V, std::uint16_t>,
          .gemm_int8 = gemm<V, std::int8_t>,
          .multiply = multiply<V>,
          .widen_bf16 = widen_bf16<V>,
          .widen_int8 = widen_int8<V>};
}

}  // namespace moracle::cpu
