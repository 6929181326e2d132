#include "kernels/vector/vector_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/vector/select.h"
#include "support/cpu_targets.h"

namespace moracle {
namespace {

std::vector<const VectorOps*> every_implementation() {
  std::vector<const VectorOps*> all{&scalar_vector_ops()};
  for (const test::CpuTarget& of : test::cpu_targets()) {
    if (of.runs_here() && &of.target.vector_ops() != all.back()) all.push_back(&of.target.vector_ops());
  }
  return all;
}

std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

constexpr std::int64_t kLengths[] = {0, 1, 3, 7, 8, 15, 16, 17, 31, 63, 64, 65, 129, 1000};

TEST(VectorOps, ExpIsWithinTwoUlp) {
  for (const VectorOps* ops : every_implementation()) {
    SCOPED_TRACE(ops->name);
    double worst = 0.0;
    std::vector<float> x;
    for (float value = -87.3F; value < 88.7F; value += 0.00137F) x.push_back(value);
    std::vector<float> y = x;
    ops->exp_sub_sum(0.0F, y.data(), static_cast<std::int64_t>(y.size()));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double want = std::exp(static_cast<double>(x[i]));
      const float rounded = static_cast<float>(want);
      const double ulp = static_cast<double>(std::nextafter(rounded, INFINITY)) - static_cast<double>(rounded);
      worst = std::max(worst, std::abs(static_cast<double>(y[i]) - want) / ulp);
    }
    EXPECT_LT(worst, 2.0);
  }
}

TEST(VectorOps, ExpAtTheEnds) {
  for (const VectorOps* ops : every_implementation()) {
    SCOPED_TRACE(ops->name);
    std::vector<float> x{0.0F, -INFINITY, -200.0F, 100.0F, -100.0F, NAN};
    ops->exp_sub_sum(0.0F, x.data(), static_cast<std::int64_t>(x.size()));
    EXPECT_EQ(x[0], 1.0F);
    EXPECT_EQ(x[1], 0.0F);
    EXPECT_EQ(x[2], 0.0F);
    EXPECT_EQ(x[3], INFINITY);
    EXPECT_NEAR(x[4], std::exp(-100.0), 2e-45);  // subnormal: absolute error of one step
    EXPECT_TRUE(std::isnan(x[5]));
  }
}

TEST(VectorOps, ReductionsMatchDouble) {
  for (const VectorOps* ops : every_implementation()) {
    for (const std::int64_t n : kLengths) {
      SCOPED_TRACE(std::string(ops->name) + " n=" + std::to_string(n));
      const auto a = random_values(static_cast<std::size_t>(n), 1);
      const auto b = random_values(static_cast<std::size_t>(n), 2);
      double dot = 0.0;
      double magnitude = 0.0;
      float largest = -INFINITY;
      for (std::size_t i = 0; i < a.size(); ++i) {
        dot += static_cast<double>(a[i]) * static_cast<double>(b[i]);
        magnitude += std::abs(static_cast<double>(a[i]) * static_cast<double>(b[i]));
        largest = std::max(largest, a[i]);
      }
      // Each chain rounds at most n times, each time by half an ulp of at most the sum of magnitudes.
      EXPECT_NEAR(ops->dot(a.data(), b.data(), n), dot, magnitude * static_cast<double>(n + 4) * 6e-8);
      EXPECT_EQ(ops->max(a.data(), n), largest);
      auto e = a;
      double sum = 0.0;
      for (const float value : a) sum += std::exp(static_cast<double>(value) - 0.5);
      EXPECT_NEAR(ops->exp_sub_sum(0.5F, e.data(), n), sum, sum * static_cast<double>(n + 4) * 6e-8);
    }
  }
}

TEST(VectorOps, DotRowsMatchDoubleAndEachPairAlone) {
  for (const VectorOps* ops : every_implementation()) {
    for (const std::int64_t k : kLengths) {
      const std::int64_t m = 7;
      const std::int64_t n = 6;
      const std::int64_t stride = k + 3;
      SCOPED_TRACE(std::string(ops->name) + " k=" + std::to_string(k));
      const auto a = random_values(static_cast<std::size_t>(m * stride), 11);
      const auto b = random_values(static_cast<std::size_t>(n * stride), 12);
      std::vector<float> c(static_cast<std::size_t>(m * (n + 1)), -7.0F);
      ops->dot_rows(m, n, k, a.data(), stride, b.data(), stride, c.data(), n + 1);
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
          double want = 0.0;
          double magnitude = 0.0;
          for (std::int64_t t = 0; t < k; ++t) {
            const double product = static_cast<double>(a[static_cast<std::size_t>(i * stride + t)]) *
                                   static_cast<double>(b[static_cast<std::size_t>(j * stride + t)]);
            want += product;
            magnitude += std::abs(product);
          }
          const float got = c[static_cast<std::size_t>(i * (n + 1) + j)];
          EXPECT_NEAR(got, want, magnitude * static_cast<double>(k + 4) * 6e-8);
          float alone = 0.0F;
          ops->dot_rows(1, 1, k, a.data() + i * stride, stride, b.data() + j * stride, stride, &alone, 1);
          EXPECT_EQ(got, alone) << i << " " << j;
        }
        EXPECT_EQ(c[static_cast<std::size_t>(i * (n + 1) + n)], -7.0F) << "beyond the row";
      }
    }
  }
}

