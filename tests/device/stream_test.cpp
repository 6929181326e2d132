// Kernels that stream weights: against `ref`, against the step-by-step kernels, and call after call over what they
// keep.
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <map>

#include "device/kernels_fixture.h"
#include "kernels/cards.h"
#include "kernels/cuda/common/tile_layout.h"
#include "kernels/kernel.h"
#include "kernels/schemes.card.h"

namespace moracle {
namespace {

// What the rules of a card stand for, groups of the width that records have.
std::vector<Scheme> schemes_of(const KernelCard& card) {
  std::vector<Scheme> schemes;
  for (const SchemeRule& rule : card.schemes) {
    Granularity granularity{.kind = rule.granularity, .cols = rule.cols > 0 ? rule.cols : 128};
    if (rule.granularity == Granularity::Kind::block) granularity.rows = 128;
    if (rule.granularity == Granularity::Kind::channel) granularity = Granularity::channel();
    if (rule.granularity == Granularity::Kind::tensor) granularity = Granularity::tensor();
    if (rule.scale == ScaleType::none) granularity = {};
    schemes.push_back({.weight = {.element = rule.element,
                                  .scale = rule.scale,
                                  .granularity = granularity,
                                  .symmetric = true,
                                  .second_level = rule.second_level},
                       .activation = rule.activation ? std::optional(rule.activation_key) : std::nullopt});
  }
  return schemes;
}

constexpr const char* kNoStreams = "kernels that stream run on capability 9.0";

// Runs a layer on the kernels of a card.
std::vector<float> run_on(const KernelCard& card, const CanonicalExperts& experts, const ActivationSpec& activation,
                          const Layer& layer, const Routed& input) {
  ThreadPool pool(8);
  auto runner =
      LayerRunner::pack(card, experts, {.pool = pool, .activation = activation, .device = test::device_for(card)});
  EXPECT_TRUE(runner.ok()) << runner.error().message();
  EXPECT_TRUE(runner->reserve(layer.tokens, layer.top_k).ok());
  std::vector<float> out(input.x.size(), std::nanf(""));
  runner->run(input.view(layer), out.data());
  const Result<> status = runner->status();
  EXPECT_TRUE(status.ok()) << status.error().message();
  return out;
}

// Gate and up under one stored input scale, of each expert or of all: records hold no other.
void share_input_scales(CanonicalExperts& experts, bool of_all) {
  for (CanonicalExperts::Expert& expert : experts.experts) {
    if (of_all) expert.gate.input_scale = experts.experts.front().gate.input_scale;
    expert.up.input_scale = expert.gate.input_scale;
  }
}

struct LayerSize {
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
};
// Sizes that the decoding kernel was compiled for.
std::vector<LayerSize> instances_of(const Scheme& scheme) {
  const bool mxfp4 = scheme.weight.element == Element::e2m1 && scheme.weight.scale == ScaleType::e8m0;
  const bool stored = scheme.activation && !scheme.activation->dynamic && scheme.activation->element == Element::e4m3;
  std::vector<LayerSize> sizes;
  if (!scheme.activation || (!mxfp4 && (stored || scheme.activation->dynamic))) sizes.push_back({2048, 768});
  if (mxfp4 && (!scheme.activation || stored)) sizes.push_back({2880, 2880});
  const bool blocks = scheme.weight.granularity.kind == Granularity::Kind::block && scheme.activation &&
                      scheme.activation->granularity == Granularity::group(128);
  const bool int4 = scheme.weight.element == Element::int4 && !scheme.activation;
  if (blocks || int4) sizes.push_back({7168, 2048});
  if (int4) sizes.insert(sizes.end(), {{2048, 512}, {2048, 1536}, {3072, 1536}, {4096, 1408}, {4096, 1536}});
  return sizes;
}

Layer layer_of(const KernelCard& card, LayerSize size, std::int64_t experts, std::int64_t tokens, std::int64_t top_k) {
  return {.experts = experts,
          .hidden = size.hidden,
          .intermediate = size.intermediate,
          .tokens = tokens,
          .top_k = top_k,
          .key = {},
          .activation = {},
          .fn = {},
          .bias = card.bias};
}
// Whole steps of records, odd numbers of them. The fake device is too slow for more than a call.
std::vector<Layer> layers_of(const KernelCard& card) {
  const std::int64_t step = card.hidden_multiple;
  if (!test::has_gpu()) return {layer_of(card, {step, 2 * step}, 2, 2, 1)};
  std::vector<Layer> layers;
  for (const auto& [tokens, top_k] : {std::pair{1, 1}, {1, 8}, {9, 2}, {33, 4}, {130, 2}, {700, 8}})
    layers.push_back(layer_of(card, {3 * step, 2 * step}, 11, tokens, top_k));
  // More pairs than one block lists.
  layers.push_back(layer_of(card, {3 * step, 2 * step}, 11, 1100, 8));
  for (const auto& [tokens, top_k] : {std::pair{2, 2}, {150, 3}})
    layers.push_back(layer_of(card, {5 * step, 3 * step}, 4, tokens, top_k));
  return layers;
}
std::vector<Layer> layers_of_instances(const KernelCard& card, const Scheme& scheme) {
  std::vector<Layer> layers;
  for (const LayerSize& size : instances_of(scheme)) {
    const bool wide = size.hidden > 2048 || size.intermediate != 768;
    for (const auto& [tokens, top_k] : {std::pair{1, 3}, {2, 2}, {9, 2}})
      layers.push_back(layer_of(card, size, wide ? 3 : 11, tokens, top_k));
    if (size.hidden > 2880) continue;  // packing takes long
    for (const auto& [tokens, top_k] : {std::pair{1, 1}, {16, 3}, {130, 2}})
      layers.push_back(layer_of(card, size, wide ? 3 : 11, tokens, top_k));
    if (wide) continue;
    for (const auto& [tokens, top_k] : {std::pair{1, 8}, {17, 8}, {33, 4}, {64, 8}, {64, 1}, {65, 3}})
      layers.push_back(layer_of(card, size, 11, tokens, top_k));
  }
  return layers;
}

const KernelCard& card_of(const Scheme& scheme, std::string_view backend) {
  const Table table = test::table_of(scheme);
  const auto row =
      std::find_if(table.rows.begin(), table.rows.end(), [&](const TableRow& r) { return r.card->backend == backend; });
  EXPECT_NE(row, table.rows.end());
  return *row->card;
}

// `ref` keeps f32 where kernels round inputs and intermediate rows to bf16. The kernels that go step by step round
// alike, so that sums in another order part the two: by about 1e-5 of a hidden value, which moves one in 300 over a
// tie, by 2^-8 of itself. That is 2e-4 of all; one value alone, four times as large as others are, is 6e-4 of a row of
// 768.
constexpr double kOtherOrder = 1e-3;

// Four times what so many independent roundings to bf16 leave. Inputs and intermediate rows are rounded, of which two
// meet in the gate; calls of more tokens round three matrices of weights, where scales are f16 those as well, and each
// expert's output.
double roundings(int count) {
  return 4 * std::sqrt(static_cast<double>(count)) * relative_rounding(InputRounding::bf16);
}

// Quantized intermediate rows whose sums differ by r of themselves: where codes are s apart, r / s of them move by s
// over a tie, which is sqrt(r s) of all. Two roundings of bf16 weights are r, an eighth is s of E4M3, the widest; twice
// that.
const double kOtherCodes = 2 * std::sqrt(std::sqrt(2.0) * relative_rounding(InputRounding::bf16) / 8);

// Host versions part by the rounding of scales to two bf16 numbers alone, 2^-17 at most, which moves hidden values over
// ties of bf16, 2^-8 apart: as above.
const double kOtherScales = 2 * std::sqrt(0x1p-17 * 0x1p-8);

class StreamedCards : public DeviceKernelsTest, public ::testing::WithParamInterface<const KernelCard*> {
 protected:
  CanonicalExperts experts_of(const Scheme& scheme, const Layer& layer) {
    return test::random_experts({.key = scheme.weight,
                                 .activation = scheme.activation,
                                 .experts = layer.experts,
                                 .hidden = layer.hidden,
                                 .intermediate = layer.intermediate,
                                 .bias = layer.bias},
                                rng_);
  }
  // One call, as it comes and skewed: against the steps, against itself, against `ref`.
  void check(const CanonicalExperts& experts, const Layer& layer) {
    const KernelCard& card = *GetParam();
    const Scheme& scheme = experts.scheme;
    ActivationSpec activation;
    activation.fn = card.activations[rng_() % card.activations.size()];
    activation.limit = activation.fn == ActivationFn::silu ? 0.0F : 0.7F;
    const std::int64_t pairs = layer.tokens * layer.top_k;
    const std::vector<LayerSize> sizes = instances_of(scheme);
    const bool sized =
        std::any_of(sizes.begin(), sizes.end(), [&](const LayerSize& size) { return size.hidden == layer.hidden; });
    const bool one_launch =
        sized && layer.tokens <= kDecodeTokens && pairs <= kDecodePairs && pairs < 8 * layer.experts;
    const bool quantized = scheme.activation.has_value();
    const double other = quantized ? kOtherCodes : one_launch ? kOtherOrder : roundings(7);
    for (const bool skewed : {false, true}) {
      if (skewed && !test::has_gpu()) continue;  // two tokens of two experts
      const Routed input = random_input(layer, skewed, rng_);
      const auto found = run_on(card, experts, activation, layer, input);
      const auto steps = run_on(card_of(scheme, "portable"), experts, activation, layer, input);
      const std::string what = std::string(card.id) + " " + to_string(scheme) + " " + std::to_string(layer.hidden) +
                               " x " + std::to_string(layer.intermediate) + ", " + std::to_string(layer.tokens) +
                               " tokens, top " + std::to_string(layer.top_k) + (skewed ? ", skewed" : "");
      for (const float value : found) ASSERT_TRUE(std::isfinite(value)) << what;
      const double on_host = quantized ? kOtherCodes : kOtherScales;
      EXPECT_LE(relative_error(found, steps), test::has_gpu() ? other : on_host) << what;
      if (test::has_gpu()) {
        EXPECT_EQ(run_on(card, experts, activation, layer, input), found) << what << ": again";
      }
      constexpr std::int64_t kMostOfRef = 1'000'000'000;  // products of a matrix, on one core
      if (skewed || pairs * layer.hidden * layer.intermediate > kMostOfRef) continue;
      const double error = relative_error(found, run_on(card_of(scheme, "ref"), experts, activation, layer, input));
      std::printf("[%s] error %.2e\n", what.c_str(), error);
      EXPECT_LE(error, quantized ? kOtherCodes : roundings(one_launch ? 3 : 10)) << what;
    }
  }
  void check_all(const Scheme& scheme, const std::vector<Layer>& layers) {
    CanonicalExperts experts;
    for (const Layer& layer : layers) {
      if (std::ssize(experts.experts) != layer.experts || experts.hidden != layer.hidden) {
        experts = experts_of(scheme, layer);
      }
      if (scheme.activation && !scheme.activation->dynamic) {
        for (const bool of_all : {false, true}) {
          CanonicalExperts shared = experts;
          share_input_scales(shared, of_all);
          check(shared, layer);
        }
        continue;
      }
      check(experts, layer);
    }
  }
};
TEST_P(StreamedCards, StreamedExpertsOfAnySize) {
  if (!test::runs_here(*GetParam())) GTEST_SKIP() << kNoStreams;
  for (const Scheme& scheme : schemes_of(*GetParam())) check_all(scheme, layers_of(*GetParam()));
}
TEST_P(StreamedCards, StreamedExpertsOfInstances) {
  if (!test::runs_here(*GetParam())) GTEST_SKIP() << kNoStreams;
  if (!test::has_gpu()) GTEST_SKIP() << "the fake device has one kernel for all sizes";
  for (const Scheme& scheme : schemes_of(*GetParam())) check_all(scheme, layers_of_instances(*GetParam(), scheme));
}
// Where a card is asked for one order of sums, a token has the same bits in calls of any size. Sizes are such as have a
// decoding pass, and tiles of few and of many tokens.
TEST_P(StreamedCards, StreamedTokensAreTheSameInAnyBatch) {
  if (!test::runs_here(*GetParam())) GTEST_SKIP() << kNoStreams;
  const KernelCard& card = *GetParam();
  const bool gpu = test::has_gpu();
  ThreadPool pool(8);
  for (const Scheme& scheme : schemes_of(card)) {
    const LayerSize size = gpu ? LayerSize{2048, 768} : LayerSize{card.hidden_multiple, card.hidden_multiple};
    const Layer layer = layer_of(card, size, gpu ? 16 : 2, gpu ? 700 : 3, 2);
    CanonicalExperts experts = experts_of(scheme, layer);
    if (scheme.activation && !scheme.activation->dynamic) share_input_scales(experts, false);
    const Routed input = random_input(layer, false, rng_);
    PackOptions how{.pool = pool, .batch_invariant = true, .device = test::device_for(card)};
    const auto call = [&](LayerRunner& runner, std::int64_t tokens) {
      Layer some = layer;
      some.tokens = tokens;
      std::vector<float> out(static_cast<std::size_t>(tokens * layer.hidden), std::nanf(""));
      runner.run(input.view(some), out.data());
      EXPECT_TRUE(runner.status().ok());
      return out;
    };
    auto runner = LayerRunner::pack(card, experts, how);
    ASSERT_TRUE(runner.ok()) << runner.error().message();
    EXPECT_EQ(runner->packed().kept_bytes(), 0U);
    ASSERT_TRUE(runner->reserve(layer.tokens, layer.top_k).ok());
    const std::vector<float> all = call(*runner, layer.tokens);
    for (const std::int64_t tokens : {1, 2, 9, 64, 300}) {
      if (tokens >= layer.tokens) break;
      const std::vector<float> some = call(*runner, tokens);
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin()))
          << card.id << ", " << to_string(scheme) << ", " << tokens;
    }
    if (!gpu || scheme.weight.element != Element::int4 || scheme.activation) continue;
    how.batch_invariant = false;
    auto either = LayerRunner::pack(card, experts, how);
    ASSERT_TRUE(either.ok());
    ASSERT_TRUE(either->reserve(layer.tokens, layer.top_k).ok());
    EXPECT_FALSE(std::equal(all.begin(), all.begin() + layer.hidden, call(*either, 1).begin())) << "one pass for all";
  }
}
INSTANTIATE_TEST_SUITE_P(Cards, StreamedCards, ::testing::ValuesIn(kSm90StreamCards), [](const auto& info) {
  std::string name(info.param->id.substr(std::string_view("cuda.sm90.stream-").size()));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// All tokens on one expert, ids of no expert, a call without one, and no token: one after the other over the same
// memory, directly and from a graph, twice the same bits.
TEST_F(DeviceKernelsTest, StreamedCallsLeaveNothingBehind) {
  if (!test::runs_here(*kSm90StreamCards.front())) GTEST_SKIP() << kNoStreams;
  const std::int64_t experts_count = test::has_gpu() ? 12 : 2;
  const CanonicalExperts experts = test::random_experts(
      {.key = kInt4, .activation = {}, .experts = experts_count, .hidden = 2048, .intermediate = 768}, rng_);
  ThreadPool pool(8);
  auto packed = cuda::pack_streamed_experts(experts, {.pool = pool, .device = test::test_device()});
  ASSERT_TRUE(packed.ok()) << packed.error().message();
  auto steps = cuda::pack_experts(experts, {.pool = pool, .device = test::test_device()});
  ASSERT_TRUE(steps.ok()) << steps.error().message();

  struct Case {
    const char* name;
    std::int64_t tokens, top_k;
    std::vector<std::int32_t> ids;
  };
  std::vector<Case> cases{{"one token", 1, 2, {1, 0}},
                          {"ids of no expert", 2, 2, {-1, 1, 1 << 20, INT32_MIN}},
                          {"no expert at all", 2, 1, {-1, -1}},
                          {"an expert named twice", 2, 2, {1, 1, 0, 0}},
                          {"one pair", 1, 1, {0}}};
  if (test::has_gpu()) {
    cases.push_back({"all on one expert", 64, 1, std::vector<std::int32_t>(64, 5)});
    cases.push_back({"no expert of many", 40, 1, std::vector<std::int32_t>(40, 12)});
    cases.push_back({"one token", 1, 3, {5, 3, 0}});
    cases.push_back({"experts named often", 8, 8, std::vector<std::int32_t>(64, 4)});
    cases.push_back({"every token on two", 64, 8, {}});
    for (std::int32_t i = 0; i < 512; ++i) cases.back().ids.push_back(i % 8 < 2 ? i % 8 : -1);
  }
  std::vector<std::vector<float>> outs;
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const Case& c = cases[i];
      std::mt19937 rng(static_cast<std::uint32_t>(i));
      const Array<float> x(stream_, normal_values(static_cast<std::size_t>(c.tokens * 2048), rng));
      const Array<std::int32_t> ids(stream_, c.ids);
      const Array<float> weights(stream_, std::vector<float>(c.ids.size(), 0.25F));
      const Array<float> out(static_cast<std::size_t>(c.tokens * 2048));
      const std::size_t scratch_bytes =
          std::max((*packed)->workspace_bytes(c.tokens, c.top_k, 0), (*steps)->workspace_bytes(c.tokens, c.top_k, 0));
      const Array<std::byte> scratch(scratch_bytes);
      out.poison(stream_);
      scratch.poison(stream_);
      const auto enqueue = [&](const PackedExperts& layer, std::int64_t tokens) {
        layer.run({.stream = stream_, .workspace = {scratch.data(), scratch_bytes}},
                  {.tokens = tokens, .top_k = c.top_k, .x = x.data(), .ids = ids.data(), .weights = weights.data()},
                  out.data());
      };
      enqueue(**packed, 0);
      if (round < 2) {
        enqueue(**packed, c.tokens);
      } else {
        auto graph = stream_.capture([&] { enqueue(**packed, c.tokens); });
        ASSERT_TRUE(graph.ok()) << graph.error().message();
        stream_.launch(*graph);
        stream_.launch(*graph);
        ASSERT_TRUE(stream_.wait().ok());
      }
      const std::vector<float> found = out.read(stream_);
      const bool any =
          std::any_of(c.ids.begin(), c.ids.end(), [&](std::int32_t id) { return id >= 0 && id < experts_count; });
      for (const float value : found) {
        ASSERT_TRUE(std::isfinite(value)) << c.name;
        if (!any) {
          ASSERT_EQ(value, 0.0F) << c.name;
        }
      }
      if (round == 0) {
        enqueue(**steps, c.tokens);
        EXPECT_LE(relative_error(found, out.read(stream_)),
                  c.tokens * c.top_k < 8 * experts_count ? kOtherOrder : roundings(7))
            << c.name;
        outs.push_back(found);
      } else {
        EXPECT_EQ(found, outs[i]) << c.name << ", round " << round;
      }
    }
  }
}

