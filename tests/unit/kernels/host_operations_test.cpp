// Operations of the host alone, by numbers worked out by hand; whole models hold the others (families_test.cpp).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/ops.h"

namespace moracle {
namespace {

class HostOperationsTest : public testing::Test {
 protected:
  ThreadPool pool_{2};
  Stream stream_{pool_};
  RunContext context_{.stream = stream_, .workspace = {}};
};

TEST_F(HostOperationsTest, LayerNormTakesTheMeanAndAddsItsBias) {
  std::vector<float> x{1.0F, 2.0F, 3.0F, 4.0F, -1.0F, -1.0F, -1.0F, -1.0F};
  const std::vector<float> weight{1.0F, 1.0F, 2.0F, 2.0F};
  const std::vector<float> bias{0.5F, 0.0F, 0.0F, -0.5F};
  ref_ops().layer_norm(context_, {.rows = 2,
                                  .cols = 4,
                                  .eps = 0.25F,
                                  .x = x.data(),
                                  .weight = weight.data(),
                                  .bias = bias.data(),
                                  .out = x.data()});
  const float root = std::sqrt(1.25F + 0.25F);
  const std::vector<float> wanted{
      -1.5F / root + 0.5F, -0.5F / root, 1.0F / root, 3.0F / root - 0.5F, 0.5F, 0.0F, 0.0F, -0.5F};
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], wanted[i], 1e-6F) << i;
}

TEST_F(HostOperationsTest, ScaleMultipliesByBothFactors) {
  std::vector<float> x{1.0F, -2.0F};
  const float by = 3.0F;
  ref_ops().scale(context_, {.count = 2, .factor = 2.0F, .by = &by, .x = x.data()});
  EXPECT_EQ(x, (std::vector<float>{6.0F, -12.0F}));
  ref_ops().scale(context_, {.count = 1, .factor = 0.5F, .x = x.data()});
  EXPECT_EQ(x, (std::vector<float>{3.0F, -12.0F}));
}

TEST_F(HostOperationsTest, SoftcapStaysBelowItsCap) {
  std::vector<float> x{0.0F, 1.0F, -1000.0F};
  ref_ops().softcap(context_, {.count = 3, .cap = 2.0F, .x = x.data()});
  EXPECT_EQ(x[0], 0.0F);
  EXPECT_FLOAT_EQ(x[1], 2.0F * std::tanh(0.5F));
  EXPECT_FLOAT_EQ(x[2], -2.0F);
}

TEST_F(HostOperationsTest, WeighMovesWeightsToTheInput) {
  const std::vector<float> x{1.0F, 2.0F, 3.0F, 4.0F};
  std::vector<float> weights{0.5F, 2.0F};
  std::vector<float> out(4);
  ref_ops().weigh(context_, {.rows = 2, .cols = 2, .x = x.data(), .weights = weights.data(), .out = out.data()});
  EXPECT_EQ(out, (std::vector<float>{0.5F, 1.0F, 6.0F, 8.0F}));
  EXPECT_EQ(weights, (std::vector<float>{1.0F, 1.0F}));
}

// One sequence whose states are blocks of `floats` numbers: 0 before, 1 behind a first call, 2 behind a second.
struct Recurrence {
  explicit Recurrence(std::size_t size, std::int64_t tokens)
      : floats(size), memory(3 * size, 0.0F), whole{.begin = 0, .count = tokens, .before = 0, .after = 2} {}
  [[nodiscard]] BlockMemory blocks() {
    return {.memory = reinterpret_cast<std::byte*>(memory.data()), .stride = floats * sizeof(float)};
  }
  [[nodiscard]] std::span<float> block(std::size_t index) { return std::span(memory).subspan(index * floats, floats); }

  std::size_t floats;
  std::vector<float> memory;
  RecurrentSpan whole;
};

TEST_F(HostOperationsTest, ConvolutionReadsItsStateAndGates) {
  Recurrence recurrence(2, 3);
  recurrence.block(0)[0] = 1.0F;
  recurrence.block(0)[1] = -1.0F;
  const std::vector<float> x{1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F};
  const std::vector<float> times{2.0F, 1.0F, 1.0F, 1.0F, 1.0F, 0.5F};
  const std::vector<float> gate{1.0F, 1.0F, 1.0F, 2.0F, -1.0F, 1.0F};
  const std::vector<float> taps{10.0F, 20.0F, 1.0F, 2.0F};
  const std::vector<float> bias{0.5F, 0.0F};
  std::vector<float> out(6);
  ConvolutionArgs args{.shape = {.channels = 2, .kernel = 2},
                       .tokens = 3,
                       .x = x.data(),
                       .times = times.data(),
                       .gate = gate.data(),
                       .taps = taps.data(),
                       .bias = bias.data(),
                       .states = recurrence.blocks(),
                       .spans = &recurrence.whole,
                       .span_count = 1,
                       .out = out.data()};
  ref_ops().convolution(context_, args);
  EXPECT_EQ(out, (std::vector<float>{12.5F, -16.0F, 23.5F, 96.0F, -35.5F, 86.0F}));
  EXPECT_EQ(recurrence.block(2)[0], 5.0F);
  EXPECT_EQ(recurrence.block(2)[1], 3.0F);
  const std::vector<float> at_once = out;
  for (const RecurrentSpan& part : {RecurrentSpan{.begin = 0, .count = 1, .before = 0, .after = 1},
                                    RecurrentSpan{.begin = 1, .count = 2, .before = 1, .after = 2}}) {
    args.spans = &part;
    ref_ops().convolution(context_, args);
  }
  EXPECT_EQ(out, at_once);
}

