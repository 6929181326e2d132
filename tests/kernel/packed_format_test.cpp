// What the targets' tables promise for every scheme that their cards claim, on any CPU: nothing is run.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "kernels/cards.h"
#include "kernels/cpu/targets/targets.h"
#include "kernels/cpu/weights/format.h"
#include "kernels/kernel.h"
#include "support/random_experts.h"

namespace moracle {
namespace {

struct Served {
  const char* name;
  const cpu::Target* target;
};
constexpr Served kTargets[] = {{"amx", &cpu::kAmx},
                               {"avx512vnni", &cpu::kAvx512Vnni},
                               {"avx512bf16", &cpu::kAvx512Bf16},
                               {"avx512", &cpu::kAvx512},
                               {"avx2", &cpu::kAvx2}};

void expect_kernels(const Served& served, const KernelCard& card, const Scheme& scheme) {
  std::mt19937 rng(1);
  const CanonicalLinear linear =
      test::random_linear({.key = scheme.weight, .activation = scheme.activation, .rows = 32, .cols = 512}, rng);
  const auto format = cpu::packed_format(linear, *served.target, card.numerics);
  ASSERT_TRUE(format.ok()) << card.id << " " << to_string(scheme);
  EXPECT_EQ(format->kernel(1).min_tokens, 1) << card.id << " " << to_string(scheme);
  for (const std::int64_t tokens : {1, 2, 3, 4, 6, 10, 24, 64}) {
    const cpu::PanelFormat& form = format->of(tokens);
    EXPECT_LE(format->kernel(tokens).min_tokens, tokens);
    EXPECT_EQ(form.input, format->kernel(tokens).key.act) << card.id << " " << to_string(scheme);
    const cpu::GemmKernel& kernel = format->kernel(tokens);
    EXPECT_TRUE(kernel.offset == 0 || kernel.offset == form.offset) << card.id << " " << to_string(scheme);
    EXPECT_EQ(kernel.block_columns, form.block_columns) << card.id << " " << to_string(scheme);
    EXPECT_EQ(form.panel_bytes, format->layout().panel_bytes) << card.id << " " << to_string(scheme);
    EXPECT_EQ(form.groups, format->layout().groups) << card.id << " " << to_string(scheme);
    const cpu::ActivationKernels& ops = *served.target->activations;
    EXPECT_TRUE(form.input != cpu::ActDtype::split_i16 || ops.encode_split != nullptr) << card.id;
    EXPECT_TRUE(form.input != cpu::ActDtype::bf16 || ops.to_bf16 != nullptr) << card.id;
  }
}

TEST(PackedFormats, EveryTargetServesWhatItsCardsClaim) {
  for (const KernelCard* card : kCpuCards) {
    const auto* const served = std::find_if(std::begin(kTargets), std::end(kTargets),
                                            [&](const Served& t) { return card->backend == t.name; });
    ASSERT_NE(served, std::end(kTargets)) << card->id;
    for (const SchemeRule& rule : card->schemes) {
      for (const bool symmetric : {true, false}) {
        if (!symmetric && !rule.allow_asymmetric) continue;
        std::vector<std::int32_t> widths = {rule.cols > 0 ? rule.cols : 128};
        if (rule.granularity == Granularity::Kind::group && rule.cols == 0)
          widths.assign(card->group_sizes.begin(), card->group_sizes.end());
        for (const std::int32_t cols : widths) {
          Scheme scheme{.weight = {.element = rule.element,
                                   .scale = rule.scale,
                                   .granularity = {.kind = rule.granularity},
                                   .symmetric = symmetric,
                                   .second_level = rule.second_level}};
          if (rule.granularity == Granularity::Kind::group) scheme.weight.granularity = Granularity::group(cols);
          if (rule.granularity == Granularity::Kind::block) scheme.weight.granularity = Granularity::block(cols, cols);
          if (rule.activation) scheme.activation = rule.activation_key;
          expect_kernels(*served, *card, scheme);
        }
      }
    }
  }
}

}  // namespace
}  // namespace moracle
