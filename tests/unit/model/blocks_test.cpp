// The feed-forward block of a mixture of experts with what runs beside the routed ones, against plain double.
#include "model/blocks/blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <random>

#include "support/dense_linear.h"

namespace moracle {
namespace {

using test::DenseLinear;

constexpr std::int64_t kHidden = 12;
constexpr std::int64_t kWidth = 20;

// Every routed expert returns its input.
class IdentityExperts final : public PackedExperts {
 public:
  [[nodiscard]] std::size_t bytes() const override { return 100; }
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t, std::int64_t, int) const override { return 64; }
  void run(const RunContext&, const ExpertsInput& input, const Activations& out) const override {
    for (std::int64_t t = 0; t < input.tokens; ++t) {
      float weight = 0.0F;
      for (std::int64_t k = t * input.top_k; k < (t + 1) * input.top_k; ++k) {
        if (input.ids[k] >= 0) weight += input.weights[k];
      }
      for (std::int64_t i = 0; i < kHidden; ++i) out.f32()[t * kHidden + i] = weight * input.x.f32()[t * kHidden + i];
    }
  }
};

// Late: the routed experts, with a zero expert among them, give beside.
enum class Shared : std::uint8_t { none, plain, gated, late };

struct Fixture {
  explicit Fixture(Shared kind) {
    std::mt19937 rng(3);
    const auto make = [&](std::int64_t out, std::int64_t in, const DenseLinear*& view) {
      auto linear = std::make_unique<DenseLinear>(out, in, rng);
      view = linear.get();
      return linear;
    };
    MoeLayer::Parts routed;
    routed.routing = {.method = Routing::sigmoid, .experts = 3, .top_k = 1, .factor = 2.0F};
    routed.hidden = kHidden;
    routed.router = DeviceArray<float>::of(router);
    routed.experts = PlacedExperts(std::make_unique<IdentityExperts>());
    routed.ops = &ref_ops();
    if (kind == Shared::late) {
      routed.routing = {.method = Routing::topk_sigmoid, .experts = 3, .top_k = 2};
      routed.routing.zero_experts = 1;
      router.resize(4 * kHidden);
      routed.router = DeviceArray<float>::of(router);
      routed.router_bias = DeviceArray<float>::of(late_bias);
    }
    MoeFeedForward::Parts parts{.routed = MoeLayer(std::move(routed)), .hidden = kHidden};
    if (kind != Shared::none) {
      parts.shared.emplace(DenseMlp::Parts{.gate = make(kWidth, kHidden, gate),
                                           .up = make(kWidth, kHidden, up),
                                           .down = make(kHidden, kWidth, down),
                                           .intermediate = kWidth});
    }
    parts.late = parts.zero_experts = kind == Shared::late;
    if (kind == Shared::gated) parts.shared_gate = make(1, kHidden, shared_gate);
    block.emplace(std::move(parts));
  }

  [[nodiscard]] std::vector<double> expect(const std::vector<double>& x) const {
    std::vector<double> y = x;  // factor 2 times a half
    if (gate == nullptr) return y;
    const auto silu = [](double g) { return g / (1.0 + std::exp(-g)); };
    const std::vector<double> g = gate->times(x);
    std::vector<double> u = up->times(x);
    for (std::size_t i = 0; i < u.size(); ++i) u[i] *= silu(g[i]);
    const std::vector<double> shared = down->times(u);
    const double weight = shared_gate == nullptr ? 1.0 : 1.0 / (1.0 + std::exp(-shared_gate->times(x)[0]));
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += weight * shared[i];
    return y;
  }

