// The kernels of the table on the test's device: a GPU, or the fake, whose host versions are held against the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <random>

#include "device/kernels_fixture.h"
#include "kernels/cuda/host/pack.h"
#include "moe/routing.h"
#include "support/fake_device.h"
#include "support/random_experts.h"
#include "support/route_row.h"

namespace moracle {
namespace {

struct RouteCase {
  const char* name;
  RoutingSpec spec;
  bool bias;
};

constexpr std::int64_t kRouted = 96;
const RouteCase kRoutes[] = {
    {"softmax", {.method = Routing::softmax_topk, .experts = kRouted, .top_k = 8}, false},
    {"softmax_renorm", {.method = Routing::softmax_topk_renorm, .experts = kRouted, .top_k = 8}, false},
    {"topk_softmax", {.method = Routing::topk_softmax, .experts = kRouted, .top_k = 4}, false},
    {"sigmoid", {.method = Routing::sigmoid, .experts = kRouted, .top_k = 6}, false},
    {"sigmoid_renorm", {.method = Routing::sigmoid_renorm, .experts = kRouted, .top_k = 6}, false},
    {"sigmoid_bias_renorm",
     {.method = Routing::sigmoid_bias_renorm, .experts = kRouted, .top_k = 8, .factor = 2.5F},
     true},
    {"grouped_sigmoid_bias",
     {.method = Routing::grouped_sigmoid_bias,
      .experts = kRouted,
      .top_k = 8,
      .factor = 2.5F,
      .groups = 8,
      .top_groups = 4},
     true},
    {"grouped_softmax",
     {.method = Routing::grouped_softmax,
      .experts = kRouted,
      .top_k = 6,
      .renormalize = false,
      .factor = 16.0F,
      .groups = 8,
      .top_groups = 3},
     false},
    {"sqrtsoftplus_bias", {.method = Routing::sqrtsoftplus_bias, .experts = kRouted, .top_k = 6, .factor = 1.5F}, true},
    {"hash", {.method = Routing::hash, .experts = kRouted, .top_k = 6}, false},
    {"topk_sigmoid", {.method = Routing::topk_sigmoid, .experts = kRouted, .top_k = 1}, false},
};

// Every method, with equal scores, rows that are not finite, and ids of a hash layer that are none.
TEST_F(DeviceKernelsTest, RoutesAsTheHostDoes) {
  constexpr std::int64_t kTokens = 40;
  for (const RouteCase& c : kRoutes) {
    const std::int64_t top_k = c.spec.top_k;
    std::vector<float> logits = normal_values(kTokens * kRouted, rng_);
    for (std::size_t i = 0; i < logits.size() / 2; ++i) logits[i] = std::round(logits[i] * 2.0F) / 2.0F;  // ties
    logits[7 * kRouted + 3] = std::nanf("");
    logits[11 * kRouted] = std::numeric_limits<float>::infinity();
    const std::vector<float> bias = normal_values(c.bias ? kRouted : 0, rng_);
    // Of a hash layer: experts of each token of a vocabulary, and which tokens these are.
    constexpr std::size_t kVocabulary = 50;
    std::vector<std::int32_t> fixed(c.spec.method == Routing::hash ? kVocabulary * static_cast<std::size_t>(top_k) : 0);
    for (std::int32_t& id : fixed) id = static_cast<std::int32_t>(rng_() % (kRouted + 2)) - 1;
    std::vector<std::int32_t> token_ids(kTokens);
    for (std::int32_t& id : token_ids) id = static_cast<std::int32_t>(rng_() % kVocabulary);
    std::vector<std::int32_t> ids(kTokens * static_cast<std::size_t>(top_k));
    std::vector<float> weights(ids.size());
    for (std::size_t t = 0; t < kTokens; ++t) {
      const auto k = static_cast<std::size_t>(top_k);
      test::RoutingRow row{.logits = std::span(logits).subspan(t * kRouted, kRouted), .bias = bias};
      if (!fixed.empty()) row.fixed = std::span(fixed).subspan(static_cast<std::size_t>(token_ids[t]) * k, k);
      test::route(c.spec, row, std::span(ids).subspan(t * k, k), std::span(weights).subspan(t * k, k));
    }
    const Array<float> device_logits(stream_, logits);
    const Array<float> device_bias(stream_, bias.empty() ? std::vector<float>(1) : bias);
    const Array<std::int32_t> device_fixed(stream_, fixed.empty() ? std::vector<std::int32_t>(1) : fixed);
    const Array<std::int32_t> device_tokens(stream_, token_ids);
    const Array<std::int32_t> found_ids(ids.size());
    const Array<float> found_weights(ids.size());
    const Array<std::int32_t> bad_layer(stream_, std::vector<std::int32_t>(kTokens, DeviceStatus::kRouted));
    found_ids.poison(stream_);
    found_weights.poison(stream_);
    RouteArgs args = route_args(c.spec);
    args.tokens = kTokens;
    args.logits = device_logits.data();
    args.bias = bias.empty() ? nullptr : device_bias.data();
    args.fixed_ids = fixed.empty() ? nullptr : device_fixed.data();
    args.token_ids = device_tokens.data();
    args.ids = found_ids.data();
    args.weights = found_weights.data();
    args.layer = 5;
    args.bad_layer = bad_layer.data();
    stream_.launch("route", kernels().route, args);
    EXPECT_EQ(found_ids.read(stream_), ids) << c.name;
    const auto found = found_weights.read(stream_);
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_NEAR(found[i], weights[i], 2e-6F * std::max(1.0F, std::fabs(weights[i]))) << c.name << " " << i;
    const std::vector<std::int32_t> bad = bad_layer.read(stream_);
    for (std::size_t t = 0; t < kTokens; ++t)
      EXPECT_EQ(bad[t], t == 7 || t == 11 ? 5 : DeviceStatus::kRouted) << c.name << " " << t;
  }
}

TEST_F(DeviceKernelsTest, RmsNormOfRows) {
  constexpr std::int32_t kRows = 7;
  for (const std::int32_t cols : {16, 100, 2880}) {
    const auto x = normal_values(static_cast<std::size_t>(kRows) * static_cast<std::size_t>(cols), rng_);
    const auto weight = normal_values(static_cast<std::size_t>(cols), rng_);
    std::vector<float> wanted(x.size());
    for (std::size_t row = 0; row < kRows; ++row) {
      const float* const from = x.data() + row * static_cast<std::size_t>(cols);
      double squares = 0;
      for (std::int32_t k = 0; k < cols; ++k) squares += std::pow(static_cast<double>(from[k]), 2);
      for (std::int32_t k = 0; k < cols; ++k)
        wanted[row * static_cast<std::size_t>(cols) + static_cast<std::size_t>(k)] =
            static_cast<float>(static_cast<double>(from[k]) / std::sqrt(squares / cols + 1e-6) *
                               static_cast<double>(weight[static_cast<std::size_t>(k)]));
    }
    const Array<float> device_x(stream_, x);
    const Array<float> device_weight(stream_, weight);
    const Array<float> out(x.size());
    out.poison(stream_);
    const RmsNormArgs args{.rows = kRows,
                           .cols = cols,
                           .eps = 1e-6F,
                           .x = device_x.data(),
                           .weight = device_weight.data(),
                           .out = out.data()};
    stream_.launch("rms_norm", kernels().rms_norm, args);
    EXPECT_LE(relative_error(out.read(stream_), wanted), 1e-6) << cols;
  }
}

TEST_F(DeviceKernelsTest, Adds) {
  const auto x = normal_values(1000, rng_);
  const auto y = normal_values(1000, rng_);
  std::vector<float> wanted = y;
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += x[i];
  const Array<float> device_x(stream_, x);
  const Array<float> sum(stream_, y);
  const AddArgs args{.count = 1000, .x = device_x.data(), .sum = sum.data()};
  stream_.launch("add", kernels().add, args);
  EXPECT_EQ(sum.read(stream_), wanted);
}

TEST_F(DeviceKernelsTest, TopKWithTies) {
  constexpr std::int32_t kRows = 5;
  constexpr std::int32_t kCols = 3001;
  constexpr std::int32_t kBest = 20;
  auto x = normal_values(kRows * kCols, rng_);
  for (float& value : x) value = std::round(value * 8.0F) / 8.0F;
  std::vector<std::int32_t> ids;
  std::vector<float> values;
  for (std::int32_t row = 0; row < kRows; ++row) {
    const float* const from = x.data() + row * kCols;
    std::vector<std::int32_t> order(kCols);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](std::int32_t a, std::int32_t b) { return std::pair(-from[a], a) < std::pair(-from[b], b); });
    for (std::int32_t i = 0; i < kBest; ++i) {
      ids.push_back(order[static_cast<std::size_t>(i)]);
      values.push_back(from[ids.back()]);
    }
  }
  const Array<float> device_x(stream_, x);
  std::vector<std::uint8_t> bad(kRows);
  bad[3] = 1;
  const Array<std::uint8_t> device_bad(stream_, bad);
  const Array<RankedOutput> device_found(stream_, std::vector<RankedOutput>(ids.size(), {.value = 0.0F, .row = -1}));
  const RankArgs args{.rows = kRows,
                      .cols = kCols,
                      .k = kBest,
                      .x = device_x.data(),
                      .bad = device_bad.data(),
                      .out = device_found.data()};
  stream_.launch("top_k", kernels().top_k, args);
  const std::vector<RankedOutput> found = device_found.read(stream_);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const bool skipped = bad[i / kBest] != 0;
    EXPECT_EQ(found[i].row, skipped ? -1 : ids[i]) << i;
    EXPECT_EQ(found[i].value, skipped ? 0.0F : values[i]) << i;
  }
}

