// What the targets' tables promise for every scheme that their cards claim, on any CPU: nothing is run.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "kernels/cards.h"
#include "kernels/cpu/ops/activation_kernels.h"
#include "kernels/cpu/targets/targets.h"
#include "kernels/cpu/weights/format.h"
#include "kernels/kernel.h"
#include "support/random_experts.h"

namespace moracle {
namespace {

void expect_kernels(const cpu::Target& target, const KernelCard& card, const Scheme& scheme) {
  std::mt19937 rng(1);
  const CanonicalLinear linear =
      test::random_linear({.key = scheme.weight, .activation = scheme.activation, .rows = 32, .cols = 512}, rng);
  const auto format = cpu::packed_format(linear, target, card.numerics);
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
    const cpu::ActivationKernels& ops = *target.activations;
    EXPECT_TRUE(form.input != cpu::ActDtype::split_i16 || ops.encode_split != nullptr) << card.id;
    EXPECT_TRUE(form.input != cpu::ActDtype::bf16 || ops.to_bf16 != nullptr) << card.id;
  }
}

TEST(PackedFormats, EveryTargetServesWhatItsCardsClaim) {
  std::size_t cards = 0;
  for (const CpuCard& of_target : kCpuCards) {
    const KernelCard* const card = &of_target.card;
    const cpu::Target* const target = cpu::find_target(card->backend);
    EXPECT_EQ(target != nullptr, find_implementation(card->id) != nullptr) << card->id;
    if (target == nullptr) continue;  // of another architecture
    ++cards;
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
          expect_kernels(*target, *card, scheme);
        }
      }
    }
  }
  EXPECT_GT(cards, 0U);
}

}  // namespace
}  // namespace moracle