// A scheme for every way in which kernels take inputs: in bf16, under scales of tokens, of 128 columns, or stored.
std::array<std::pair<const KernelCard*, Scheme>, 5> every_kind_of_inputs() {
  return {{{&kCardSm90StreamInt4, {.weight = kInt4, .activation = {}}},
           {&kCardSm90StreamW4A8, {.weight = kInt4, .activation = schemes::kInt8Token}},
           {&kCardSm90StreamW4A8, {.weight = kInt4, .activation = schemes::kFp8Token}},
           {&kCardSm90StreamFp8Block, {.weight = kFp8Block, .activation = schemes::kFp8Group128}},
           {&kCardSm90StreamFp8, {.weight = kFp8Whole, .activation = schemes::kFp8Tensor}}}};
}

// Infinities and numbers that are none come out as such, and hang nothing: rows are their own flags.
TEST_F(DeviceKernelsTest, StreamedInputsThatAreNotFinite) {
  if (!test::runs_here(*kSm90StreamCards.front())) GTEST_SKIP() << kNoStreams;
  if (!test::has_gpu()) GTEST_SKIP() << "the fake device has kernels of its own";
  for (const auto& [card, scheme] : every_kind_of_inputs()) {
    // Of the decoding kernel, and of none.
    for (const std::int64_t hidden : {2048, 1024}) {
      const CanonicalExperts experts = test::random_experts(
          {.key = scheme.weight, .activation = scheme.activation, .experts = 2, .hidden = hidden, .intermediate = 768},
          rng_);
      for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(), -std::nanf("")}) {
        const bool saturates = scheme.activation == schemes::kFp8Tensor && std::isinf(bad);
        const Layer layer{2, hidden, 768, 2, 1, {}, {}, {}, false};
        Routed input{.x = normal_values(static_cast<std::size_t>(2 * hidden), rng_), .ids = {0, 1}, .weights = {1, 1}};
        input.x[static_cast<std::size_t>(hidden) + 77] = bad;
        const auto out = run_on(*card, experts, {}, layer, input);
        const auto second = out.begin() + hidden;
        const auto finite = [](float v) { return std::isfinite(v); };
        EXPECT_TRUE(std::all_of(out.begin(), second, finite)) << card->id << ", " << hidden;
        EXPECT_EQ(std::none_of(second, out.end(), finite), !saturates) << card->id << ", " << hidden << ", " << bad;
      }
    }
  }
}

