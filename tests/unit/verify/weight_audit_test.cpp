#include "verify/weight_audit.h"

#include <gtest/gtest.h>

#include <cmath>

#include "synth/synthetic_experts.h"

namespace moracle {
namespace {

// One panel given by the test.
class FixedMatrix final : public MatrixSource {
 public:
  FixedMatrix(MatrixSpec spec, MatrixPanel panel) : MatrixSource(std::move(spec)), panel_(std::move(panel)) {}
  Result<> read(std::int64_t, std::int64_t, MatrixPanel& out) const override {
    out = panel_;
    return Ok{};
  }

 private:
  MatrixPanel panel_;
};

// int4, 2 rows of 4 columns, groups of 2.
FixedMatrix int4_matrix(std::vector<std::uint8_t> codes, std::vector<float> scales,
                        std::vector<std::int32_t> g_idx = {}) {
  MatrixSpec spec{.name = "m",
                  .rows = 2,
                  .cols = 4,
                  .key = {.element = Element::int4, .scale = ScaleType::f16, .granularity = Granularity::group(2)},
                  .group_cols = 2,
                  .groups = 2};
  spec.g_idx = std::move(g_idx);
  MatrixPanel panel;
  panel.rows = 2;
  panel.codes = std::move(codes);
  panel.scales = std::move(scales);
  return {std::move(spec), std::move(panel)};
}

std::string text_of(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) text += finding.finding + "\n";
  return text;
}

TEST(Health, OrdinaryWeightsHaveNoFindings) {
  EXPECT_EQ(text_of(examine(int4_matrix({9, 3, 8, 12, 4, 7, 1, 15}, {.1F, .2F, .1F, .1F}), true)), "");
}

TEST(Health, EverySyntheticSchemeIsHealthy) {
  const LayerShape shape{.name = "t", .experts = 2, .hidden = 256, .intermediate = 128, .top_k = 1};
  for (const std::string& name : scheme_names()) {
    const auto scheme = find_scheme(name);
    const auto experts = synthetic_experts(shape, *scheme, 3, {0, 1});
    ASSERT_TRUE(experts.ok()) << name;
    for (const auto& expert : experts->experts) EXPECT_EQ(text_of(examine(*expert.down.weight, true)), "") << name;
  }
}

TEST(Health, CountsZeroScalesThatWipeOutCodes) {
  const auto findings = examine(int4_matrix({9, 3, 8, 12, 8, 8, 1, 15}, {0, .2F, 0, .1F}), true);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_NE(findings[0].finding.find("2 scales are zero and wipe out 2 non-zero codes"), std::string::npos);
  EXPECT_EQ(findings[0].severity, Finding::Severity::error);
  // Under a scale of zero, codes that are zero anyway lose nothing.
  EXPECT_EQ(text_of(examine(int4_matrix({8, 8, 9, 12, 4, 7, 1, 14}, {0, .2F, .1F, .1F}), true)), "");
}

TEST(Health, ActOrderLooksUpTheGroupOfEachColumn) {
  // Group 0 owns columns 0 and 2.
  const auto matrix = int4_matrix({9, 8, 9, 8, 8, 8, 8, 8}, {0, .2F, .1F, .1F}, {0, 1, 0, 1});
  const auto audit = audit_matrix(matrix);
  ASSERT_TRUE(audit.ok());
  EXPECT_EQ(audit->lost, 2);
  EXPECT_EQ(audit->zero, 8);
}

TEST(Health, SeesDeadExpertsSaturationAndNaN) {
  EXPECT_NE(text_of(examine(int4_matrix(std::vector<std::uint8_t>(8, 8), {.1F, .2F, .1F, .1F}), true)).find("dead"),
            std::string::npos);
  EXPECT_NE(text_of(examine(int4_matrix({0, 15, 0, 15, 15, 8, 3, 0}, {.1F, .2F, .1F, .1F}), true)).find("saturated"),
            std::string::npos);
  EXPECT_NE(text_of(examine(int4_matrix({9, 3, 7, 12, 4, 7, 1, 14}, {.1F, NAN, .1F, .1F}), true)).find("NaN"),
            std::string::npos);
}

}  // namespace
}  // namespace moracle
