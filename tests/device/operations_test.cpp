// Operations on rows and numbers, the choice of experts and of tokens: the device's against the host's.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "device/operations_fixture.h"
#include "kernels/args/operations.h"
#include "moe/routing.h"

namespace moracle {
namespace {

// A function of f32 numbers that a few correctly rounded steps and one exponential, tangent or root make.
constexpr float kFewSteps = 16 * 0x1p-24F;

TEST_F(OperationsTest, AddsGatedRows) {
  constexpr std::size_t kRows = 37;
  constexpr std::size_t kCols = 130;
  std::vector<float> x = normal_values(kRows * kCols, rng_);
  std::vector<float> sum = normal_values(kRows * kCols, rng_);
  const std::vector<float> gate = normal_values(kRows, rng_);
  CallArrays arrays(stream_);
  AddGatedArgs args{
      .rows = kRows, .cols = kCols, .gate = arrays.hold(gate), .x = arrays.hold(x), .sum = arrays.hold(sum)};
  on_device(arrays, &Ops::add_gated, args);
  const auto found = arrays.read(args.sum);
  args.gate = gate.data();
  args.x = x.data();
  args.sum = sum.data();
  on_host(ref_ops(), &Ops::add_gated, args);
  expect_near(found, sum, kFewSteps, "sum");
}

// The sum has the bits of an addition, and the norm those of rms_norm.
TEST_F(OperationsTest, AddsThenNorms) {
  constexpr std::int32_t kRows = 19;
  for (const std::int32_t cols : {16, 100, 2880}) {
    const auto size = static_cast<std::size_t>(kRows * cols);
    const std::vector<float> x = normal_values(size, rng_);
    const std::vector<float> sum = normal_values(size, rng_);
    const std::vector<float> weight = normal_values(static_cast<std::size_t>(cols), rng_);
    CallArrays arrays(stream_);
    const AddNormArgs args{.rows = kRows,
                           .cols = cols,
                           .eps = 1e-6F,
                           .x = arrays.hold(x),
                           .sum = arrays.hold(sum),
                           .weight = arrays.hold(weight),
                           .out = arrays.out<float>(size)};
    on_device(arrays, &Ops::add_norm, args);
    const auto added = arrays.read(args.sum);
    const auto found = arrays.read(args.out);
    for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(added[i], sum[i] + x[i]) << i;
    const RmsNormArgs norm{.rows = kRows,
                           .cols = cols,
                           .eps = 1e-6F,
                           .x = arrays.hold(added),
                           .weight = arrays.hold(weight),
                           .out = arrays.out<float>(size)};
    on_device(arrays, &Ops::rms_norm, norm);
    EXPECT_EQ(arrays.read(norm.out), found);
  }
}

TEST_F(OperationsTest, ActivatesAsEveryFunctionDoes) {
  const std::vector<float> gate = uniform_values(3000, -12.0F, 12.0F);
  const std::vector<float> up = normal_values(3000, rng_);
  for (int fn = 0; fn <= static_cast<int>(ActivationFn::relu2); ++fn) {
    for (const float limit : {0.0F, 2.5F}) {
      CallArrays arrays(stream_);
      GatedArgs args{.count = 3000,
                     .activation = {.fn = static_cast<ActivationFn>(fn), .alpha = 1.7F, .beta = 0.9F, .limit = limit},
                     .gate = arrays.hold(gate),
                     .up = arrays.hold(up),
                     .out = arrays.out<float>(3000)};
      on_device(arrays, &Ops::gated_activation, args);
      const auto found = arrays.read(args.out);
      std::vector<float> wanted(3000);
      args.gate = gate.data();
      args.up = up.data();
      args.out = wanted.data();
      on_host(ref_ops(), &Ops::gated_activation, args);
      expect_near(found, wanted, kFewSteps, std::string(to_string(args.activation.fn)).c_str());
    }
  }
}

TEST_F(OperationsTest, GathersRowsAndFindsThoseThatAreNotFinite) {
  constexpr std::size_t kCols = 300;
  std::vector<float> from = normal_values(20 * kCols, rng_);
  from[3 * kCols + 299] = std::nanf("");
  from[7 * kCols] = -std::numeric_limits<float>::infinity();
  const std::vector<std::int32_t> index{3, 0, 19, 7, 7, 12};
  CallArrays arrays(stream_);
  GatherArgs gather{.rows = 6,
                    .cols = kCols,
                    .index = arrays.hold(index),
                    .from = arrays.hold(from),
                    .to = arrays.out<float>(6 * kCols)};
  on_device(arrays, &Ops::gather, gather);
  const auto rows = arrays.read(gather.to);
  for (std::size_t i = 0; i < index.size(); ++i) {
    EXPECT_EQ(std::memcmp(&rows[i * kCols], &from[static_cast<std::size_t>(index[i]) * kCols], kCols * sizeof(float)),
              0);
  }
  CallArrays found(stream_);
  const FiniteArgs finite{.rows = 6, .cols = kCols, .x = found.hold(rows), .bad = found.out<std::uint8_t>(6)};
  on_device(found, &Ops::find_not_finite, finite);
  EXPECT_EQ(found.read(finite.bad), (std::vector<std::uint8_t>{1, 0, 0, 1, 1, 0}));
}

// Angles of a million radians, too.
TEST_F(OperationsTest, TabulatesRopeOfFarPositions) {
  std::vector<std::int32_t> positions{0, 1, 63, 4097, 131071, 999999};
  std::vector<float> inv_freq{1.0F};
  while (inv_freq.size() < 33) inv_freq.push_back(inv_freq.back() * 0.75F);
  const std::size_t size = positions.size() * inv_freq.size();
  CallArrays arrays(stream_);
  RopeTableArgs args{.tokens = std::ssize(positions),
                     .half = std::ssize(inv_freq),
                     .positions = arrays.hold(positions),
                     .inv_freq = arrays.hold(inv_freq),
                     .scale = 1.2F,
                     .cos = arrays.out<float>(size),
                     .sin = arrays.out<float>(size)};
  on_device(arrays, &Ops::rope_table, args);
  const auto cos = arrays.read(args.cos);
  const auto sin = arrays.read(args.sin);
  for (std::size_t i = 0; i < size; ++i) {
    const float angle = static_cast<float>(positions[i / inv_freq.size()]) * inv_freq[i % inv_freq.size()];
    // Two roundings, one of a product.
    EXPECT_NEAR(cos[i], 1.2F * std::cos(static_cast<double>(angle)), 2 * 0x1p-24 * 1.2) << i;
    EXPECT_NEAR(sin[i], 1.2F * std::sin(static_cast<double>(angle)), 2 * 0x1p-24 * 1.2) << i;
  }
}

// Logits within the roundings of a sum; where one order is asked for, the same bits whatever stands beside a token.
TEST_F(OperationsTest, RoutesTokensAlikeInAnyBatch) {
  for (const std::int64_t hidden : {48, 100, 2880}) {
    const std::int64_t experts = drawn(3, 130);
    constexpr std::int64_t kTokens = 150;
    const auto x = normal_values(static_cast<std::size_t>(kTokens * hidden), rng_);
    const auto weight = normal_values(static_cast<std::size_t>(experts * hidden), rng_);
    const auto bias = normal_values(static_cast<std::size_t>(experts), rng_);
    CallArrays arrays(stream_);
    RouteArgs args = route_args({.experts = experts, .top_k = 2});
    args.tokens = kTokens;
    args.batch_invariant = 1;
    args.x = arrays.hold(x);
    args.hidden = hidden;
    args.router = arrays.hold(weight);
    args.router_bias = arrays.hold(bias);
    args.logits = arrays.out<float>(static_cast<std::size_t>(kTokens * experts));
    args.ids = arrays.out<std::int32_t>(2 * kTokens);
    args.weights = arrays.out<float>(2 * kTokens);
    on_device(arrays, &Ops::route, args);
    const auto ids = arrays.read(args.ids);
    const auto weights = arrays.read(args.weights);
    const auto found = arrays.read(args.logits);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      for (std::int64_t e = 0; e < experts; ++e) {
        double sum = static_cast<double>(bias[static_cast<std::size_t>(e)]);
        double size = std::fabs(sum);
        for (std::int64_t k = 0; k < hidden; ++k) {
          const double product = static_cast<double>(x[static_cast<std::size_t>(t * hidden + k)]) *
                                 static_cast<double>(weight[static_cast<std::size_t>(e * hidden + k)]);
          sum += product;
          size += std::fabs(product);
        }
        // A term passes through a lane's additions, those of lanes and the bias.
        const double roundings = static_cast<double>(hidden) / 32 + 8;
        ASSERT_NEAR(found[static_cast<std::size_t>(t * experts + e)], sum, roundings * 0x1p-24 * size) << t << " " << e;
      }
    }
    for (const std::int32_t few : {1, 63}) {
      args.tokens = few;
      on_device(arrays, &Ops::route, args);
      const auto same = [&](const auto& some, const auto& all, std::int64_t width) {
        return std::memcmp(some.data(), all.data(), static_cast<std::size_t>(few * width) * 4) == 0;
      };
      EXPECT_TRUE(same(arrays.read(args.logits), found, experts)) << few;
      EXPECT_TRUE(same(arrays.read(args.ids), ids, 2)) << few;
      EXPECT_TRUE(same(arrays.read(args.weights), weights, 2)) << few;
    }
  }
}

// Logits of tiles whose columns are shared, and of products: within what their sums and operands leave out.
TEST_F(OperationsTest, RoutesManyTokensWithinRoundings) {
  constexpr std::int64_t kHidden = 260;
  for (const auto& [tokens, experts] : {std::pair{70, 60}, std::pair{420, 990}}) {
    const auto x = normal_values(static_cast<std::size_t>(tokens * kHidden), rng_);
    const auto weight = normal_values(static_cast<std::size_t>(experts * kHidden), rng_);
    CallArrays arrays(stream_);
    RouteArgs args = route_args({.experts = experts, .top_k = 2});
    args.tokens = tokens;
    args.x = arrays.hold(x);
    args.hidden = kHidden;
    args.router = arrays.hold(weight);
    args.logits = arrays.out<float>(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(experts));
    args.ids = arrays.out<std::int32_t>(2 * static_cast<std::size_t>(tokens));
    args.weights = arrays.out<float>(2 * static_cast<std::size_t>(tokens));
    on_device(arrays, &Ops::route, args);
    const auto found = arrays.read(args.logits);
    for (int t = 0; t < tokens; ++t) {
      for (int e = 0; e < experts; ++e) {
        double sum = 0.0;
        double size = 0.0;
        for (std::int64_t k = 0; k < kHidden; ++k) {
          const double product = static_cast<double>(x[static_cast<std::size_t>(t * kHidden + k)]) *
                                 static_cast<double>(weight[static_cast<std::size_t>(e * kHidden + k)]);
          sum += product;
          size += std::fabs(product);
        }
        // Tensor cores cut sums: of each 8 columns three in every half, beside what two numbers of 11 bits leave out.
        const double cuts = 3 * static_cast<double>(kHidden) / 16 + 8;
        ASSERT_NEAR(found[static_cast<std::size_t>(t * experts + e)], sum, (cuts * 0x1p-23 + 3 * 0x1p-21) * size)
            << t << " " << e;
      }
    }
  }
}

// A norm that comes first has the bits of its own operation, and so has all that follows.
TEST_F(OperationsTest, RoutesBehindANormAsBehindItsOperation) {
  constexpr std::int64_t kExperts = 60;
  constexpr std::int64_t kMost = 70;
  for (const std::int32_t hidden : {48, 2880, 7168, 8192}) {
    const auto size = static_cast<std::size_t>(kMost * hidden);
    const auto x = normal_values(size, rng_);
    const auto sum = normal_values(size, rng_);
    const auto gain = normal_values(static_cast<std::size_t>(hidden), rng_);
    const auto weight = normal_values(static_cast<std::size_t>(kExperts * hidden), rng_);
    for (const std::int32_t tokens : {1, 9, 63, 70}) {
      CallArrays arrays(stream_);
      const auto norm = [&] {
        return AddNormArgs{.rows = tokens,
                           .cols = hidden,
                           .eps = 1e-6F,
                           .x = arrays.hold(x),
                           .sum = arrays.hold(sum),
                           .weight = arrays.hold(gain),
                           .out = arrays.out<float>(size)};
      };
      const auto route = [&](const AddNormArgs& by) {
        RouteArgs args = route_args({.experts = kExperts, .top_k = 4});
        args.tokens = tokens;
        args.x = by.out;
        args.hidden = hidden;
        args.router = arrays.hold(weight);
        args.logits = arrays.out<float>(static_cast<std::size_t>(tokens * kExperts));
        args.ids = arrays.out<std::int32_t>(static_cast<std::size_t>(tokens) * 4);
        args.weights = arrays.out<float>(static_cast<std::size_t>(tokens) * 4);
        return args;
      };
      const AddNormArgs apart = norm();
      RouteArgs behind = route(apart);
      RouteArgs at_once = route(norm());
      at_once.norm = norm();
      at_once.x = at_once.norm.out;
      on_device(arrays, &Ops::route, at_once);
      const auto logits = arrays.read(at_once.logits);
      const auto ids = arrays.read(at_once.ids);
      const auto weights = arrays.read(at_once.weights);
      const auto normed = arrays.read(at_once.norm.out);
      const auto added = arrays.read(at_once.norm.sum);
      on_device(arrays, &Ops::add_norm, apart);
      EXPECT_EQ(arrays.read(apart.sum), added) << hidden << " " << tokens;
      const auto first = arrays.read(apart.out);
      EXPECT_TRUE(std::equal(first.begin(), first.begin() + tokens * hidden, normed.begin()))
          << hidden << " " << tokens;
      CallArrays others(stream_);
      behind.x = others.hold(first);
      behind.router = others.hold(weight);
      behind.logits = others.out<float>(logits.size());
      behind.ids = others.out<std::int32_t>(ids.size());
      behind.weights = others.out<float>(weights.size());
      on_device(others, &Ops::route, behind);
      EXPECT_EQ(others.read(behind.logits), logits) << hidden << " " << tokens;
      EXPECT_EQ(others.read(behind.ids), ids);
      EXPECT_EQ(others.read(behind.weights), weights);
    }
  }
}

// Tokens of two rows of counts and of none, and tokens that stand for none: one of those has logits that are not
// finite.
TEST_F(OperationsTest, CountsChoicesAsTheHostDoes) {
  constexpr std::size_t kTokens = 300;
  constexpr std::int32_t kTopK = 5;
  constexpr std::int32_t kExperts = 37;
  constexpr std::int64_t kStride = 3 * kExperts;
  std::vector<float> logits = normal_values(kTokens * kExperts, rng_);
  std::vector<std::int32_t> token_ids(kTokens);
  std::vector<std::int32_t> rows(kTokens);
  for (std::int32_t& id : token_ids) id = static_cast<std::int32_t>(drawn(-1, 3));
  for (std::int32_t& row : rows) row = static_cast<std::int32_t>(drawn(-1, 1));
  token_ids[7] = -1;
  logits[7 * kExperts] = NAN;
  std::vector<std::uint32_t> counts(2 * kStride, 4);
  std::vector<std::int32_t> ids(kTokens * kTopK);
  std::vector<float> weights(ids.size());
  std::vector<std::int32_t> bad_layer(kTokens, DeviceStatus::kRouted);
  RouteArgs args = route_args({.experts = kExperts, .top_k = kTopK});
  args.tokens = kTokens;
  args.logits = logits.data();
  args.token_ids = token_ids.data();
  args.ids = ids.data();
  args.weights = weights.data();
  args.bad_layer = bad_layer.data();
  args.counts = counts.data() + kExperts;
  args.count_rows = rows.data();
  args.count_stride = kStride;
  CallArrays arrays(stream_);
  std::uint32_t* const on_gpu = arrays.hold(counts);
  RouteArgs there = args;
  there.logits = arrays.hold(logits);
  there.token_ids = arrays.hold(token_ids);
  there.ids = arrays.out<std::int32_t>(ids.size());
  there.weights = arrays.out<float>(weights.size());
  there.bad_layer = arrays.hold(bad_layer);
  there.counts = on_gpu + kExperts;
  there.count_rows = arrays.hold(rows);
  on_device(arrays, &Ops::route, there);
  on_host(ref_ops(), &Ops::route, args);
  EXPECT_EQ(arrays.read(there.ids), ids);
  EXPECT_EQ(arrays.read(on_gpu), counts);
  EXPECT_EQ(arrays.read(there.bad_layer), std::vector(kTokens, DeviceStatus::kRouted));
  for (std::size_t t = 0; t < kTokens; ++t) EXPECT_EQ(ids[t * kTopK] < 0, token_ids[t] < 0) << t;
}

TEST_F(OperationsTest, RanksByNoiseAsTheHostDoes) {
  for (const std::int64_t k : {1, 3, 64}) {
    constexpr std::size_t kRows = 9;
    const auto cols = static_cast<std::size_t>(drawn(64, 5000));
    std::vector<float> x = normal_values(kRows * cols, rng_);
    for (std::size_t i = 0; i < x.size() / 3; ++i) x[i] = std::round(x[i]);
    std::vector<std::uint64_t> seeds(kRows);
    for (std::uint64_t& seed : seeds) seed = rng_() * 0x100000001ULL;
    std::vector<std::uint8_t> bad(kRows, 0);
    bad[4] = 1;
    for (const bool noisy : {false, true}) {
      CallArrays arrays(stream_);
      const auto size = kRows * static_cast<std::size_t>(k);
      RankArgs args{.rows = kRows,
                    .cols = static_cast<std::int64_t>(cols),
                    .k = k,
                    .x = arrays.hold(x),
                    .bad = arrays.hold(bad),
                    .seeds = noisy ? arrays.hold(seeds) : nullptr,
                    .temperature = 0.7,
                    .out = arrays.out<RankedOutput>(size)};
      on_device(arrays, &Ops::top_k, args);
      const auto found = arrays.read(args.out);
      std::vector<RankedOutput> wanted(size);
      args.x = x.data();
      args.bad = bad.data();
      if (noisy) args.seeds = seeds.data();
      args.out = wanted.data();
      on_host(ref_ops(), &Ops::top_k, args);
      for (std::size_t i = 0; i < size; ++i) {
        if (i / static_cast<std::size_t>(k) == 4) continue;
        ASSERT_EQ(found[i].row, wanted[i].row) << k << " " << i;
        ASSERT_EQ(found[i].value, wanted[i].value) << k << " " << i;
      }
    }
  }
}

// Rows of all kinds in one call.
class SampleTest : public OperationsTest {
 protected:
  struct Rows {
    std::vector<SampleParams> params;
    std::vector<float> logits;
    std::vector<std::int32_t> logit_row;
    std::vector<TokenLogit> candidates;
    std::vector<std::int32_t> candidates_start{0};
    std::vector<TokenCount> counts;
    std::vector<std::int32_t> counts_start{0};
    std::vector<LogitBias> bias;
    std::vector<std::int32_t> bias_start{0};
    std::vector<std::uint32_t> mask;
    std::vector<std::int32_t> given;
    std::vector<std::int32_t> tops;
    std::int32_t most_candidates = 0;
  };