// Layers of every kind of inputs take turns over the same memory: the same bits each time.
TEST_F(DeviceKernelsTest, StreamedKindsShareWhatTheyKeep) {
  if (!test::runs_here(*kSm90StreamCards.front())) GTEST_SKIP() << kNoStreams;
  if (!test::has_gpu()) GTEST_SKIP() << "the fake device keeps nothing";
  const auto cases = every_kind_of_inputs();
  std::vector<CanonicalExperts> layers;
  for (const auto& [card, scheme] : cases) {
    layers.push_back(test::random_experts(
        {.key = scheme.weight, .activation = scheme.activation, .experts = 16, .hidden = 2048, .intermediate = 768},
        rng_));
  }
  std::map<std::pair<std::size_t, std::int64_t>, std::vector<float>> first;
  for (int round = 0; round < 4; ++round) {
    for (const std::int64_t tokens : {1, 64, 5}) {
      for (std::size_t i = 0; i < cases.size(); ++i) {
        std::mt19937 rng(static_cast<std::uint32_t>(tokens));
        const Layer layer{16, 2048, 768, tokens, 2, {}, {}, {}, false};
        const Routed input = random_input(layer, false, rng);
        const auto found = run_on(*cases[i].first, layers[i], {}, layer, input);
        const auto [place, fresh] = first.try_emplace({i, tokens}, found);
        EXPECT_EQ(place->second, found) << cases[i].first->id << ", " << tokens << " tokens, round " << round;
      }
    }
  }
}