  std::vector<float> router = std::vector<float>(3 * kHidden);  // every score is a half
  std::vector<float> late_bias{-5.0F, 0.0F, -5.0F,
                               std::log(3.0F)};  // one half of the second, three quarters of the last
  const DenseLinear* gate = nullptr;
  const DenseLinear* up = nullptr;
  const DenseLinear* down = nullptr;
  const DenseLinear* shared_gate = nullptr;
  std::optional<MoeFeedForward> block;
};

struct Ran {
  std::vector<std::int32_t> bad_layer;  // of each token
  std::vector<float> out;
  std::vector<float> late;
};

Ran run(const MoeFeedForward& block, const std::vector<float>& x, int threads) {
  ThreadPool pool(threads);
  const auto tokens = static_cast<std::int64_t>(x.size()) / kHidden;
  std::vector<std::byte> workspace(block.workspace_bytes(tokens, threads));
  Stream stream(pool);
  Ran ran{.bad_layer = std::vector(static_cast<std::size_t>(tokens), DeviceStatus::kRouted),
          .out = std::vector<float>(x.size(), -1.0F),
          .late = std::vector<float>(x.size(), -1.0F)};
  const DeviceStatus status{.bad_layer = ran.bad_layer.data()};
  const ForwardContext context{.stream = stream,
                               .ops = ref_ops(),
                               .workspace = workspace,
                               .tokens = tokens,
                               .late = ran.late.data(),
                               .status = &status};
  block.run(context, x.data(), ran.out.data());
  return ran;
}

std::vector<float> tokens(std::int64_t count) {
  std::mt19937 rng(4);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(count * kHidden));
  for (float& value : x) value = normal(rng);
  return x;
}

TEST(MoeFeedForward, AddsTheSharedExpert) {
  for (const Shared kind : {Shared::none, Shared::plain, Shared::gated}) {
    SCOPED_TRACE(static_cast<int>(kind));
    const Fixture fixture(kind);
    for (const std::int64_t count : {1, 7, 8, 33}) {
      const std::vector<float> x = tokens(count);
      const Ran two = run(*fixture.block, x, 2);
      EXPECT_THAT(two.bad_layer, ::testing::Each(DeviceStatus::kRouted));
      EXPECT_EQ(two.out, run(*fixture.block, x, 1).out);
      for (auto row = x.begin(); row != x.end(); row += kHidden) {
        const std::vector<double> want = fixture.expect({row, row + kHidden});
        const auto* const got = two.out.data() + (row - x.begin());
        for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(static_cast<double>(got[i]), want[i], 2e-6);
      }
    }
  }
}

// A half of the input by an expert, three quarters by a zero expert; the dense part alone is what the block gives.
TEST(MoeFeedForward, LeavesWhatIsLateBeside) {
  const Fixture fixture(Shared::late);
  EXPECT_TRUE(fixture.block->late());
  for (const std::int64_t count : {1, 9}) {
    const std::vector<float> x = tokens(count);
    const Ran two = run(*fixture.block, x, 2);
    EXPECT_EQ(two.out, run(*fixture.block, x, 1).out);
    for (std::size_t at = 0; at < x.size(); at += kHidden) {
      const auto* const row = x.data() + at;
      const std::vector<double> with_input = fixture.expect({row, row + kHidden});
      for (std::size_t i = 0; i < kHidden; ++i) {
        const auto input = static_cast<double>(row[i]);
        ASSERT_NEAR(static_cast<double>(two.out[at + i]), with_input[i] - input, 2e-6);
        ASSERT_NEAR(static_cast<double>(two.late[at + i]), 1.25 * input, 2e-6);
      }
    }
  }
}

TEST(MoeFeedForward, CountsTheSharedExpertsBytes) {
  const std::size_t routed = Fixture(Shared::none).block->bytes();
  const std::size_t shared = 3 * kWidth * kHidden * sizeof(float);
  EXPECT_EQ(Fixture(Shared::plain).block->bytes(), routed + shared);
  EXPECT_EQ(Fixture(Shared::gated).block->bytes(), routed + shared + kHidden * sizeof(float));
}

TEST(MoeFeedForward, MarksABadToken) {
  const Fixture fixture(Shared::gated);
  std::vector<float> x = tokens(20);
  x[9 * kHidden] = std::numeric_limits<float>::quiet_NaN();
  const Ran ran = run(*fixture.block, x, 2);
  for (std::size_t t = 0; t < 20; ++t) EXPECT_EQ(ran.bad_layer[t], t == 9 ? 0 : DeviceStatus::kRouted);
}

}  // namespace
}  // namespace moracle
