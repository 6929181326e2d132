// Scales that enter as integers (PanelScale::e4m3_pair, FoldTail): whatever scales a checkpoint has, the products are
// those of its numbers, and nothing overflows on the way.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/checked.h"
#include "base/memory.h"
#include "kernels/kernel.h"
#include "machine/machine.h"
#include "scheme/codes.h"
#include "support/random_experts.h"

namespace moracle {
namespace {

constexpr std::int64_t kRows = 77;        // three panels, the last one not full
constexpr std::int64_t kScaleCols = 128;  // that share a scale of the activations

// A kernel, and the largest of the integers that it makes of activations.
struct Case {
  const char* name;
  const char* card;
  ScaleType scale;
  std::int32_t group;
  int most;
};
constexpr Case kCases[] = {{"nvfp4_fast", "cpu.avx2.nvfp4-fast", ScaleType::e4m3, 16, 127},
                           {"nvfp4", "cpu.avx2.nvfp4", ScaleType::e4m3, 16, 32512},
                           {"mxfp4_fast", "cpu.avx2.mxfp4-fast", ScaleType::e8m0, 32, 127},
                           {"mxfp4", "cpu.avx2.mxfp4", ScaleType::e8m0, 32, 32512}};

struct Matrix {
  const Case& of;
  std::int64_t cols = 0;
  std::vector<std::uint8_t> codes;  // [kRows, cols]
  std::vector<float> scales;        // [kRows, groups]

