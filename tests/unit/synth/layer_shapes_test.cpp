#include "synth/layer_shapes.h"

#include <gtest/gtest.h>

#include <set>

#include "synth/synthetic_experts.h"

namespace moracle {
namespace {

TEST(BenchShapes, NamesAndSpelledShapes) {
  const auto named = parse_layer_shape("qwen3-30b-a3b");
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(named->experts, 128);
  EXPECT_EQ(named->hidden, 2048);
  EXPECT_EQ(named->intermediate, 768);
  EXPECT_EQ(named->top_k, 8);
  const auto spelled = parse_layer_shape("topk=2,E=4,N=64,K=128");
  ASSERT_TRUE(spelled.ok());
  EXPECT_EQ(spelled->hidden, 128);
  EXPECT_EQ(spelled->intermediate, 64);
  for (const char* bad :
       {"", "qwen", "E=4", "E=4,K=128,N=64,topk=5", "E=4,K=0,N=64,topk=2", "E=4,E=4,N=64,topk=2",
        "E=4,K=1x,N=64,topk=2", "E=4,K=128,N=64,topk=2,x=1", "E=99999999999999999999,K=1,N=1,topk=1"}) {
    EXPECT_FALSE(parse_layer_shape(bad).ok()) << bad;
  }
}

TEST(BenchShapes, EverySchemeOfTheContractHasAName) {
  const std::vector<std::string> names = scheme_names();
  const std::set<std::string> known(names.begin(), names.end());
  for (const char* name : {"int4-g32", "int4-g128", "int4-channel", "int4-g128-asym", "int4-g32-actorder", "int4-a8int",
                           "int4-a8fp8", "int8-g128", "int8-w8a8", "fp8-block", "fp8-channel", "fp8-tensor", "mxfp4",
                           "mxfp4-a8", "mxfp4-a4", "nvfp4", "nvfp4-a4", "bf16"}) {
    EXPECT_EQ(known.count(name), 1U) << name;
  }
  EXPECT_EQ(find_scheme("int5").error().code, "scheme.unknown");
}

TEST(BenchShapes, PublishedBytesCountCodesAndScales) {
  const auto bytes = [](const char* name, std::int64_t rows, std::int64_t cols) {
    return published_bytes(find_scheme(name)->scheme.weight, rows, cols);
  };
  EXPECT_EQ(bytes("int4-g128", 768, 2048), 768 * 2048 / 2 + 768 * 16 * 2);
  EXPECT_EQ(bytes("int4-channel", 768, 2048), 768 * 2048 / 2 + 768 * 2);
  EXPECT_EQ(bytes("int8-g128", 768, 2048), 768 * 2048 + 768 * 16 * 2);
  EXPECT_EQ(bytes("fp8-block", 768, 2048), 768 * 2048 + 6 * 16 * 4);
  EXPECT_EQ(bytes("fp8-tensor", 768, 2048), 768 * 2048 + 4);
  EXPECT_EQ(bytes("mxfp4", 768, 2048), 768 * 2048 / 2 + 768 * 64);
  EXPECT_EQ(bytes("nvfp4", 768, 2048), 768 * 2048 / 2 + 768 * 128 + 4);
  EXPECT_EQ(bytes("bf16", 768, 2048), 768 * 2048 * 2);
}

TEST(SyntheticExperts, AreDeterministicPerExpertAndKeepTheirSize) {
  const LayerShape shape{.name = "t", .experts = 8, .hidden = 512, .intermediate = 256, .top_k = 2};
  for (const std::string& name : scheme_names()) {
    const auto scheme = find_scheme(name);
    const auto all = synthetic_experts(shape, *scheme, 5, {0, 1, 2});
    const auto some = synthetic_experts(shape, *scheme, 5, {2});
    ASSERT_TRUE(all.ok() && some.ok()) << name;
    const auto a = dequantize(*all->experts[2].gate.weight);
    const auto b = dequantize(*some->experts[0].gate.weight);
    const auto other = dequantize(*all->experts[1].gate.weight);
    ASSERT_TRUE(a.ok() && b.ok() && other.ok()) << name;
    EXPECT_EQ(*a, *b) << name;
    EXPECT_NE(*a, *other) << name;
    double sum = 0;
    for (const float value : *a) sum += static_cast<double>(value) * value;
    // Weights of variance 1 / columns keep the size of activations; scales vary by a quarter, codes are uniform.
    EXPECT_NEAR(sum / 256, 1.0, 0.5) << name;
  }
}

TEST(SyntheticExperts, ActOrderGivesEachGroupItsColumns) {
  const LayerShape shape{.name = "t", .experts = 1, .hidden = 256, .intermediate = 128, .top_k = 1};
  const auto experts = synthetic_experts(shape, *find_scheme("int4-g32-actorder"), 5, {0});
  ASSERT_TRUE(experts.ok());
  const auto& g_idx = experts->experts[0].gate.weight->spec().g_idx;
  ASSERT_EQ(g_idx.size(), 256U);
  for (std::int32_t group = 0; group < 8; ++group) EXPECT_EQ(std::count(g_idx.begin(), g_idx.end(), group), 32);
  EXPECT_FALSE(std::is_sorted(g_idx.begin(), g_idx.end()));
  EXPECT_EQ(g_idx, experts->experts[0].up.weight->spec().g_idx);
}

TEST(SyntheticExperts, RefuseGroupsThatDoNotDivide) {
  const auto shape = parse_layer_shape("gpt-oss-20b");
  EXPECT_EQ(synthetic_experts(*shape, *find_scheme("int4-g128"), 1, {0}).error().code, "quant.group");
  EXPECT_TRUE(synthetic_experts(*shape, *find_scheme("int4-g32"), 1, {0}).ok());
}

}  // namespace
}  // namespace moracle