// Two heads of two numbers in one group, three states each, against the definition in double.
TEST_F(HostOperationsTest, StateSpaceIsItsRecurrence) {
  constexpr std::size_t kTokens = 4;
  constexpr std::size_t kStates = 3;
  const auto some = [](std::size_t count, float shift) {
    std::vector<float> numbers(count);
    for (std::size_t i = 0; i < count; ++i) numbers[i] = std::sin(1.7F * static_cast<float>(i) + shift);
    return numbers;
  };
  const auto x = some(kTokens * 4, 0.1F);
  const auto b = some(kTokens * kStates, 0.2F);
  const auto c = some(kTokens * kStates, 0.3F);
  const auto step = some(kTokens * 2, 0.4F);
  const auto gate = some(kTokens * 4, 0.5F);
  const auto skip = some(2, 0.6F);
  const auto step_bias = some(2, 0.7F);
  for (const bool by_state : {false, true}) {
    const auto rate = std::vector<float>{0.5F, 1.0F, 0.25F, 2.0F, 0.125F, 1.5F};
    Recurrence recurrence(1 + 4 * kStates, kTokens);
    std::vector<float> out(kTokens * 4);
    ref_ops().state_space(context_, {.shape = {.heads = 2,
                                               .head_dim = 2,
                                               .groups = 1,
                                               .states = kStates,
                                               .rate_by_state = by_state,
                                               .least_step = 0.75F,
                                               .most_step = 1.25F},
                                     .tokens = kTokens,
                                     .state_offset = 1,
                                     .x = x.data(),
                                     .x_stride = 4,
                                     .b = b.data(),
                                     .c = c.data(),
                                     .b_stride = kStates,
                                     .step = step.data(),
                                     .gate = gate.data(),
                                     .rate = rate.data(),
                                     .skip = skip.data(),
                                     .step_bias = step_bias.data(),
                                     .states = recurrence.blocks(),
                                     .spans = &recurrence.whole,
                                     .span_count = 1,
                                     .out = out.data()});
    std::vector<double> state(4 * kStates, 0.0);
    for (std::size_t t = 0; t < kTokens; ++t) {
      for (std::size_t r = 0; r < 4; ++r) {
        const std::size_t h = r / 2;
        const double d =
            std::clamp(std::log1p(std::exp(static_cast<double>(step[t * 2 + h]) + step_bias[h])), 0.75, 1.25);
        double y = static_cast<double>(skip[h]) * x[t * 4 + r];
        for (std::size_t n = 0; n < kStates; ++n) {
          double& own = state[r * kStates + n];
          own = std::exp(-d * rate[by_state ? h * kStates + n : h]) * own + d * x[t * 4 + r] * b[t * kStates + n];
          y += own * c[t * kStates + n];
        }
        const double z = gate[t * 4 + r];
        EXPECT_NEAR(out[t * 4 + r], y * z / (1.0 + std::exp(-z)), 1e-6) << t << " " << r << " " << by_state;
      }
    }
    for (std::size_t i = 0; i < state.size(); ++i) EXPECT_NEAR(recurrence.block(2)[1 + i], state[i], 1e-6) << i;
  }
}

