#include "moe/moe_layer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "base/thread_pool.h"

namespace moracle {
namespace {

using ::testing::Each;

// Expert e multiplies its input by e + 1.
class ScalingExperts final : public PackedExperts {
 public:
  explicit ScalingExperts(std::int64_t hidden) : hidden_(hidden) {}
  [[nodiscard]] std::size_t bytes() const override { return 100; }
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t, std::int64_t, int) const override { return 1000; }
  void run(const RunContext& context, const ExpertsInput& input, const Activations& output) const override {
    const float* const x = input.x.f32();
    float* const out = output.f32();
    EXPECT_GE(context.workspace.size(), 1000U);
    for (std::int64_t t = 0; t < input.tokens; ++t) {
      for (std::int64_t i = 0; i < hidden_; ++i) {
        float sum = 0.0F;
        for (std::int64_t k = 0; k < input.top_k; ++k) {
          const std::int32_t id = input.ids[t * input.top_k + k];
          if (id >= 0) {
            sum += input.weights[t * input.top_k + k] * static_cast<float>(id + 1) * x[t * hidden_ + i];
          }
        }
        out[t * hidden_ + i] = sum;
      }
    }
  }

 private:
  std::int64_t hidden_;
};

constexpr std::int64_t kHidden = 8;
constexpr std::int32_t kLayer = 6;
constexpr std::int64_t kExperts = 21;  // not a multiple of any tile

// Expert e likes feature e % 8, and high numbers more.
MoeLayer make_layer(const Ops& ops) {
  static const std::vector<float> router = [] {
    std::vector<float> weight(kExperts * kHidden);
    for (std::int64_t e = 0; e < kExperts; ++e) {
      weight[static_cast<std::size_t>(e * kHidden + e % kHidden)] = static_cast<float>(e + 1);
    }
    return weight;
  }();
  static const std::vector<float> bias = [] {
    std::vector<float> numbers(kExperts);
    numbers[20] = 1000.0F;  // always chosen
    return numbers;
  }();
  MoeLayer::Parts parts;
  parts.routing = {.method = Routing::topk_softmax, .experts = kExperts, .top_k = 2};
  parts.hidden = kHidden;
  parts.router = DeviceArray<float>::of(router);
  parts.router_bias = DeviceArray<float>::of(bias);
  parts.experts = PlacedExperts(std::make_unique<ScalingExperts>(kHidden));
  parts.layer = kLayer;
  parts.ops = &ops;
  return MoeLayer(std::move(parts));
}

struct Ran {
  std::vector<std::int32_t> bad_layer;  // of each token
  std::vector<float> out;
};

Ran run(const MoeLayer& layer, const std::vector<float>& x, int threads) {
  ThreadPool pool(threads);
  const auto tokens = static_cast<std::int64_t>(x.size()) / kHidden;
  std::vector<std::byte> workspace(layer.workspace_bytes(tokens, threads));
  Ran ran;
  ran.out.assign(x.size(), -1.0F);
  Stream stream(pool);
  ran.bad_layer.assign(static_cast<std::size_t>(tokens), DeviceStatus::kRouted);
  const DeviceStatus status{.bad_layer = ran.bad_layer.data()};
  layer.begin({stream, workspace, &status}, tokens, x.data(), nullptr, ran.out.data());
  return ran;
}

TEST(MoeLayer, RoutesEachTokenToItsExperts) {
  const MoeLayer layer = make_layer(ref_ops());
  std::vector<float> x(kHidden, 0.0F);
  x[3] = 1e4F;  // experts 3, 11 and 19 compete; 19 wins with logit 2e5, beyond the biased expert's 1000
  const Ran ran = run(layer, x, 1);
  EXPECT_EQ(ran.bad_layer, std::vector{DeviceStatus::kRouted});
  EXPECT_FLOAT_EQ(ran.out[3], 20.0F * 1e4F);  // softmax of (2e5, 1.2e5) is (1, 0)
  EXPECT_EQ(ran.out[0], 0.0F);
}

TEST(MoeLayer, AnyThreadCountGivesTheSameBits) {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal;
  std::vector<float> x(150 * kHidden);
  for (float& value : x) value = normal(rng);
  const MoeLayer layer = make_layer(host_ops(probe_machine().cpu_features));
  const Ran one = run(layer, x, 1);
  const Ran four = run(layer, x, 4);
  EXPECT_THAT(one.bad_layer, Each(DeviceStatus::kRouted));
  EXPECT_EQ(one.out, four.out);
}

TEST(MoeLayer, BadTokensAreMarkedAndHarmNoOther) {
  std::mt19937 rng(6);
  std::normal_distribution<float> normal;
  std::vector<float> x(100 * kHidden);
  for (float& value : x) value = normal(rng);
  const MoeLayer layer = make_layer(ref_ops());
  const Ran good = run(layer, x, 2);
  auto broken = x;
  broken[80 * kHidden] = std::numeric_limits<float>::quiet_NaN();
  broken[70 * kHidden + 1] = std::numeric_limits<float>::infinity();
  const Ran bad = run(layer, broken, 2);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool damaged = i / kHidden == 70 || i / kHidden == 80;
    EXPECT_EQ(bad.bad_layer[i / kHidden], damaged ? kLayer : DeviceStatus::kRouted);
    EXPECT_EQ(bad.out[i], damaged ? 0.0F : good.out[i]);
  }
}

