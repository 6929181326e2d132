// The check values that an independent program gave for the same rules.
#include "bench/spec_routing.h"

#include <gtest/gtest.h>

#include <set>

namespace moracle {
namespace {

struct Check {
  const char* shape;
  std::int64_t tokens;
  std::uint64_t ids;
  double experts;  // with tokens, mean over the calls, rounded to two digits
};

constexpr Check kChecks[] = {
    {"qwen3-30b-a3b", 1, 0xb730d6de7f1019deULL, 8},      {"qwen3-30b-a3b", 4, 0x0c9de0713ca68436ULL, 29.92},
    {"qwen3-30b-a3b", 16, 0x539b30f932b396ecULL, 83.00}, {"qwen3-30b-a3b", 64, 0xd2b242f774a82366ULL, 126.33},
    {"gpt-oss-20b", 1, 0x4470ea17ed28a3b7ULL, 4},        {"gpt-oss-20b", 4, 0xe4a1efc1726c92ebULL, 13.00},
    {"gpt-oss-20b", 16, 0x77980ea1e753b3c7ULL, 28.08},   {"gpt-oss-20b", 64, 0xe793b7f10c5cdaadULL, 32},
    {"gpt-oss-120b", 1, 0xb9ea0e679a56d48bULL, 4},       {"gpt-oss-120b", 4, 0x6272154e5df2d91fULL, 15.25},
    {"gpt-oss-120b", 16, 0x28f01098ff8a8e28ULL, 51.25},  {"gpt-oss-120b", 64, 0x23ef9f638588b066ULL, 111.33},
    {"deepseek-v3", 1, 0x8dfba1282b05094bULL, 8},        {"deepseek-v3", 4, 0x1fdd217d9a624d0bULL, 30.58},
    {"deepseek-v3", 16, 0xf0c5e96c6aeb2c92ULL, 101.83},  {"deepseek-v3", 64, 0xf703281369c9fe3dULL, 218.83},
};

TEST(SpecRouting, IdsAreThoseOfTheRules) {
  for (const Check& check : kChecks) {
    const auto shape = parse_layer_shape(check.shape);
    ASSERT_TRUE(shape.ok());
    std::uint64_t hash = kFnvStart;
    double experts = 0;
    const std::int64_t calls = spec_calls(check.tokens);
    for (std::int64_t call = 0; call < calls; ++call) {
      const LayerInput input = spec_input(*shape, check.tokens, call);
      hash = fingerprint(input.ids, hash);
      experts += static_cast<double>(std::set(input.ids.begin(), input.ids.end()).size());
    }
    EXPECT_EQ(hash, check.ids) << check.shape << " " << check.tokens;
    EXPECT_NEAR(experts / static_cast<double>(calls), check.experts, 0.005) << check.shape << " " << check.tokens;
  }
}

TEST(SpecRouting, WeightsAndActivationsAreThoseOfTheRules) {
  const auto shape = parse_layer_shape("qwen3-30b-a3b");
  ASSERT_TRUE(shape.ok());
  const LayerInput input = spec_input(*shape, 1, 0);
  EXPECT_EQ(input.ids, (std::vector<std::int32_t>{33, 12, 84, 77, 8, 100, 55, 124}));
  constexpr float kWeights[] = {0.149866839F, 0.029268019F, 0.118015251F, 0.029688706F, 0.249789344F};
  for (std::size_t j = 0; j < std::size(kWeights); ++j) EXPECT_FLOAT_EQ(input.weights[j], kWeights[j]) << j;
  // Before they were rounded to 8 bits.
  constexpr float kValues[] = {-0.59305F, -1.32471F, 1.97742F};
  for (std::size_t i = 0; i < std::size(kValues); ++i)
    EXPECT_NEAR(input.x[i], kValues[i], std::abs(kValues[i]) * 0x1p-8F) << i;
}

TEST(SpecRouting, CallsOfAMeasurement) {
  EXPECT_EQ(spec_calls(1), 12);
  EXPECT_EQ(spec_calls(64), 12);
  EXPECT_EQ(spec_calls(65), 8);
  EXPECT_EQ(spec_calls(512), 8);
  EXPECT_EQ(spec_calls(8192), 4);
}

}  // namespace
}  // namespace moracle
