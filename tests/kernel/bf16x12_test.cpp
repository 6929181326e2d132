// bf16 in 12 bits: every number comes back, whatever it is, and the kernels make of it what they make of bf16.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "kernels/cpu/weights/pack/pack_lines.h"
#include "kernels/kernel.h"
#include "scheme/codes.h"
#include "support/cpu_targets.h"
#include "support/random_experts.h"

namespace moracle::cpu {
namespace {

constexpr std::int64_t kSteps = 5;
constexpr std::size_t kWeights = kSteps * kStepColumns * kPanelRows;
constexpr std::size_t kCompactBytes = kSteps * 384 + sizeof(Bf16x12Tail);

// Place of a weight in a plain panel, in units of two bytes.
std::size_t place(std::size_t row, std::size_t column) {
  return column / 2 * 64 + row * 2 + column % 2;
}

// Weights as trained ones are distributed, with zeros of both signs and a subnormal among them.
std::vector<std::uint16_t> normal_panel(unsigned seed, float deviation = 0.02F) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0F, deviation);
  std::vector<std::uint16_t> weights(kWeights);
  for (std::uint16_t& weight : weights) weight = encode_bf16(normal(rng));
  weights[3] = 0x0000;
  weights[70] = 0x8000;
  weights[71] = 0x0005;
  return weights;
}

struct Compact {
  std::vector<std::byte> bytes = std::vector<std::byte>(kCompactBytes);
  bool fits = false;

  explicit Compact(const std::vector<std::uint16_t>& weights)
      : fits(kPacking.bf16x12(reinterpret_cast<const std::byte*>(weights.data()), kSteps, bytes.data())) {}

  Bf16x12Tail tail() const {
    Bf16x12Tail tail;
    std::memcpy(&tail, bytes.data() + kSteps * 384, sizeof tail);
    return tail;
  }
  // By the layout's description in panel.h.
  std::uint16_t weight(std::size_t row, std::size_t column) const {
    const Bf16x12Tail list = tail();
    for (std::uint32_t i = 0; i < list.count; ++i) {
      if (list.exceptions[i].row == row && list.exceptions[i].column == column) return list.exceptions[i].weight;
    }
    const std::byte* const step = bytes.data() + column / 8 * 384;
    const std::size_t in_half = column % 4;
    const std::size_t at = row / 4 * 16 + in_half / 2 * 8 + row % 4 * 2 + in_half % 2;
    const auto low = std::to_integer<unsigned>(step[column % 8 / 4 * 128 + at]);
    const unsigned code = std::to_integer<unsigned>(step[256 + at]) >> (column % 8 / 4 * 4) & 15U;
    const int shift = static_cast<int>(std::lround(std::log2(list.factor)));
    const unsigned pair =
        code % 8 == 7 ? 0 : static_cast<unsigned>(kBf16x12Pair + static_cast<int>(code % 8) + shift / 2);
    return static_cast<std::uint16_t>((code / 8) << 15U | pair << 8U | low);
  }
};

void expect_same(const std::vector<std::uint16_t>& weights, const Compact& compact) {
  for (std::size_t row = 0; row < 32; ++row) {
    for (std::size_t column = 0; column < kSteps * 8; ++column)
      ASSERT_EQ(compact.weight(row, column), weights[place(row, column)]) << row << " " << column;
  }
}

// Targets that keep such weights.
std::vector<test::CpuTarget> compact_targets() {
  std::vector<test::CpuTarget> all;
  for (const test::CpuTarget& of : test::cpu_targets()) {
    for (const GemmKernel& kernel : of.target.gemm) {
      if (kernel.key.weight != WeightCode::bf16x12) continue;
      all.push_back(of);
      break;
    }
  }
  return all;
}

class CompactPanels : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!test::least_cpu_target().runs_here()) GTEST_SKIP() << "this CPU lacks what packing needs";
  }
};

TEST_F(CompactPanels, KeepsEveryNumber) {
  for (const float deviation : {1e-30F, 0.02F, 1.0F, 1e30F}) {
    const auto weights = normal_panel(1, deviation);
    const Compact compact(weights);
    ASSERT_TRUE(compact.fits) << deviation;
    expect_same(weights, compact);
  }
}