// Scales of the first 32 columns 2^-20 of what they were.
class FarScales final : public MatrixSource {
 public:
  explicit FarScales(std::shared_ptr<const MatrixSource> near) : MatrixSource(near->spec()), near_(std::move(near)) {}
  [[nodiscard]] Result<> read(std::int64_t begin, std::int64_t end, MatrixPanel& out) const override {
    MORACLE_TRY(near_->read(begin, end, out));
    for (std::size_t i = 0; i < out.scales.size(); i += static_cast<std::size_t>(spec().groups))
      out.scales[i] *= 0x1p-20F;
    return Ok{};
  }

 private:
  std::shared_ptr<const MatrixSource> near_;
};

// E2M1 under E4M3 activations: as bytes where the scales of a row lie within 2^11, else as bf16.
TEST_F(DeviceKernelsTest, StreamedE2m1WithFarScales) {
  if (!test::runs_here(*kSm90StreamCards.front())) GTEST_SKIP() << kNoStreams;
  const auto card = std::find_if(kSm90StreamCards.begin(), kSm90StreamCards.end(),
                                 [](const KernelCard* c) { return c->id == "cuda.sm90.stream-mxfp4"; });
  ASSERT_NE(card, kSm90StreamCards.end());
  const std::vector<Scheme> schemes = schemes_of(**card);
  const auto scheme = std::find_if(schemes.begin(), schemes.end(), [](const Scheme& s) {
    return s.activation && s.activation->element == Element::e4m3 && !s.activation->dynamic;
  });
  ASSERT_NE(scheme, schemes.end());
  const Layer layer = layer_of(**card, {128, 64}, 2, test::has_gpu() ? 40 : 3, 2);
  CanonicalExperts experts = test::random_experts({.key = scheme->weight,
                                                   .activation = scheme->activation,
                                                   .experts = layer.experts,
                                                   .hidden = layer.hidden,
                                                   .intermediate = layer.intermediate},
                                                  rng_);
  share_input_scales(experts, false);
  const auto bytes = [&] {
    ThreadPool pool(1);
    const auto packed = cuda::pack_streamed_experts(experts, {.pool = pool, .device = test::device_for(**card)});
    EXPECT_TRUE(packed.ok()) << packed.error().message();
    return packed.ok() ? (*packed)->bytes() : 0;
  };
  const auto error = [&] {
    const Routed input = random_input(layer, false, rng_);
    return relative_error(run_on(**card, experts, {}, layer, input),
                          run_on(card_of(*scheme, "ref"), experts, {}, layer, input));
  };
  const std::size_t near = bytes();
  EXPECT_LE(error(), kOtherCodes);
  experts.experts.back().down.weight = std::make_shared<FarScales>(experts.experts.back().down.weight);
  EXPECT_LT(bytes(), near) << "scales of rows, though those of groups are kept";
  EXPECT_LE(error(), kOtherCodes);
}