TEST_F(DeviceKernelsTest, OperationsAreLaunches) {
  const auto ops = device_ops(*test_device());
  ASSERT_TRUE(ops.ok()) << ops.error().message();
  EXPECT_EQ((*ops)->name(), test_device()->name());
  const Array<float> x(stream_, {1.0F, 2.0F, 3.0F});
  const Array<float> sum(stream_, {10.0F, 20.0F, 30.0F});
  (*ops)->add({.stream = stream_, .workspace = {}}, {.count = 3, .x = x.data(), .sum = sum.data()});
  EXPECT_EQ(sum.read(stream_), (std::vector<float>{11.0F, 22.0F, 33.0F}));
}

TEST(DeviceOps, TellWhatTheObjectLacks) {
  test::FakeDevice fake;
  fake.kernels().delta_rule = nullptr;
  const auto device = GpuDevice::open(fake.api(), 0);
  ASSERT_TRUE(device.ok());
  auto stream = (*device)->make_stream();
  const auto ops = device_ops(**device);
  ASSERT_TRUE(stream.ok() && ops.ok());
  (*ops)->delta_rule({.stream = *stream, .workspace = {}}, {});
  const Result<> waited = stream->wait();
  ASSERT_FALSE(waited.ok());
  EXPECT_EQ(waited.error().message(),
            "cuda:0: wanted a kernel for delta_rule, found none in the device object [device.operation]");
  EXPECT_TRUE(stream->wait().ok());
}

