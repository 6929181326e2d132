// Pairs of groups under integer scales (PanelScale::e4m3_pair): whatever E4M3 numbers a checkpoint has for scales, the
// products are those of its numbers, and nothing overflows on the way.
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

constexpr std::int64_t kGroup = 16;
constexpr std::int64_t kRows = 77;        // three panels, the last one not full
constexpr std::int64_t kScaleCols = 128;  // that share a scale of the activations

struct Matrix {
  std::int64_t cols = 0;
  std::vector<std::uint8_t> codes;   // [kRows, cols]
  std::vector<std::uint8_t> scales;  // E4M3 [kRows, groups]

  [[nodiscard]] std::int64_t groups() const { return ceil_div(cols, kGroup); }
  [[nodiscard]] double weight(std::int64_t row, std::int64_t k) const {
    const auto code = codes[static_cast<std::size_t>(row * cols + k)];
    const auto scale = scales[static_cast<std::size_t>(row * groups() + k / kGroup)];
    return static_cast<double>(decode_e2m1(code)) * static_cast<double>(decode_e4m3(scale));
  }
  [[nodiscard]] CanonicalLinear linear() const {
    const QuantKey key{.element = Element::e2m1, .scale = ScaleType::e4m3, .granularity = Granularity::group(kGroup)};
    MatrixSpec spec{.name = "m", .rows = kRows, .cols = cols, .key = key, .group_cols = kGroup, .groups = groups()};
    MatrixPanel panel;
    panel.rows = kRows;
    panel.codes = codes;
    for (const std::uint8_t scale : scales) panel.scales.push_back(decode_e4m3(scale));
    return {.weight = std::make_shared<test::MemoryMatrix>(std::move(spec), std::move(panel))};
  }
};

// Codes from `code`, scales from `scale` by row and group.
Matrix matrix(std::int64_t cols, const std::function<std::uint8_t()>& code,
              const std::function<std::uint8_t(std::int64_t, std::int64_t)>& scale) {
  Matrix made{.cols = cols, .codes = {}, .scales = {}};
  for (std::int64_t i = 0; i < kRows * cols; ++i) made.codes.push_back(code());
  for (std::int64_t row = 0; row < kRows; ++row)
    for (std::int64_t g = 0; g < made.groups(); ++g) made.scales.push_back(scale(row, g));
  return made;
}

// Whole numbers, of which every 128 have one of 127, so that they are their own codes under a scale of one.
std::vector<float> whole_numbers(std::int64_t tokens, std::int64_t cols, std::mt19937& rng) {
  std::uniform_int_distribution<int> number(-127, 127);
  std::vector<float> x;
  for (std::int64_t i = 0; i < tokens * cols; ++i)
    x.push_back(i % cols % kScaleCols == 0 ? 127.0F : static_cast<float>(number(rng)));
  return x;
}

class ScalePairs : public testing::Test {
 protected:
  void SetUp() override {
    if (!has(probe_machine().cpu_features, CpuFeature::avx2)) GTEST_SKIP() << "this CPU lacks AVX2";
  }

  // Sums of 128 columns are exact; each is rounded to f32, and their sum, and the products by the units of both.
  void check(const Matrix& m, const std::vector<float>& x, const std::string& what) {
    const std::int64_t tokens = std::ssize(x) / m.cols;
    ThreadPool pool(1);
    auto packed = find_implementation("cpu.avx2.nvfp4-fast")->pack_linear(m.linear(), {.pool = pool});
    ASSERT_TRUE(packed.ok());
    auto workspace = PageBuffer::allocate((*packed)->workspace_bytes(tokens, 1));
    std::vector<float> y(static_cast<std::size_t>(tokens * kRows), std::nanf(""));
    (*packed)->run({.pool = pool, .workspace = {workspace->data(), workspace->size()}}, tokens, x.data(), y.data());
    const double roundings = 2.0 * static_cast<double>(ceil_div(m.cols, kScaleCols)) + 4.0;
    for (std::int64_t t = 0; t < tokens; ++t)
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
  }
  void check_all(const std::string& what, const std::function<std::uint8_t(std::int64_t, std::int64_t)>& scale) {
    std::uniform_int_distribution<int> code(0, 15);
    for (const std::int64_t cols : {8, 16, 32, 48, 104, 272, 640}) {
      const Matrix m = matrix(cols, [&] { return static_cast<std::uint8_t>(code(rng)); }, scale);
      for (const std::int64_t tokens : {1, 2, 3, 4, 5, 12})
        check(m, whole_numbers(tokens, cols, rng), what + ", " + std::to_string(cols) + " columns");
    }
  }
  std::uint8_t between(int least, int most) {
    return static_cast<std::uint8_t>(std::uniform_int_distribution<int>(least, most)(rng));
  }

  std::mt19937 rng{5};
};

TEST_F(ScalePairs, LargeAndSmallOnes) {
  check_all("448 down to 1", [&](auto, auto) { return between(0x38, 0x7E); });
  check_all("below 1", [&](auto, auto) { return between(0x08, 0x38); });
  check_all("subnormal", [&](auto, auto) { return between(0x00, 0x07); });
}

TEST_F(ScalePairs, OfAnyRange) {
  check_all("all", [&](auto, auto) { return between(0x00, 0x7E); });
  check_all("of either sign",
            [&](auto, auto) { return static_cast<std::uint8_t>(between(0x00, 0x7E) + 128 * between(0, 1)); });
}

// Panels differ: in one, small scales stand beside large ones; the others have a range of their own each.
TEST_F(ScalePairs, PanelByPanel) {
  check_all("by panel", [&](std::int64_t row, std::int64_t g) {
    if (row < 32) return between(0x40, 0x7E);
    if (row < 64) return g % 3 == 0 ? between(0x01, 0x10) : between(0x70, 0x7E);
    return between(0x10, 0x40);
  });
  check_all("zeros", [&](std::int64_t row, std::int64_t g) {
    return row % 2 == 0 || g % 2 == 1 ? std::uint8_t{0} : between(0x20, 0x60);
  });
}

// All products are the largest there are, and of one sign.
TEST_F(ScalePairs, LargestSums) {
  for (const std::uint8_t code : {std::uint8_t{7}, std::uint8_t{15}})
    for (const std::int64_t cols : {128, 1024}) {
      const Matrix m = matrix(cols, [&] { return code; }, [](auto, auto) { return std::uint8_t{0x7E}; });
      for (const float value : {127.0F, -127.0F})
        check(m, std::vector<float>(static_cast<std::size_t>(6 * cols), value), "code " + std::to_string(code));
    }
}

}  // namespace
}  // namespace moracle