TEST_F(CompactPanels, ListsWhatIsFarOff) {
  auto weights = normal_panel(2);
  const auto before = Compact(weights).tail().count;
  weights[place(7, 33)] = encode_bf16(1e20F);
  weights[place(31, 0)] = encode_bf16(-1e-20F);
  const Compact compact(weights);
  ASSERT_TRUE(compact.fits);
  EXPECT_EQ(compact.tail().count, before + 2);
  expect_same(weights, compact);
}

TEST_F(CompactPanels, RefusesWhatHasTooManyExponents) {
  std::vector<std::uint16_t> weights(kWeights);
  for (std::size_t i = 0; i < kWeights; ++i) weights[i] = static_cast<std::uint16_t>((1 + i % 254) << 7U);
  EXPECT_FALSE(Compact(weights).fits);
}

// A factor would move it.
TEST_F(CompactPanels, ListsSubnormalNumbers) {
  auto weights = normal_panel(2);
  const auto before = Compact(weights).tail().count;
  weights[place(9, 9)] = 0x8001;
  const Compact compact(weights);
  EXPECT_EQ(compact.tail().count, before + 1);
  expect_same(weights, compact);
}

TEST_F(CompactPanels, AllZeros) {
  const std::vector<std::uint16_t> weights(kWeights);
  const Compact compact(weights);
  ASSERT_TRUE(compact.fits);
  expect_same(weights, compact);
}

class OfTarget : public ::testing::TestWithParam<test::CpuTarget> {
 protected:
  void SetUp() override {
    if (!GetParam().runs_here()) GTEST_SKIP() << "this CPU lacks " << GetParam().facts.name;
  }
  static std::string card() { return "cpu." + std::string(GetParam().facts.name) + ".dense"; }
};
const auto kName = [](const auto& info) { return std::string(info.param.facts.name); };

class CompactKernels : public OfTarget {
 protected:
  void SetUp() override {
    OfTarget::SetUp();
    std::mt19937 rng(3);
    std::normal_distribution<float> normal;
    for (std::size_t t = 0; t < kMaxTokens; ++t) {
      words_[t].resize(kSteps * 8 + 32);
      for (std::size_t i = 0; i < kSteps * 8; ++i) words_[t][i] = encode_bf16(normal(rng));
      for (const std::uint16_t word : words_[t]) numbers_[t].push_back(decode_bf16(word));
    }
  }

  // Null: the target has none. `last`: the one for most tokens.
  static const GemmKernel* kernel_of(WeightCode code, bool last = false) {
    const GemmKernel* found = nullptr;
    for (const GemmKernel& kernel : GetParam().target.gemm) {
      if (kernel.key.weight == code && (found == nullptr || last)) found = &kernel;
    }
    return found;
  }

  // [panels][tokens][32]
  std::vector<float> multiply(const GemmKernel& kernel, std::int64_t tokens,
                              const std::vector<const std::byte*>& panels, std::int64_t steps = kSteps) const {
    std::vector<float> out(panels.size() * static_cast<std::size_t>(tokens) * 32);
    std::vector<const void*> x;
    const bool numbers = kernel.key.act == ActDtype::f32;
    for (std::size_t t = 0; t < static_cast<std::size_t>(tokens); ++t) {
      x.push_back(numbers ? static_cast<const void*>(numbers_[t].data()) : words_[t].data());
    }
    const std::vector<float> token_scale(static_cast<std::size_t>(tokens), 1.0F);
    const std::vector<const void*> sums(static_cast<std::size_t>(tokens));
    const std::vector<const float*> scales(static_cast<std::size_t>(tokens));
    GemmArgs args;
    args.shape = {.groups = 1,
                  .steps = steps,
                  .last_steps = steps,
                  .panel_bytes = static_cast<std::size_t>(steps * step_bytes(kernel.key.weight))};
    args.tokens = tokens;
    args.x = x.data();
    args.sums = sums.data();
    args.input_scales = scales.data();
    args.token_scale = token_scale.data();
    for (std::size_t p = 0; p < panels.size(); ++p)
      args.add(panels[p], 1.0F, out.data() + p * static_cast<std::size_t>(tokens) * 32);
    kernel.run(args);
    return out;
  }