  SampleParams random_params() {
    SampleParams params;
    if (drawn(0, 3) > 0) params.temperature = static_cast<double>(drawn(1, 30)) / 10.0;
    if (drawn(0, 1) == 0) params.top_k = drawn(1, 100);
    if (drawn(0, 1) == 0) params.top_p = static_cast<double>(drawn(0, 100)) / 100.0;
    if (drawn(0, 1) == 0) params.min_p = static_cast<double>(drawn(0, 20)) / 100.0;
    params.seed = rng_() * 0x100000001ULL + rng_();
    if (drawn(0, 2) == 0) {
      params.repetition_penalty = 1.3;
      params.presence_penalty = 0.4;
      params.frequency_penalty = 0.3;
    }
    return params;
  }

  // Distinct tokens.
  std::vector<std::int32_t> random_ids(std::int32_t vocab, std::int64_t most) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(vocab));
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), rng_);
    ids.resize(static_cast<std::size_t>(std::min<std::int64_t>(vocab, drawn(0, most))));
    return ids;
  }

  Rows random_rows(std::size_t count, std::int32_t vocab, bool changed) {
    Rows rows;
    for (std::size_t row = 0; row < count; ++row) {
      SampleParams params = random_params();
      std::vector<float> logits = normal_values(static_cast<std::size_t>(vocab), rng_);
      const float spread = static_cast<float>(drawn(1, 8));
      for (float& logit : logits) logit *= spread;
      if (drawn(0, 3) == 0) {  // ties
        for (float& logit : logits) logit = std::round(logit);
      }
      const std::int64_t kind = drawn(0, 24);
      if (kind == 0) logits[static_cast<std::size_t>(drawn(0, vocab - 1))] = std::nanf("");
      if (kind == 1) std::fill(logits.begin(), logits.end(), -INFINITY);
      if (kind == 2) std::fill(logits.begin(), logits.end() - 1, -INFINITY);
      if (kind == 3) std::fill(logits.begin(), logits.end(), 1.5F);
      if (kind == 4) logits[static_cast<std::size_t>(drawn(0, vocab - 1))] = 60.0F;
      if (changed) {
        for (const std::int32_t id : random_ids(vocab, 40))
          rows.counts.push_back({id, static_cast<std::int32_t>(drawn(0, 5))});
        for (const std::int32_t id : random_ids(vocab, 10)) rows.bias.push_back({id, 3.0F});
        for (std::int64_t word = 0; word < mask_words(vocab); ++word)
          rows.mask.push_back(drawn(0, 1) == 0 ? ~0U : static_cast<std::uint32_t>(rng_()));
      }
      rows.counts_start.push_back(static_cast<std::int32_t>(rows.counts.size()));
      rows.bias_start.push_back(static_cast<std::int32_t>(rows.bias.size()));
      if (!changed && kind == 5 && !params.penalizes()) {
        std::vector<TokenLogit> order;
        for (std::size_t i = 0; i < logits.size(); ++i) order.push_back({logits[i], static_cast<std::int32_t>(i)});
        std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.before(b); });
        order.resize(std::min<std::size_t>(order.size(), 64));
        rows.candidates.insert(rows.candidates.end(), order.begin(), order.end());
      }
      rows.candidates_start.push_back(static_cast<std::int32_t>(rows.candidates.size()));
      rows.most_candidates =
          std::max(rows.most_candidates, rows.candidates_start[row + 1] - rows.candidates_start[row]);
      rows.given.push_back(drawn(0, 7) == 0 ? static_cast<std::int32_t>(drawn(0, vocab - 1)) : -1);
      rows.tops.push_back(static_cast<std::int32_t>(drawn(-1, 5)));
      rows.params.push_back(params);
      rows.logit_row.push_back(static_cast<std::int32_t>(count - 1 - row));
      rows.logits.insert(rows.logits.begin(), logits.begin(), logits.end());
    }
    return rows;
  }
};