TEST(DeviceOps, RefusesKernelsOfAnotherVersion) {
  test::FakeDevice fake;
  const auto device = GpuDevice::open(fake.api(), 0);
  ASSERT_TRUE(device.ok());
  const KernelApi good = fake.kernels();
  fake.kernels().version += 1;
  EXPECT_EQ(kernel_api(**device).error().code, "device.version");
  fake.kernels() = good;
  fake.kernels().bytes -= 8;
  EXPECT_EQ(device_ops(**device).error().code, "device.version");
  fake.kernels() = good;
  EXPECT_TRUE(kernel_api(**device).ok());
}

TEST_F(DeviceKernelsTest, EmbedsRowsOfEveryCode) {
  const QuantKey keys[] = {
      {.element = Element::f32},
      {.element = Element::f16},
      {.element = Element::bf16},
      {.element = Element::int4, .scale = ScaleType::f16, .granularity = Granularity::group(32), .symmetric = false},
      {.element = Element::int8, .scale = ScaleType::bf16, .granularity = Granularity::channel()},
      {.element = Element::e4m3, .scale = ScaleType::f32, .granularity = Granularity::block(128, 128)},
      {.element = Element::e2m1, .scale = ScaleType::e8m0, .granularity = Granularity::group(32)},
      {.element = Element::e2m1,
       .scale = ScaleType::e4m3,
       .granularity = Granularity::group(16),
       .second_level = true}};
  for (const QuantKey& key : keys) {
    const CanonicalLinear linear = test::random_linear({.key = key, .rows = 50, .cols = 208}, rng_);
    const auto form = cuda::form_of(linear.scheme());
    ASSERT_TRUE(form.ok());
    std::uint64_t end = 0;
    const auto matrix = cuda::lay_out(linear.weight->spec(), *form, {}, end);
    ASSERT_TRUE(matrix.ok());
    std::vector<std::byte> packed(end);
    ASSERT_TRUE(cuda::pack_matrix(linear, *form, *matrix, packed).ok());
    const auto rows = dequantize(*linear.weight);
    ASSERT_TRUE(rows.ok());
    const std::vector<std::int32_t> ids{3, 49, 0, 3};
    std::vector<float> wanted;
    for (const std::int32_t id : ids)
      wanted.insert(wanted.end(), rows->begin() + id * 208, rows->begin() + (id + 1) * 208);
    const Array<std::byte> weights(stream_, packed);
    const Array<std::int32_t> device_ids(stream_, ids);
    const Array<float> out(wanted.size());
    out.poison(stream_);
    const EmbedArgs args{.pack = {.weights = reinterpret_cast<const std::uint8_t*>(weights.data()),
                                  .expert_bytes = end,
                                  .code = form->code,
                                  .scale = form->scale,
                                  .input = form->input,
                                  .records = RecordKind::none},
                         .matrix = *matrix,
                         .tokens = static_cast<std::int32_t>(ids.size()),
                         .ids = device_ids.data(),
                         .out = out.data()};
    stream_.launch("embed", kernels().embed, args);
    EXPECT_LE(relative_error(out.read(stream_), wanted), 1e-7) << to_string(key);
  }
}