// Each row its own tokens, at the layer's place; a token without a row and one that is not routed count nowhere.
TEST(MoeLayer, CountsChoicesByRow) {
  constexpr std::int64_t kLayers = kLayer + 2;
  const MoeLayer layer = make_layer(ref_ops());
  std::vector<float> x(5 * kHidden, 0.0F);
  for (std::size_t t = 0; t < 5; ++t) x[t * kHidden + 3] = 1e4F;  // experts 19 and 11
  x[4 * kHidden] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::int32_t> rows{1, -1, 0, 1, 0};
  std::vector<std::uint32_t> counts(2 * kLayers * kExperts, 7);
  const ExpertCounts sums{.rows = rows.data(), .counts = counts.data(), .row_stride = kLayers * kExperts};
  ThreadPool pool(1);
  Stream stream(pool);
  std::vector<std::byte> workspace(layer.workspace_bytes(5, 1));
  std::vector<float> out(x.size());
  layer.begin({stream, workspace}, 5, x.data(), nullptr, out.data(), nullptr, &sums);
  std::vector<std::uint32_t> wanted(counts.size(), 7);
  for (const std::size_t expert : {11U, 19U}) {
    wanted[kLayer * kExperts + expert] += 1;
    wanted[(kLayers + kLayer) * kExperts + expert] += 2;
  }
  EXPECT_EQ(counts, wanted);
}

// The router has rows for them, the counts have none: those of the layer behind are left alone.
TEST(MoeLayer, ZeroExpertsCountNowhere) {
  constexpr std::int64_t kWithWeights = 20;
  MoeLayer::Parts parts;
  parts.routing = {.method = Routing::topk_softmax, .experts = kWithWeights, .top_k = 2};
  parts.routing.zero_experts = 1;
  parts.hidden = kHidden;
  const std::vector<float> router(static_cast<std::size_t>((kWithWeights + 1) * kHidden));
  std::vector<float> bias(kWithWeights + 1);
  bias[4] = bias[20] = 100.0F;
  parts.router = DeviceArray<float>::of(router);
  parts.router_bias = DeviceArray<float>::of(bias);
  parts.experts = PlacedExperts(std::make_unique<ScalingExperts>(kHidden));
  parts.layer = 1;
  parts.ops = &ref_ops();
  const MoeLayer layer(std::move(parts));
  const std::vector<float> x(3 * kHidden, 1.0F);
  const std::vector<std::int32_t> rows{0, 0, 0};
  std::vector<std::uint32_t> counts(3 * kWithWeights, 7);
  const ExpertCounts sums{.rows = rows.data(), .counts = counts.data(), .row_stride = std::ssize(counts)};
  ThreadPool pool(1);
  Stream stream(pool);
  std::vector<std::byte> workspace(layer.workspace_bytes(3, 1));
  std::vector<float> out(x.size());
  std::vector<float> passed(3);
  layer.begin({stream, workspace}, 3, x.data(), nullptr, out.data(), nullptr, &sums, passed.data());
  std::vector<std::uint32_t> wanted(counts.size(), 7);
  wanted[kWithWeights + 4] += 3;
  EXPECT_EQ(counts, wanted);
  EXPECT_THAT(passed, Each(0.5F));
  EXPECT_THAT(out, Each(0.5F * 5.0F));  // expert 4 multiplies by 5
}

// Whatever is in its row: it takes no expert, has no mark and counts nowhere.
TEST(MoeLayer, ATokenOfNoIdTakesNoExpert) {
  const MoeLayer layer = make_layer(ref_ops());
  std::vector<float> x(3 * kHidden, 1.0F);
  x[kHidden] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::int32_t> ids{4, -1, -1};
  const std::vector<std::int32_t> rows{0, 0, 0};
  std::vector<std::uint32_t> counts((kLayer + 1) * kExperts, 0);
  const ExpertCounts sums{.rows = rows.data(), .counts = counts.data(), .row_stride = std::ssize(counts)};
  ThreadPool pool(1);
  Stream stream(pool);
  std::vector<std::byte> workspace(layer.workspace_bytes(3, 1));
  std::vector<float> out(x.size(), 5.0F);
  std::vector<std::int32_t> bad_layer(3, DeviceStatus::kRouted);
  const DeviceStatus status{.bad_layer = bad_layer.data()};
  layer.begin({stream, workspace, &status}, 3, x.data(), ids.data(), out.data(), nullptr, &sums);
  EXPECT_THAT(bad_layer, Each(DeviceStatus::kRouted));
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0U), 2U);
  EXPECT_NE(out[0], 0.0F);
  for (std::size_t i = kHidden; i < out.size(); ++i) EXPECT_EQ(out[i], 0.0F);
}

TEST(MoeLayer, HashLayersTakeTheGivenExperts) {
  MoeLayer::Parts parts;
  parts.routing = {.method = Routing::hash, .experts = 4, .top_k = 1};
  parts.hidden = kHidden;
  const std::vector<float> router(4 * kHidden);
  const std::vector<std::int32_t> fixed{3, 0, 2};
  parts.router = DeviceArray<float>::of(router);
  parts.fixed_ids = DeviceArray<std::int32_t>::of(fixed);
  parts.experts = PlacedExperts(std::make_unique<ScalingExperts>(kHidden));
  parts.ops = &ref_ops();
  const MoeLayer layer(std::move(parts));
  ThreadPool pool(1);
  std::vector<std::byte> workspace(layer.workspace_bytes(2, 1));
  const std::vector<float> x(2 * kHidden, 1.0F);
  std::vector<float> out(x.size());
  const std::int32_t ids[] = {2, 0};
  Stream stream(pool);
  layer.begin({stream, workspace}, 2, x.data(), ids, out.data());
  EXPECT_FLOAT_EQ(out[0], 3.0F);
  EXPECT_FLOAT_EQ(out[kHidden], 4.0F);
}

}  // namespace
}  // namespace moracle