  static constexpr std::int64_t kTokens = 9;
  std::vector<std::uint16_t> words_[kMaxTokens];
  std::vector<float> numbers_[kMaxTokens];  // the same
};
INSTANTIATE_TEST_SUITE_P(All, CompactKernels, ::testing::ValuesIn(compact_targets()), kName);

TEST_P(CompactKernels, SameBitsAsPlainWithoutAList) {
  auto weights = normal_panel(4);
  const Bf16x12Tail list = Compact(weights).tail();  // what would be listed becomes zero
  for (std::uint32_t i = 0; i < list.count; ++i) weights[place(list.exceptions[i].row, list.exceptions[i].column)] = 0;
  const Compact compact(weights);
  ASSERT_EQ(compact.tail().count, 0U);
  for (std::int64_t tokens = 1; tokens <= kTokens; ++tokens) {
    EXPECT_EQ(multiply(*kernel_of(WeightCode::bf16x12), tokens, {compact.bytes.data()}),
              multiply(*kernel_of(WeightCode::bf16), tokens, {reinterpret_cast<const std::byte*>(weights.data())}))
        << tokens;
  }
}

TEST_P(CompactKernels, ListedWeightsCount) {
  auto weights = normal_panel(5);
  weights[place(7, 33)] = encode_bf16(300.0F);
  weights[place(8, 0)] = encode_bf16(-1e-9F);
  const Compact compact(weights);
  ASSERT_TRUE(compact.fits);
  ASSERT_GT(compact.tail().count, 0U);
  const auto* const plain = reinterpret_cast<const std::byte*>(weights.data());
  for (std::int64_t tokens = 1; tokens <= kTokens; ++tokens) {
    const auto found = multiply(*kernel_of(WeightCode::bf16x12), tokens, {compact.bytes.data()});
    const auto wanted = multiply(*kernel_of(WeightCode::bf16), tokens, {plain});
    // Sums of 40 products in another order: 40 roundings of numbers up to 300 x 4.
    for (std::size_t i = 0; i < found.size(); ++i) {
      const float most = i % 32 == 7 ? 1200.0F : 4.0F;
      EXPECT_NEAR(found[i], wanted[i], 40 * most * 0x1p-24F) << tokens << " " << i;
    }
  }
}

TEST_P(CompactKernels, SeveralPanelsAtOnceAreTheSame) {
  const auto first = normal_panel(6);
  const auto second = normal_panel(7, 3.0F);
  const Compact compact[2] = {Compact(first), Compact(second)};
  const GemmKernel& kernel = *kernel_of(WeightCode::bf16x12);
  for (std::int64_t tokens = 1; tokens <= kTokens; ++tokens) {
    std::vector<const std::byte*> panels;
    std::vector<float> wanted;
    for (std::size_t p = 0; p < kMaxPanels; ++p) {
      panels.push_back(compact[p % 2].bytes.data());
      const auto alone = multiply(kernel, tokens, {panels.back()});
      wanted.insert(wanted.end(), alone.begin(), alone.end());
    }
    EXPECT_EQ(multiply(kernel, tokens, panels), wanted) << tokens;
  }
}