// Shapes of published models and sizes of 16 that are no multiple of anything else; experts without tokens.
TEST_F(DeviceKernelsTest, ExpertsOfPublishedShapes) {
  if (!test::has_gpu()) GTEST_SKIP() << "the fake device is too slow for layers of this size";
  const QuantKey fp8_group{
      .element = Element::e4m3, .scale = ScaleType::f32, .granularity = Granularity::group(128), .dynamic = true};
  const Layer layers[] = {
      {8, 2048, 768, 37, 4, kInt4, {}, {}, false},
      {4, 2880, 2880, 9, 4, kMxfp4, {}, {.fn = ActivationFn::swigluoai, .limit = 7.0F}, true},
      {4, 2880, 2880, 150, 2, kMxfp4, {}, {.fn = ActivationFn::swigluoai, .limit = 7.0F}, true},
      {5, 1024, 512, 33, 3, kFp8Block, fp8_group, {}, false},
      {6, 208, 144, 65, 2, kMxfp4, {}, {}, true},
      {16, 48, 16, 300, 8, {.element = Element::bf16}, {}, {}, false},
  };
  ThreadPool pool(8);
  for (const Layer& layer : layers) {
    for (const bool skewed : {false, true}) {
      const CanonicalExperts experts = test::random_experts({.key = layer.key,
                                                             .activation = layer.activation,
                                                             .experts = layer.experts,
                                                             .hidden = layer.hidden,
                                                             .intermediate = layer.intermediate,
                                                             .bias = layer.bias},
                                                            rng_);
      const Table table = test::table_of(experts.scheme);
      const Routed input = random_input(layer, skewed, rng_);
      std::vector<std::vector<float>> outs;
      for (const std::string_view backend : {"portable", "ref"}) {
        const auto row = std::find_if(table.rows.begin(), table.rows.end(),
                                      [&](const TableRow& r) { return r.card->backend == backend; });
        ASSERT_NE(row, table.rows.end());
        auto runner = LayerRunner::pack(*row->card, experts,
                                        {.pool = pool, .activation = layer.fn, .device = test::device_for(*row->card)});
        ASSERT_TRUE(runner.ok()) << runner.error().message();
        ASSERT_TRUE(runner->reserve(layer.tokens, layer.top_k).ok());
        outs.emplace_back(input.x.size(), std::nanf(""));
        runner->run(input.view(layer), outs.back().data());
        const Result<> status = runner->status();
        ASSERT_TRUE(status.ok()) << status.error().message();
      }
      const double bound = layer.activation ? 0.02 : 4 * std::sqrt(3.0) * relative_rounding(InputRounding::bf16);
      const double error = relative_error(outs[0], outs[1]);
      std::printf("[%ld x %ld, %ld tokens, %s%s] error %.2e\n", static_cast<long>(layer.hidden),
                  static_cast<long>(layer.intermediate), static_cast<long>(layer.tokens),
                  to_string(experts.scheme).c_str(), skewed ? ", skewed" : "", error);
      EXPECT_LE(error, bound);
    }
  }
}