// Scores of the positions are 3, 1, 0 (of a negative product), 2 and 3 again, for every query alike.
TEST_F(HostOperationsTest, IndexChoosesTheBestPositions) {
  std::vector<float> k{3.0F, 0.0F, 1.0F, 0.0F, -5.0F, 0.0F, 2.0F, 0.0F, 3.0F, 0.0F};
  const std::vector<float> weights(5, 1.0F);
  const std::uint32_t table = 0;
  const KvSpan span{.begin = 0, .count = 5, .start = 0, .table = &table};
  for (const KvType kv : {KvType::f32, KvType::bf16}) {
    std::vector<float> q{1.0F, 7.0F, 1.0F, 7.0F, 1.0F, 7.0F, 1.0F, 7.0F, 1.0F, 7.0F};
    std::vector<float> block(1 + kKvBlock * 2);
    std::vector<std::int32_t> selected(5 * 2, -1);
    const IndexArgs args{.shape = {.heads = 1, .dim = 2, .top_k = 2},
                         .kv = kv,
                         .tokens = 5,
                         .blocks = {.memory = reinterpret_cast<std::byte*>(block.data()), .stride = 0},
                         .block_offset = sizeof(float),
                         .spans = &span,
                         .span_count = 1,
                         .q = q.data(),
                         .k = k.data(),
                         .weights = weights.data(),
                         .selected = selected.data()};
    std::vector<std::byte> workspace(ref_ops().workspace(args, pool_.threads()));
    ref_ops().index({.stream = stream_, .workspace = workspace}, args);
    const std::vector<std::int32_t> wanted{-1, -1, -1, -1, 0, 1, 0, 3, 0, 4};
    EXPECT_EQ(selected, wanted);
    EXPECT_EQ(block[0], 0.0F);
  }
}

// q, k and v that have arrays of their own give what they give side by side, call after call.
TEST_F(HostOperationsTest, DeltaRuleTakesItsInputsApart) {
  const DeltaNetShape joined{.key_heads = 2,
                             .value_heads = 2,
                             .key_dim = 3,
                             .value_dim = 4,
                             .kernel = 3,
                             .decay_by_channel = true,
                             .sigmoid_gate = true,
                             .least_decay = -2.0F};
  DeltaNetShape apart = joined;
  apart.apart = true;
  const std::int64_t channels = joined.channels();
  const auto numbers = [](std::int64_t count, float step) {
    std::vector<float> made(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = std::sin(step * static_cast<float>(i + 1));
    return made;
  };
  // Columns [begin, begin + width) of rows of all channels.
  const auto columns = [&](const std::vector<float>& rows, std::int64_t begin, std::int64_t width) {
    std::vector<float> part;
    for (auto row = rows.begin(); row != rows.end(); row += channels) {
      part.insert(part.end(), row + begin, row + begin + width);
    }
    return part;
  };
  const std::vector<float> taps = numbers(joined.kernel * channels, 0.7F);
  const std::vector<float> rate{0.5F, 1.5F};
  const std::vector<float> bias = numbers(joined.decays(), 0.3F);
  const std::vector<float> weight(4, 1.25F);
  const auto q_taps = columns(taps, 0, 6);
  const auto k_taps = columns(taps, 6, 6);
  const auto v_taps = columns(taps, 12, 8);
  std::vector<std::vector<float>> outs;
  for (const DeltaNetShape& shape : {joined, apart}) {
    Recurrence recurrence(static_cast<std::size_t>(shape.state_floats()), 2);
    std::vector<float>& out = outs.emplace_back();
    for (const std::uint32_t call : {0U, 1U}) {
      const std::int64_t tokens = 2;
      const RecurrentSpan span{.begin = 0, .count = tokens, .before = call, .after = call + 1};
      std::vector<float> mixed = numbers(tokens * channels, 0.9F + static_cast<float>(call));
      if (shape.apart) {
        std::vector<float> parts;
        for (const auto& [begin, width] : {std::pair{0, 6}, {6, 6}, {12, 8}}) {
          const auto part = columns(mixed, begin, width);
          parts.insert(parts.end(), part.begin(), part.end());
        }
        mixed = parts;
      }
      std::vector<float> work(mixed.size());
      std::vector<float> z = numbers(tokens * shape.value_width(), 0.2F);
      std::vector<float> b = numbers(tokens * shape.value_heads, 0.4F);
      std::vector<float> a = numbers(tokens * shape.decays(), 0.6F);
      DeltaRuleArgs args{.shape = shape, .tokens = tokens};
      args.taps = shape.apart ? q_taps.data() : taps.data();
      args.k_taps = k_taps.data();
      args.v_taps = v_taps.data();
      args.rate = rate.data();
      args.dt_bias = bias.data();
      args.norm = {.weight = weight.data(), .size = shape.value_dim};
      args.states = recurrence.blocks();
      args.spans = &span;
      args.span_count = 1;
      args.mixed = mixed.data();
      args.work = work.data();
      args.z = z.data();
      args.b = b.data();
      args.a = a.data();
      std::vector<std::byte> workspace(ref_ops().workspace(args, 2));
      ref_ops().delta_rule({.stream = stream_, .workspace = workspace}, args);
      out.insert(out.end(), mixed.begin(), mixed.begin() + tokens * shape.value_width());
    }
    const auto state = recurrence.block(2);
    out.insert(out.end(), state.begin(), state.end());
  }
  EXPECT_EQ(outs[0], outs[1]);
  EXPECT_TRUE(std::any_of(outs[0].begin(), outs[0].end(), [](float x) { return x != 0.0F; }));
}

}  // namespace
}  // namespace moracle