  [[nodiscard]] std::int64_t groups() const { return ceil_div(cols, std::int64_t{of.group}); }
  [[nodiscard]] double weight(std::int64_t row, std::int64_t k) const {
    const auto code = codes[static_cast<std::size_t>(row * cols + k)];
    const float scale = scales[static_cast<std::size_t>(row * groups() + k / of.group)];
    return static_cast<double>(decode_e2m1(code)) * static_cast<double>(scale);
  }
  [[nodiscard]] CanonicalLinear linear() const {
    const QuantKey key{.element = Element::e2m1, .scale = of.scale, .granularity = Granularity::group(of.group)};
    MatrixSpec spec{.name = "m", .rows = kRows, .cols = cols, .key = key, .group_cols = of.group, .groups = groups()};
    MatrixPanel panel;
    panel.rows = kRows;
    panel.codes = codes;
    panel.scales = scales;
    return {.weight = std::make_shared<test::MemoryMatrix>(std::move(spec), std::move(panel))};
  }
};

// The scale that an E4M3 code names; of E8M0, the power of two with its exponent.
float scale_of(ScaleType type, std::uint8_t code) {
  return type == ScaleType::e4m3 ? decode_e4m3(code) : std::ldexp(1.0F, (code >> 3 & 15) - 7);
}

// Codes from `code`, scales from `scale` by row and group.
Matrix matrix(const Case& of, std::int64_t cols, const std::function<std::uint8_t()>& code,
              const std::function<std::uint8_t(std::int64_t, std::int64_t)>& scale) {
  Matrix made{.of = of, .cols = cols, .codes = {}, .scales = {}};
  for (std::int64_t i = 0; i < kRows * cols; ++i) made.codes.push_back(code());
  for (std::int64_t row = 0; row < kRows; ++row)
    for (std::int64_t g = 0; g < made.groups(); ++g) made.scales.push_back(scale_of(of.scale, scale(row, g)));
  return made;
}

// Whole numbers, of which every 128 have one of the largest, so that they are their own codes under a scale of one.
std::vector<float> whole_numbers(int most, std::int64_t tokens, std::int64_t cols, std::mt19937& rng) {
  std::uniform_int_distribution<int> number(-most, most);
  std::vector<float> x;
  for (std::int64_t i = 0; i < tokens * cols; ++i)
    x.push_back(static_cast<float>(i % cols % kScaleCols == 0 ? most : number(rng)));
  return x;
}

class IntegerScales : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!has(probe_machine().cpu_features, CpuFeature::avx2)) GTEST_SKIP() << "this CPU lacks AVX2";
  }

  // [tokens, kRows]
  static std::vector<float> multiply(const PackedLinear& packed, std::int64_t tokens, const float* x) {
    ThreadPool pool(1);
    auto workspace = PageBuffer::allocate(packed.workspace_bytes(tokens, 1));
    std::vector<float> y(static_cast<std::size_t>(tokens * kRows), std::nanf(""));
    packed.run({.pool = pool, .workspace = {workspace->data(), workspace->size()}}, tokens, x, y.data());
    return y;
  }

  // Sums of a group, or of several, are exact; each is rounded to f32, and their sum, and the products by the units of
  // both. All tokens at once come to the bits of each alone.
  static void check(const Matrix& m, const std::vector<float>& x, const std::string& what) {
    const std::int64_t tokens = std::ssize(x) / m.cols;
    ThreadPool pool(1);
    auto packed = find_implementation(GetParam().card)->pack_linear(m.linear(), {.pool = pool});
    ASSERT_TRUE(packed.ok());
    const std::vector<float> y = multiply(**packed, tokens, x.data());
    const double roundings = 2.0 * static_cast<double>(m.groups() + ceil_div(m.cols, kScaleCols)) + 4.0;
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t row = 0; row < kRows; ++row) {
        double sum = 0.0;
        double magnitudes = 0.0;
        for (std::int64_t k = 0; k < m.cols; ++k) {
          const double product = m.weight(row, k) * static_cast<double>(x[static_cast<std::size_t>(t * m.cols + k)]);
          sum += product;
          magnitudes += std::fabs(product);
        }
        const double found = y[static_cast<std::size_t>(t * kRows + row)];
        ASSERT_NEAR(found, sum, roundings * 0x1p-24 * magnitudes) << what << ", token " << t << ", row " << row;
      }
      const std::vector<float> alone = multiply(**packed, 1, x.data() + t * m.cols);
      ASSERT_TRUE(std::equal(alone.begin(), alone.end(), y.begin() + t * kRows))
          << what << ", token " << t << " of " << tokens;
    }
  }
  void check_all(const std::string& what, const std::function<std::uint8_t(std::int64_t, std::int64_t)>& scale) {
    std::uniform_int_distribution<int> code(0, 15);
    for (const std::int64_t cols : {8, 16, 32, 48, 104, 272, 640, 1160}) {
      const Matrix m = matrix(GetParam(), cols, [&] { return static_cast<std::uint8_t>(code(rng)); }, scale);
      for (const std::int64_t tokens : {1, 2, 3, 4, 5, 15, 21}) {
        check(m, whole_numbers(GetParam().most, tokens, cols, rng), what + ", " + std::to_string(cols) + " columns");
      }
    }
  }
  std::uint8_t between(int least, int most) {
    return static_cast<std::uint8_t>(std::uniform_int_distribution<int>(least, most)(rng));
  }

  std::mt19937 rng{5};
};
INSTANTIATE_TEST_SUITE_P(Cards, IntegerScales, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST_P(IntegerScales, LargeAndSmallOnes) {
  check_all("448 down to 1", [&](auto, auto) { return between(0x38, 0x7E); });
  check_all("below 1", [&](auto, auto) { return between(0x08, 0x38); });
  check_all("subnormal", [&](auto, auto) { return between(0x00, 0x07); });
  check_all("within 8", [&](auto, auto) { return between(0x40, 0x5F); });
}

TEST_P(IntegerScales, OfAnyRange) {
  check_all("all", [&](auto, auto) { return between(0x00, 0x7E); });
  check_all("of either sign",
            [&](auto, auto) { return static_cast<std::uint8_t>(between(0x00, 0x7E) + 128 * between(0, 1)); });
}

// Panels differ: in one, small scales stand beside large ones; the others have a range of their own each.
TEST_P(IntegerScales, PanelByPanel) {
  check_all("by panel", [&](std::int64_t row, std::int64_t g) {
    if (row < 32) return between(0x40, 0x7E);
    if (row < 64) return g % 3 == 0 ? between(0x01, 0x10) : between(0x70, 0x7E);
    return between(0x10, 0x40);
  });
  check_all("zeros", [&](std::int64_t row, std::int64_t g) {
    return row % 2 == 0 || g % 2 == 1 ? std::uint8_t{0} : between(0x20, 0x60);
  });
}

// All products are the largest there are, and of one sign. Scales of 15 x 2^10 beside 15 x 2^7 are as large as those
// can be that add up in integers, in the blocks of 128 columns that begin with the larger ones.
TEST_P(IntegerScales, LargestSums) {
  const std::function<std::uint8_t(std::int64_t, std::int64_t)> scales[] = {
      [](auto, auto) { return std::uint8_t{0x7E}; },
      [](auto, std::int64_t g) { return g % 8 < 2 ? std::uint8_t{0x77} : std::uint8_t{0x5F}; },
      [](auto, std::int64_t g) { return g % 4 < 2 ? std::uint8_t{0x77} : std::uint8_t{0x47}; }};
  for (const auto& scale : scales)
    for (const std::uint8_t code : {std::uint8_t{7}, std::uint8_t{15}})
      for (const std::int64_t cols : {128, 1024}) {
        const Matrix m = matrix(GetParam(), cols, [&] { return code; }, scale);
        for (const int value : {GetParam().most, -GetParam().most})
          check(m, std::vector<float>(static_cast<std::size_t>(16 * cols), static_cast<float>(value)),
                "code " + std::to_string(code));
      }
}

}  // namespace
}  // namespace moracle