// The same bits directly, again, from a graph and from a graph once more, whatever lay in scratch and output before.
TEST_F(DeviceKernelsTest, SameBitsUnderCapture) {
  const Layer layer{6, 160, 96, 21, 3, kInt4, {}, {}, true};
  ThreadPool pool(2);
  const CanonicalExperts experts = test::random_experts({.key = {.element = Element::int4,
                                                                 .scale = ScaleType::f16,
                                                                 .granularity = Granularity::group(32),
                                                                 .symmetric = false},
                                                         .experts = layer.experts,
                                                         .hidden = layer.hidden,
                                                         .intermediate = layer.intermediate,
                                                         .bias = true},
                                                        rng_);
  auto packed = cuda::pack_experts(experts, {.pool = pool, .device = test_device()});
  ASSERT_TRUE(packed.ok()) << packed.error().message();
  const Routed input = random_input(layer, false, rng_);
  const Array<float> x(stream_, input.x);
  const Array<std::int32_t> ids(stream_, input.ids);
  const Array<float> weights(stream_, input.weights);
  const Array<float> out(input.x.size());
  const std::size_t scratch_bytes = (*packed)->workspace_bytes(layer.tokens, layer.top_k, 0);
  const Array<std::byte> scratch(scratch_bytes);
  const auto enqueue_layer = [&] {
    (*packed)->run(
        {.stream = stream_, .workspace = {scratch.data(), scratch_bytes}},
        {.tokens = layer.tokens, .top_k = layer.top_k, .x = x.data(), .ids = ids.data(), .weights = weights.data()},
        out.data());
  };
  const auto run = [&](auto enqueue) {
    out.poison(stream_);
    scratch.poison(stream_);
    enqueue();
    return out.read(stream_);
  };
  const auto direct = run(enqueue_layer);
  for (const float value : direct) ASSERT_TRUE(std::isfinite(value));
  EXPECT_EQ(run(enqueue_layer), direct) << "again";
  auto graph = stream_.capture(enqueue_layer);
  ASSERT_TRUE(graph.ok()) << graph.error().message();
  EXPECT_EQ(run([&] { stream_.launch(*graph); }), direct) << "from a graph";
  EXPECT_EQ(run([&] { stream_.launch(*graph); }), direct) << "from a graph once more";
}

}  // namespace
}  // namespace moracle