TEST(VectorOps, FiniteFindsEveryPlace) {
  for (const VectorOps* ops : every_implementation()) {
    for (const std::int64_t n : kLengths) {
      SCOPED_TRACE(std::string(ops->name) + " n=" + std::to_string(n));
      auto x = random_values(static_cast<std::size_t>(n), 13);
      if (n > 0) x[0] = std::numeric_limits<float>::max();
      if (n > 1) x[1] = -std::numeric_limits<float>::max();
      EXPECT_TRUE(ops->finite(x.data(), n));
      for (float& value : x) {
        const float before = value;
        for (const float bad : {INFINITY, -INFINITY, NAN}) {
          value = bad;
          EXPECT_FALSE(ops->finite(x.data(), n));
        }
        value = before;
      }
    }
  }
}

TEST(VectorOps, GemmMatchesDoubleAndEachRowAlone) {
  for (const VectorOps* ops : every_implementation()) {
    for (const std::int64_t n : {1, 5, 16, 33, 64, 96, 128}) {
      for (const std::int64_t m : {1, 3, 4, 6, 8, 9, 14, 15}) {
        SCOPED_TRACE(std::string(ops->name) + " n=" + std::to_string(n) + " m=" + std::to_string(m));
        const std::int64_t k = 37;
        const auto a = random_values(static_cast<std::size_t>(m * k), 3);
        const auto b = random_values(static_cast<std::size_t>(k * n), 4);
        const auto start = random_values(static_cast<std::size_t>(m * n), 5);
        auto c = start;
        ops->gemm(m, n, k, a.data(), k, b.data(), n, c.data(), n, true, b.data());
        for (std::int64_t i = 0; i < m; ++i) {
          std::vector<float> row(start.begin() + i * n, start.begin() + (i + 1) * n);
          ops->gemm(1, n, k, a.data() + i * k, k, b.data(), n, row.data(), n, true, nullptr);
          EXPECT_EQ(std::memcmp(row.data(), c.data() + i * n, static_cast<std::size_t>(n) * sizeof(float)), 0);
          for (std::int64_t j = 0; j < n; ++j) {
            double want = static_cast<double>(start[static_cast<std::size_t>(i * n + j)]);
            for (std::int64_t t = 0; t < k; ++t) {
              want += static_cast<double>(a[static_cast<std::size_t>(i * k + t)]) *
                      static_cast<double>(b[static_cast<std::size_t>(t * n + j)]);
            }
            ASSERT_NEAR(c[static_cast<std::size_t>(i * n + j)], want, 1e-4);
          }
        }
      }
    }
  }
}