// A panel of more chunks than one, with a list.
TEST_P(CompactKernels, RunsSumAsTilesDo) {
  if (kernel_of(WeightCode::bf16x12) == kernel_of(WeightCode::bf16x12, true))
    GTEST_SKIP() << "tiles decode for themselves";
  constexpr std::int64_t kLongSteps = 150;
  std::vector<std::uint16_t> weights;
  for (unsigned seed = 0; seed * kSteps < kLongSteps; ++seed) {
    const auto part = normal_panel(20 + seed);
    weights.insert(weights.end(), part.begin(), part.end());
  }
  weights[place(7, 1001)] = encode_bf16(300.0F);
  std::vector<std::byte> panel(kLongSteps * 384 + sizeof(Bf16x12Tail));
  ASSERT_TRUE(kPacking.bf16x12(reinterpret_cast<const std::byte*>(weights.data()), kLongSteps, panel.data()));
  std::mt19937 rng(4);
  std::normal_distribution<float> normal;
  for (auto& row : numbers_) {
    row.resize(kLongSteps * 8);
    for (float& value : row) value = normal(rng);
  }
  for (const std::int64_t tokens : {3, 6, 10, 33, 64}) {
    const auto run = multiply(*kernel_of(WeightCode::bf16x12, true), tokens, {panel.data()}, kLongSteps);
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::swap(numbers_[0], numbers_[t]);
      const auto alone = multiply(*kernel_of(WeightCode::bf16x12), 1, {panel.data()}, kLongSteps);
      std::swap(numbers_[0], numbers_[t]);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), run.begin() + t * 32)) << tokens << " " << t;
    }
  }
}

// Whole linears, [77, 320], by the card that keeps them compact.
class CompactLinears : public OfTarget {
 protected:
  static constexpr std::int64_t kRows = 77;
  static constexpr std::int64_t kCols = 320;

  static CanonicalLinear linear_of(const std::function<float(std::size_t)>& value) {
    MatrixPanel all;
    all.rows = kRows;
    for (std::size_t i = 0; i < kRows * kCols; ++i) all.values.push_back(decode_bf16(encode_bf16(value(i))));
    return {.weight = std::make_shared<test::MemoryMatrix>(MatrixSpec{.name = "w", .rows = kRows, .cols = kCols}, all)};
  }
  static CanonicalLinear normal_linear() {
    std::mt19937 rng(8);
    std::normal_distribution<float> normal(0.0F, 0.02F);
    return linear_of([&](std::size_t) { return normal(rng); });
  }

  struct Outcome {
    std::size_t bytes = 0;
    std::vector<float> y;
  };
  static Outcome run(std::string_view card, const CanonicalLinear& linear) {
    ThreadPool pool(2);
    const auto packed = find_implementation(card)->pack_linear(linear, {.pool = pool});
    EXPECT_TRUE(packed.ok());
    std::mt19937 rng(9);
    std::normal_distribution<float> normal;
    std::vector<float> x(3 * kCols);
    for (float& v : x) v = decode_bf16(encode_bf16(normal(rng)));
    Outcome outcome{.bytes = (*packed)->bytes(), .y = std::vector<float>(3 * kRows)};
    auto workspace = PageBuffer::allocate((*packed)->workspace_bytes(3, 2));
    Stream stream(pool);
    (*packed)->run({.stream = stream, .workspace = {workspace->data(), workspace->size()}}, 3, x.data(),
                   outcome.y.data());
    return outcome;
  }

  // Sums of kCols products of exact inputs, in another order: a rounding each, of at most the sum of magnitudes.
  static void expect_near(const std::vector<float>& found, const std::vector<float>& wanted) {
    float most = 0;
    for (const float value : wanted) most = std::max(most, std::fabs(value));
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], most * kCols * 0x1p-24F) << i;
  }
};

INSTANTIATE_TEST_SUITE_P(All, CompactLinears, ::testing::ValuesIn(compact_targets()), kName);

TEST_P(CompactLinears, TakeThreeQuartersOfTheBytes) {
  const CanonicalLinear linear = normal_linear();
  const Outcome compact = run(card(), linear);
  EXPECT_EQ(compact.bytes, 3 * (kCols / 8 * 384 + sizeof(Bf16x12Tail)));
  expect_near(compact.y, run("ref.dense", linear).y);
}

TEST_P(CompactLinears, StayPlainWhereExponentsAreTooMany) {
  const CanonicalLinear linear =
      linear_of([](std::size_t i) { return std::ldexp(i % 3 == 0 ? -1.5F : 1.25F, static_cast<int>(i % 60) - 50); });
  const Outcome plain = run(card(), linear);
  EXPECT_EQ(plain.bytes, 3 * kCols / 8 * 512);
  expect_near(plain.y, run("ref.dense", linear).y);
}

}  // namespace
}  // namespace moracle::cpu