// Register `r` of a lane holds row lane / 4 + 8 (r % 2), its bytes columns 8 (lane % 4) + 4 (r / 2) + 0, 2, 1, 3 of 32
// (PTX ISA, "Register Fragments" of wgmma.m64nNk32): a lane's 16 bytes of 8-bit codes, and of int4 each word's even
// codes, then its odd ones.
TEST(StreamedExperts, RecordsHoldFragmentsOfBytes) {
  constexpr std::array<int, 4> kPlaces{0, 2, 1, 3};
  for (const RecordKind kind :
       {RecordKind::int8_row, RecordKind::e4m3_split, RecordKind::int4_bf16, RecordKind::mxfp4_row}) {
    const cuda::RecordForm form = cuda::record_form(kind);
    const int bits = cuda::bits_of(form.code);
    const RecordArgs args{.records = 1,
                          .columns = 128,
                          .tile_rows = 16,
                          .first_row = 0,
                          .bytes = static_cast<std::uint64_t>(cuda::record_bytes(form, 128)),
                          .tile_bytes = static_cast<std::uint64_t>(cuda::tile_bytes(form, 128))};
    for (int row = 0; row < 16; ++row) {
      for (int column = 0; column < 128; ++column) {
        const int lane = row % 8 * 4 + column % 32 / 8;
        const int reg = row / 8 + column % 8 / 4 * 2;
        const int byte = kPlaces[static_cast<std::size_t>(column % 4)];
        const cuda::CodePlace place = cuda::place_of(args, row, column % 8);
        const std::uint64_t word = cuda::words_offset(form, args, row, column / 8 * 8) +
                                   static_cast<std::uint64_t>(cuda::word_step(form, place, column % 8));
        const std::uint32_t held = cuda::code_bits(form, bits == 8 ? 0xFF : 0xF, place);
        if (bits == 8) {
          EXPECT_EQ(word, static_cast<std::uint64_t>(column / 32 * 512 + lane * 16 + reg * 4));
          EXPECT_EQ(held, 0xFFU << (8 * byte));
        } else {
          EXPECT_EQ(word,
                    static_cast<std::uint64_t>(column / 64 * 512 + lane * 16 + column % 64 / 32 * 8 + reg / 2 * 4));
          // E2M1's magnitudes choose bytes of a row, by the lowest bits of four nibbles; signs are where bytes have
          // them.
          const int sign = 8 * byte + (reg % 2 == 0 ? 7 : 3);
          EXPECT_EQ(held, kind == RecordKind::mxfp4_row ? 7U << (16 * (reg % 2) + 4 * byte) | 1U << sign
                                                        : 0xFU << (8 * byte + 4 * (reg % 2)));
          EXPECT_EQ(cuda::code_at(form, held, place), 0xFU);
        }
      }
    }
  }
}

