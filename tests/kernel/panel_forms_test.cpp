// What the tables of kernels promise for every weight and activation that cards let through, on any CPU: nothing is
// run.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "kernels/cards.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/kernel.h"
#include "support/random_experts.h"

namespace moracle {
namespace {

struct Isa {
  const char* name;
  const cpu::PanelOps* ops;
};
constexpr Isa kIsas[] = {{"amx", &cpu::kAmxOps},
                         {"amx-integers", &cpu::kAmxIntegerOps},
                         {"amx-fast", &cpu::kAmxFastOps},
                         {"avx512vnni", &cpu::kAvx512VnniOps},
                         {"avx512vnni-fast", &cpu::kAvx512VnniFastOps},
                         {"avx512bf16", &cpu::kAvx512Bf16Ops},
                         {"avx512", &cpu::kAvx512Ops},
                         {"avx2", &cpu::kAvx2Ops},
                         {"avx2-fast", &cpu::kAvx2FastOps}};

void expect_kernels(const char* isa, const cpu::PanelFormat& format, const std::string& scheme) {
  ASSERT_NE(format.kernels, nullptr) << isa << " " << scheme;
  if (format.kernels->run != nullptr && format.kernels->run_from == 1) return;  // for any number of tokens
  ASSERT_GE(format.kernels->tile_tokens, 1) << isa << " " << scheme;
  ASSERT_LE(format.kernels->tile_tokens, cpu::kMaxTile) << isa << " " << scheme;
  for (std::int64_t t = 0; t < format.kernels->tile_tokens; ++t) {
    EXPECT_NE(format.tiles->one[t], nullptr) << isa << " " << scheme << ", tile of " << t + 1;
  }
}

void expect_forms(const Isa& isa, const Scheme& scheme) {
  std::mt19937 rng(1);
  const CanonicalLinear linear =
      test::random_linear({.key = scheme.weight, .activation = scheme.activation, .rows = 32, .cols = 512}, rng);
  const auto forms = cpu::panel_forms(linear, *isa.ops);
  ASSERT_TRUE(forms.ok()) << isa.name << " " << to_string(scheme);
  expect_kernels(isa.name, forms->many, to_string(scheme));
  if (forms->few_below > 0) expect_kernels(isa.name, forms->few, to_string(scheme));
  for (const cpu::InputForm input : {forms->many.input, forms->few_below > 0 ? forms->few.input : forms->many.input}) {
    EXPECT_TRUE(input != cpu::InputForm::i8 || isa.ops->encode8 != nullptr) << isa.name << " " << to_string(scheme);
    EXPECT_TRUE(input != cpu::InputForm::i16 || isa.ops->encode16 != nullptr) << isa.name << " " << to_string(scheme);
    EXPECT_TRUE(input != cpu::InputForm::i16_planes || isa.ops->encode_planes != nullptr)
        << isa.name << " " << to_string(scheme);
  }
}

TEST(PanelForms, EveryTableHasKernelsForWhatItsInputsAreMadeOf) {
  for (const Isa& isa : kIsas) {
    for (const Table* table : all_tables()) {
      for (const TableRow& row : table->rows) {
        if (row.card->kind != CardKind::own || row.card->device != DeviceKind::cpu) continue;
        for (const SchemeRule& rule : row.card->schemes) {
          for (const bool symmetric : {true, false}) {
            if (!symmetric && !rule.allow_asymmetric) continue;
            const bool blocks = rule.granularity == Granularity::Kind::block;
            const std::int32_t cols = rule.cols > 0 ? rule.cols : blocks ? 128 : 32;
            Scheme scheme{.weight = {.element = rule.element,
                                     .scale = rule.scale,
                                     .granularity = {.kind = rule.granularity},
                                     .symmetric = symmetric,
                                     .second_level = rule.second_level}};
            if (rule.granularity == Granularity::Kind::group) scheme.weight.granularity = Granularity::group(cols);
            if (blocks) scheme.weight.granularity = Granularity::block(cols, cols);
            if (rule.activation) scheme.activation = rule.activation_key;
            expect_forms(isa, scheme);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace moracle