// Narrow operands are exact in f32: products over them have the bits of products over the widened ones. A byte behind
// the last number belongs to nobody.
TEST(VectorOps, GemmOverNarrowNumbersEqualsGemmOverTheWidened) {
  for (const VectorOps* ops : every_implementation()) {
    for (const std::int64_t n : {1, 5, 16, 33, 64, 96, 128}) {
      for (const std::int64_t m : {1, 3, 4, 6, 8, 9, 14, 15}) {
        SCOPED_TRACE(std::string(ops->name) + " n=" + std::to_string(n) + " m=" + std::to_string(m));
        const std::int64_t k = 37;
        const auto size = static_cast<std::size_t>(k * n);
        const auto a = random_values(static_cast<std::size_t>(m * k), 3);
        const auto start = random_values(static_cast<std::size_t>(m * n), 5);
        std::vector<std::uint16_t> halves(size);
        std::vector<std::int8_t> codes(size);
        std::mt19937 engine(6);
        for (auto& half : halves) half = static_cast<std::uint16_t>(engine() % 0x8000U >> 1U | (engine() & 0x8000U));
        for (auto& code : codes) code = static_cast<std::int8_t>(static_cast<int>(engine() % 255) - 127);
        halves.shrink_to_fit();
        codes.shrink_to_fit();
        std::vector<float> wide(size);
        const auto same = [&](const std::vector<float>& got) {
          auto want = start;
          ops->gemm(m, n, k, a.data(), k, wide.data(), n, want.data(), n, true, nullptr);
          return std::memcmp(got.data(), want.data(), want.size() * sizeof(float)) == 0;
        };
        for (std::size_t i = 0; i < size; ++i) {
          const auto bits = static_cast<std::uint32_t>(halves[i]) << 16U;
          std::memcpy(&wide[i], &bits, sizeof bits);
        }
        auto c = start;
        ops->gemm_bf16(m, n, k, a.data(), k, halves.data(), n, c.data(), n, true, halves.data());
        EXPECT_TRUE(same(c));
        std::vector<float> widened(size + 1, 42.0F);
        ops->widen_bf16(halves.data(), widened.data(), static_cast<std::int64_t>(size));
        EXPECT_EQ(std::memcmp(widened.data(), wide.data(), size * sizeof(float)), 0);
        EXPECT_EQ(widened[size], 42.0F);
        for (std::size_t i = 0; i < size; ++i) wide[i] = static_cast<float>(codes[i]);
        c = start;
        ops->gemm_int8(m, n, k, a.data(), k, codes.data(), n, c.data(), n, true, codes.data());
        EXPECT_TRUE(same(c));
        ops->widen_int8(0.25F, codes.data(), widened.data(), static_cast<std::int64_t>(size));
        for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(widened[i], 0.25F * wide[i]);
        EXPECT_EQ(widened[size], 42.0F);
      }
    }
  }
}

TEST(VectorOps, ElementwiseMatchesTheScalarForm) {
  const VectorOps& scalar = scalar_vector_ops();
  for (const VectorOps* ops : every_implementation()) {
    for (const std::int64_t n : kLengths) {
      if (n == 0) continue;
      SCOPED_TRACE(std::string(ops->name) + " n=" + std::to_string(n));
      const auto size = static_cast<std::size_t>(n);
      const auto a = random_values(size, 6);
      const auto b = random_values(size, 7);
      const auto c = random_values(size, 8);
      const auto s = random_values(size, 9);
      std::vector<float> got(size + 1, 42.0F);  // one more element shows a write past the end
      std::vector<float> want(size + 1, 42.0F);
      ops->silu_mul(a.data(), b.data(), got.data(), n);
      scalar.silu_mul(a.data(), b.data(), want.data(), n);
      for (std::size_t i = 0; i <= size; ++i) ASSERT_NEAR(got[i], want[i], std::abs(want[i]) * 1e-6F);
      ops->sigmoid_mul(a.data(), b.data(), got.data(), n);
      scalar.sigmoid_mul(a.data(), b.data(), want.data(), n);
      for (std::size_t i = 0; i < size; ++i) {
        ASSERT_NEAR(want[i], b[i] / (1.0F + std::exp(-a[i])), std::abs(want[i]) * 1e-6F);
        ASSERT_NEAR(got[i], want[i], std::abs(want[i]) * 1e-6F);
      }
      EXPECT_EQ(got[size], 42.0F);
      ops->rms_norm(a.data(), b.data(), 1e-6F, got.data(), n);
      scalar.rms_norm(a.data(), b.data(), 1e-6F, want.data(), n);
      for (std::size_t i = 0; i <= size; ++i) ASSERT_NEAR(got[i], want[i], std::abs(want[i]) * 1e-6F);
      auto x = a;
      auto y = b;
      auto x2 = a;
      auto y2 = b;
      ops->rotate(x.data(), y.data(), c.data(), s.data(), n);
      scalar.rotate(x2.data(), y2.data(), c.data(), s.data(), n);
      EXPECT_EQ(x, x2);
      EXPECT_EQ(y, y2);
      ops->add(a.data(), x.data(), n);
      scalar.add(a.data(), x2.data(), n);
      ops->scale(0.37F, x.data(), n);
      scalar.scale(0.37F, x2.data(), n);
      ops->multiply(s.data(), x.data(), n);
      scalar.multiply(s.data(), x2.data(), n);
      EXPECT_EQ(x, x2);
    }
  }
}