TEST(StreamedExperts, BytesWhereBothAreBytes) {
  using cuda::Operand;
  EXPECT_EQ(cuda::operand_of(RecordKind::int8_row, InputKind::int8_token), Operand::int8);
  EXPECT_EQ(cuda::operand_of(RecordKind::int4_f16, InputKind::int8_token), Operand::int8);
  EXPECT_EQ(cuda::operand_of(RecordKind::int4_bf16, InputKind::e4m3_token), Operand::e4m3);
  EXPECT_EQ(cuda::operand_of(RecordKind::e4m3_row, InputKind::e4m3_tensor), Operand::e4m3);
  EXPECT_EQ(cuda::operand_of(RecordKind::e4m3_split, InputKind::e4m3_group), Operand::e4m3);
  // Scales of 128 columns of int8 weights, and E2M1 under scales of its own, are multiplied as bf16.
  EXPECT_EQ(cuda::operand_of(RecordKind::int8_split, InputKind::int8_token), Operand::bf16);
  EXPECT_EQ(cuda::operand_of(RecordKind::mxfp4, InputKind::e4m3_tensor), Operand::bf16);
  EXPECT_EQ(cuda::operand_of(RecordKind::mxfp4_row, InputKind::e4m3_tensor), Operand::e4m3);
  EXPECT_EQ(cuda::operand_of(RecordKind::e4m3_row, InputKind::bf16), Operand::bf16);
}

TEST(StreamedExperts, WhatRecordsCannotHold) {
  ThreadPool pool(1);
  std::mt19937 rng(1);
  const CanonicalExperts other =
      test::random_experts({.key = kInt4, .activation = {}, .experts = 2, .hidden = 256, .intermediate = 96}, rng);
  const auto packed = cuda::pack_streamed_experts(other, {.pool = pool, .device = test::test_device()});
  ASSERT_FALSE(packed.ok());
  EXPECT_EQ(packed.error().code, "shape");
  const CanonicalExperts biased = test::random_experts(
      {.key = kInt4, .activation = {}, .experts = 1, .hidden = 2048, .intermediate = 768, .bias = true}, rng);
  const auto refused = cuda::pack_streamed_experts(biased, {.pool = pool, .device = test::test_device()});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, "quant.unsupported");
}

}  // namespace
}  // namespace moracle