TEST_F(SampleTest, ChoosesTheHostsTokens) {
  constexpr std::int32_t kTops = 5;
  for (const std::int32_t vocab : {5, 37, 1000, 32000}) {
    for (const bool changed : {false, true}) {
      const std::size_t count = vocab > 1000 ? 24 : 96;
      const Rows rows = random_rows(count, vocab, changed);
      const auto arguments = [&](auto&& hold) {
        return SampleArgs{.rows = static_cast<std::int32_t>(count),
                          .vocab = vocab,
                          .params = hold(rows.params),
                          .logits = hold(rows.logits),
                          .logit_row = hold(rows.logit_row),
                          .candidates = hold(rows.candidates),
                          .most_candidates = rows.most_candidates,
                          .candidates_start = hold(rows.candidates_start),
                          .counts = hold(rows.counts),
                          .counts_start = hold(rows.counts_start),
                          .bias = hold(rows.bias),
                          .bias_start = hold(rows.bias_start),
                          .mask = hold(rows.mask),
                          .given = hold(rows.given),
                          .tops = hold(rows.tops),
                          .most_tops = kTops};
      };
      CallArrays arrays(stream_);
      SampleArgs args = arguments([&](const auto& values) { return arrays.hold(values); });
      args.ids = arrays.out<std::int32_t>(count);
      args.logprobs = arrays.out<double>(count);
      args.top = arrays.out<TokenLogprob>(count * kTops);
      on_device(arrays, &Ops::sample, args);
      const auto ids = arrays.read(args.ids);
      const auto logprobs = arrays.read(args.logprobs);
      const auto top = arrays.read(args.top);
      SampleArgs host = arguments([](const auto& values) { return values.empty() ? nullptr : values.data(); });
      std::vector<std::int32_t> wanted(count);
      std::vector<double> wanted_logprobs(count, NAN);
      std::vector<TokenLogprob> wanted_top(count * kTops, {-2, NAN});
      host.ids = wanted.data();
      host.logprobs = wanted_logprobs.data();
      host.top = wanted_top.data();
      on_host(ref_ops(), &Ops::sample, host);
      for (std::size_t row = 0; row < count; ++row) {
        const SampleParams& params = rows.params[row];
        ASSERT_EQ(ids[row], wanted[row]) << vocab << " " << changed << " row " << row << " t " << params.temperature
                                         << " k " << params.top_k << " p " << params.top_p << " m " << params.min_p;
        if (std::isnan(wanted_logprobs[row])) continue;
        // Exponentials and sums of up to `vocab` numbers in double, in another order, and numbers as large as logits.
        const double bound = (vocab + 8 + 8 * 64) * 0x1p-53;
        if (std::isfinite(wanted_logprobs[row])) {
          ASSERT_NEAR(logprobs[row], wanted_logprobs[row], bound) << row;
        }
        for (std::size_t i = row * kTops; i < (row + 1) * kTops && wanted_top[i].id != -2; ++i) {
          ASSERT_EQ(top[i].id, wanted_top[i].id) << row;
          if (std::isfinite(wanted_top[i].logprob)) {
            ASSERT_NEAR(top[i].logprob, wanted_top[i].logprob, bound) << row;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace moracle