TEST(VectorOps, DeltaStepMatchesDoubleAndEachColumnAlone) {
  for (const VectorOps* ops : every_implementation()) {
    for (const std::int64_t n : {1, 7, 16, 33, 64, 130}) {
      SCOPED_TRACE(std::string(ops->name) + " n=" + std::to_string(n));
      const std::int64_t rows = 37;
      const auto key = random_values(static_cast<std::size_t>(rows), 10);
      const auto query = random_values(static_cast<std::size_t>(rows), 11);
      const auto value = random_values(static_cast<std::size_t>(n), 12);
      const auto start = random_values(static_cast<std::size_t>(rows * n), 13);
      const float decay = 0.75F;
      const std::vector<float> decays(static_cast<std::size_t>(rows), decay);
      const float beta = 0.3F;
      auto state = start;
      std::vector<float> out(static_cast<std::size_t>(n) + 1, 42.0F);
      ops->delta_step({rows, n, key.data(), query.data(), value.data(), &decay, false, beta, state.data(), out.data()});
      EXPECT_EQ(out.back(), 42.0F);
      auto by_row = start;
      std::vector<float> same(static_cast<std::size_t>(n));
      ops->delta_step(
          {rows, n, key.data(), query.data(), value.data(), decays.data(), true, beta, by_row.data(), same.data()});
      EXPECT_EQ(by_row, state);
      same.push_back(42.0F);
      EXPECT_EQ(same, out);
      for (std::int64_t j = 0; j < n; ++j) {
        const auto at = [&](std::int64_t i) { return static_cast<std::size_t>(i * n + j); };
        std::vector<float> column;
        double held = 0.0;
        for (std::int64_t i = 0; i < rows; ++i) {
          column.push_back(start[at(i)]);
          held += 0.75 * static_cast<double>(start[at(i)]) * static_cast<double>(key[static_cast<std::size_t>(i)]);
        }
        const auto column_value = value[static_cast<std::size_t>(j)];
        const double delta = static_cast<double>(beta) * (static_cast<double>(column_value) - held);
        double want = 0.0;
        for (std::int64_t i = 0; i < rows; ++i) {
          const auto row = static_cast<std::size_t>(i);
          const double next = 0.75 * static_cast<double>(start[at(i)]) + static_cast<double>(key[row]) * delta;
          ASSERT_NEAR(state[at(i)], next, 1e-5);
          want += static_cast<double>(query[row]) * next;
        }
        float alone = 0.0F;
        ops->delta_step({rows, 1, key.data(), query.data(), &column_value, &decay, false, beta, column.data(), &alone});
        ASSERT_NEAR(out[static_cast<std::size_t>(j)], want, 1e-4);
        ASSERT_EQ(out[static_cast<std::size_t>(j)], alone);
        for (std::int64_t i = 0; i < rows; ++i) ASSERT_EQ(state[at(i)], column[static_cast<std::size_t>(i)]);
      }
    }
  }
}

TEST(VectorOps, DeltaStepForgetsByRow) {
  for (const VectorOps* ops : every_implementation()) {
    SCOPED_TRACE(ops->name);
    const std::int64_t rows = 19;
    const auto key = random_values(static_cast<std::size_t>(rows), 20);
    const auto query = random_values(static_cast<std::size_t>(rows), 21);
    auto decay = random_values(static_cast<std::size_t>(rows), 22);
    for (float& number : decay) number = 0.5F + 0.25F * number;
    const auto start = random_values(static_cast<std::size_t>(rows), 23);
    const float value = 0.7F;
    const float beta = 0.4F;
    auto state = start;
    float out = 0.0F;
    ops->delta_step({rows, 1, key.data(), query.data(), &value, decay.data(), true, beta, state.data(), &out});
    double held = 0.0;
    for (std::size_t i = 0; i < state.size(); ++i) {
      held += static_cast<double>(decay[i]) * static_cast<double>(start[i]) * static_cast<double>(key[i]);
    }
    const double delta = static_cast<double>(beta) * (static_cast<double>(value) - held);
    for (std::size_t i = 0; i < state.size(); ++i) {
      const double next = static_cast<double>(decay[i]) * static_cast<double>(start[i]);
      ASSERT_NEAR(state[i], next + static_cast<double>(key[i]) * delta, 1e-5);
    }
  }
}

TEST(VectorOps, SelectTakesTheWidest) {
  EXPECT_STREQ(vector_ops(0).name, "scalar");
#if defined(__x86_64__)
  EXPECT_STREQ(vector_ops(CpuFeatures{} | CpuFeature::avx2).name, "avx2");
  EXPECT_STREQ(vector_ops(CpuFeature::avx2 | CpuFeature::avx512).name, "avx512");
#elif defined(__aarch64__)
  EXPECT_STREQ(vector_ops(CpuFeatures{} | CpuFeature::neon).name, "neon");
#endif
}

}  // namespace
}  // namespace moracle
