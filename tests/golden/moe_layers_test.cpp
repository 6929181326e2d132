// Whole layers of the golden files: stored as a publisher stores them, opened through its format, and run by every
// kernel that claims the scheme.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <numeric>

#include "kernels/kernel.h"
#include "machine/machine.h"
#include "moe/layer_runner.h"
#include "oracle/decide.h"
#include "scheme/activation_codes.h"
#include "support/device_calls.h"
#include "support/golden_experts.h"
#include "support/safetensors_reader.h"
#include "support/test_device.h"

namespace moracle::test {
namespace {

struct Routed {
  std::vector<float> x;           // [33, 256], bf16 values
  std::vector<std::int32_t> ids;  // [33, 2]
  std::vector<float> weights;

  static Routed read() {
    const GoldenFile common("moe_common");
    return {common.bf16("x_bf16"), common.values<std::int32_t>("topk_ids"), common.values<float>("topk_weights")};
  }
};

// Relative error of each row of `width`.
struct RowErrors {
  std::vector<double> rows;
  double largest = 0.0;  // over all elements, absolute

  RowErrors(const std::vector<float>& found, const std::vector<float>& wanted, std::size_t width) {
    for (std::size_t at = 0; at < found.size(); at += width) {
      double difference = 0.0;
      double norm = 0.0;
      for (std::size_t i = at; i < at + width; ++i) {
        const double d = static_cast<double>(found[i]) - static_cast<double>(wanted[i]);
        largest = std::max(largest, std::isfinite(d) ? std::fabs(d) : HUGE_VAL);
        difference += d * d;
        norm += std::pow(static_cast<double>(wanted[i]), 2);
      }
      rows.push_back(std::sqrt(difference / norm));
    }
    std::sort(rows.begin(), rows.end());
  }
  [[nodiscard]] double max() const { return rows.back(); }
  [[nodiscard]] double second() const { return rows.size() < 2 ? 0.0 : rows[rows.size() - 2]; }
  [[nodiscard]] double mean() const {
    return std::accumulate(rows.begin(), rows.end(), 0.0) / static_cast<double>(rows.size());
  }
};

// Of 16-bit activations. bf16 is off by at most 2^-8 of each hidden value; integers by a step of a group's largest
// value, spread evenly: four times what the input's and the hidden values' come to on average.
double rounding_bound(const KernelCard& card) {
  // Inputs, hidden values, three matrices of weights, of which two meet in the gate, and outputs.
  if (card.rounds_weights) return 4 * std::sqrt(7.0) * relative_rounding(InputRounding::bf16);
  if (card.inputs == InputRounding::bf16) return 1.0 / 256.0;
  return std::max(1e-5, 4 * std::numbers::sqrt2 * relative_rounding(card.inputs));
}

// What a row may be off by. f32 sums of 256 products in another order: 1e-5. A kernel with bf16 activations rounds the
// hidden values, which have 8 significant bits then: 2^-8. Quantized activations are exact in f32 and bf16, so that a
// row is as good as f32; but the last bit of a sum may move a hidden value over a tie, and one code of the 128 then
// changes by one step: 1/127 of the row's largest value (int8), 2^-4, 2^-4, 2^-3, 2^-2 of the value itself (E4M3, E2M3,
// E3M2, E2M1). One row of a file may meet such a tie.
struct RowBound {
  double typical = 1e-5;
  double worst = 1e-5;
};
RowBound layer_bound(const KernelCard& card, const Scheme& scheme) {
  if (!scheme.activation) {
    const double bound = rounding_bound(card);
    return {bound, bound};
  }
  if (card.rounds_weights) {
    // Hidden values are off by two roundings, r, and where codes are s apart r / s of them move by s over a tie.
    const Element element = scheme.activation->element;
    const double step = element == Element::int8   ? 8.0 / 127.0  // of a value of an eighth of the largest
                        : element == Element::e2m1 ? 1.0 / 2.0
                        : element == Element::e3m2 ? 1.0 / 4.0
                                                   : 1.0 / 8.0;
    const double moved = 2 * std::sqrt(std::numbers::sqrt2 * relative_rounding(InputRounding::bf16) * step);
    return {rounding_bound(card) + moved, rounding_bound(card) + moved};
  }
  switch (scheme.activation->element) {
    case Element::int8:
      return {1e-5, 1.0 / 127.0};
    case Element::e3m2:
      return {1e-5, 1.0 / 8.0};
    case Element::e2m1:
      return {1e-5, 1.0 / 4.0};
    default:
      return {1e-5, 1.0 / 16.0};
  }
}

// Cards of the scheme's table that this CPU runs and that the oracle gives the layer to when asked for by name.
std::vector<const KernelCard*> claiming(const CanonicalExperts& experts, const ActivationSpec& activation) {
  const auto table = table_for(experts.scheme);
  EXPECT_TRUE(table.ok()) << to_string(experts.scheme);
  std::vector<const KernelCard*> cards;
  if (!table.ok()) return cards;
  const Problem problem{.kind = ProblemKind::experts,
                        .scheme = experts.scheme,
                        .experts = kGoldenExperts,
                        .top_k = kGoldenTopK,
                        .hidden = kGoldenHidden,
                        .intermediate = kGoldenIntermediate,
                        .activation = activation,
                        .bias = experts.bias,
                        .zero_points = experts.zero_points,
                        .act_order = experts.act_order};
  for (const TableRow& row : (*table)->rows) {
    if (row.card->kind != CardKind::native) continue;
    if (!runs_here(*row.card)) continue;
    // A card may be for one kind of activations alone, for one width of codes, or for some widths of groups.
    if (std::none_of(row.card->schemes.begin(), row.card->schemes.end(), [&](const SchemeRule& rule) {
          return rule.activation == experts.scheme.activation.has_value() &&
                 rule.element == experts.scheme.weight.element;
        }))
      continue;
    const Granularity& granularity = experts.scheme.weight.granularity;
    const auto widths = row.card->group_sizes;
    if (!widths.empty() && granularity.kind == Granularity::Kind::group &&
        std::find(widths.begin(), widths.end(), granularity.cols) == widths.end())
      continue;
    const Decision decision =
        decide(problem, machine_for(*row.card),
               {.numerics = row.card->numerics, .pinned = std::string(row.card->backend)}, table_of(experts.scheme));
    // Records hold some forms of a scheme, as their cards say.
    if (row.card->backend == "sm90-stream" && decision.winner != row.card) continue;
    EXPECT_EQ(decision.winner, row.card) << row.card->id << " " << to_string(experts.scheme);
    if (decision.winner == row.card) cards.push_back(row.card);
  }
  EXPECT_FALSE(cards.empty());
  return cards;
}

// The first `tokens` rows of the layer's output.
std::vector<float> run_layer(const KernelCard& card, const CanonicalExperts& experts, const ActivationSpec& activation,
                             const Routed& routed, std::int64_t tokens) {
  ThreadPool pool(2);
  auto runner = LayerRunner::pack(card, experts, {.pool = pool, .activation = activation, .device = device_for(card)});
  if (!runner.ok()) {
    ADD_FAILURE() << runner.error().message();
    return {};
  }
  EXPECT_TRUE(runner->reserve(tokens, kGoldenTopK).ok());
  std::vector<float> out(static_cast<std::size_t>(tokens * kGoldenHidden), std::nanf(""));
  runner->run({.tokens = tokens,
               .top_k = kGoldenTopK,
               .x = routed.x.data(),
               .ids = routed.ids.data(),
               .weights = routed.weights.data()},
              out.data());
  EXPECT_TRUE(runner->status().ok());
  return out;
}

struct LayerForm {
  const char* name;
  bool interleaved;
  ActivationSpec activation;
};
const LayerForm kForms[] = {{"silu", false, {}}, {"swigluoai", true, {.fn = ActivationFn::swigluoai, .limit = 7.0F}}};

class MoeGolden : public ::testing::TestWithParam<GoldenLayer> {};

TEST_P(MoeGolden, OutputsOfEveryKernel) {
  const GoldenFile file(GetParam().file);
  const Routed routed = Routed::read();
  for (const LayerForm& form : kForms) {
    const auto experts = open_golden(GetParam(), form.interleaved);
    ASSERT_TRUE(experts.has_value());
    ASSERT_EQ(to_string(experts->scheme), GetParam().scheme);
    const auto wanted = file.values<float>(std::string(form.name) + ".out_f32");
    for (const KernelCard* card : claiming(*experts, form.activation))
      for (const std::int64_t tokens : {std::int64_t{1}, std::int64_t{7}, kGoldenTokens}) {
        const auto found = run_layer(*card, *experts, form.activation, routed, tokens);
        ASSERT_FALSE(found.empty());
        const RowErrors errors(found, {wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(found.size())},
                               kGoldenHidden);
        const RowBound bound = layer_bound(*card, experts->scheme);
        EXPECT_LE(errors.max(), bound.worst) << card->id << " " << form.name << ", " << tokens << " tokens";
        if (tokens != kGoldenTokens) continue;
        EXPECT_LE(errors.second(), bound.typical) << card->id << " " << form.name;
        std::printf("%-28s %-10s %-10s rows: max %.1e (bound %.1e), second %.1e (%.1e), mean %.1e; element: max %.1e\n",
                    GetParam().file, form.name, std::string(card->backend).c_str(), errors.max(), bound.worst,
                    errors.second(), bound.typical, errors.mean(), errors.largest);
      }
  }
}

// The first multiplication by itself, as linears of the same kernels: its inputs are bf16 numbers, so that only kernels
// that make them integers round anything but sums.
TEST_P(MoeGolden, FirstMultiplicationOfEveryKernel) {
  constexpr std::int64_t kTokens = 7;
  const GoldenFile file(GetParam().file);
  if (file.find("silu.gemm1_f32_first7") == nullptr) GTEST_SKIP() << "the file has no intermediate results";
  const Routed routed = Routed::read();
  const auto experts = open_golden(GetParam(), false);
  ASSERT_TRUE(experts.has_value());
  const auto wanted = file.values<float>("silu.gemm1_f32_first7");  // [7, 2, 256]
  const std::vector<float> x(routed.x.begin(), routed.x.begin() + kTokens * kGoldenHidden);
  ThreadPool pool(1);
  for (const KernelCard* card : claiming(*experts, {})) {
    if (!card->serves_linear) continue;
    std::vector<float> found(wanted.size());
    for (std::size_t e = 0; e < experts->experts.size(); ++e)
      for (const int half : {0, 1}) {
        const CanonicalLinear& linear = half == 0 ? experts->experts[e].gate : experts->experts[e].up;
        const auto y = run_linear(*card, linear, x, pool);
        ASSERT_FALSE(y.empty());
        for (std::size_t slot = 0; slot < kTokens * kGoldenTopK; ++slot)
          if (routed.ids[slot] == static_cast<std::int32_t>(e))
            std::copy_n(y.begin() + static_cast<std::ptrdiff_t>(slot / kGoldenTopK * kGoldenIntermediate),
                        kGoldenIntermediate,
                        found.begin() + static_cast<std::ptrdiff_t>(slot * 2 * kGoldenIntermediate) +
                            half * kGoldenIntermediate);
      }
    const RowErrors errors(found, wanted, 2 * kGoldenIntermediate);
    const bool exact = experts->scheme.activation || card->inputs == InputRounding::bf16;
    EXPECT_LE(errors.max(), exact ? 1e-5 : rounding_bound(*card)) << card->id;
  }
}

// The quantizers of the scheme, value by value.
TEST_P(MoeGolden, ActivationsExactly) {
  const GoldenFile file(GetParam().file);
  const Routed routed = Routed::read();
  const auto experts = open_golden(GetParam(), false);
  ASSERT_TRUE(experts.has_value());
  if (!experts->scheme.activation) GTEST_SKIP() << "activations are not quantized";
  const QuantKey& key = *experts->scheme.activation;
  ASSERT_TRUE(can_quantize_activation(key));
  if (file.find("x_qdq_f32_first7") == nullptr) GTEST_SKIP() << "the file has no intermediate results";
  // Every expert has one and the same input scale in these files.
  const auto check = [&](std::vector<float> rows, std::size_t width, const CanonicalLinear& linear, const char* name) {
    for (std::size_t at = 0; at < rows.size(); at += width)
      quantize_dequantize_row(key, linear.input_scale, std::span(rows).subspan(at, width));
    EXPECT_EQ(rows, file.values<float>(name)) << name;  // of zeros the sign may differ: an integer has none
  };
  const auto& first = experts->experts[0];
  check({routed.x.begin(), routed.x.begin() + 7 * kGoldenHidden}, kGoldenHidden, first.gate, "x_qdq_f32_first7");
  check(file.values<float>("silu.act_f32_first7"), kGoldenIntermediate, first.down, "silu.act_qdq_f32_first7");
}

INSTANTIATE_TEST_SUITE_P(Files, MoeGolden, ::testing::ValuesIn(golden_layers()),
                         [](const auto& info) { return std::string(info.param.file).substr(4); });

}  // namespace
}  // namespace moracle::test
