// Steps over a small model: how much of a prompt each takes.
#include "generate/batch/step_planner.h"

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "support/model_fixture.h"
#include "support/tiny_model.h"

namespace moracle {
namespace {

class Silent final : public RequestSink {
 public:
  void on_token(RequestId /*id*/, const ScoredToken& /*token*/) override {}
  void on_end(RequestId /*id*/, const RequestOutcome& /*outcome*/) override {}
};

class StepPlannerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const test::TemporaryFolder folder;
    test::TinyBuilder(test::tiny_qwen3_moe(), {}).build().write(folder.path());
    loaded_ = test::load(folder.path(), {});
    ASSERT_NE(loaded_.model, nullptr);
  }

  test::Loaded loaded_;
  Silent sink_;
};

// A second's worth of a prompt at 100 tokens a second; while somebody waits for their next token, a tenth of that.
TEST_F(StepPlannerTest, APromptTakesLongerStepsWhereNobodyDecodes) {
  const SchedulerOptions options{.step_ms = 100, .min_prefill = 1, .max_prefill = 512};
  const PrefixReuse prefixes(*loaded_.model, options);
  const StepPlanner planner(options, prefixes);
  ScheduledSequence prompt(1, {.prompt = std::vector<std::int32_t>(120, 1)}, sink_);
  ScheduledSequence decoding(2, {.prompt = {2}}, sink_);
  for (ScheduledSequence* const each : {&prompt, &decoding}) {
    each->most = 4;
    each->state = test::new_state(*loaded_.model);
  }
  test::run(*loaded_.model, *decoding.state, decoding.ids);
  decoding.ids.push_back(3);
  ASSERT_TRUE(decoding.decodes());
  std::vector<StepPart> parts;
  const std::vector<ScheduledSequence*> both{&prompt, &decoding};
  planner.plan(both, 100, parts);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_TRUE(parts[0].decodes);
  EXPECT_EQ(parts[1].count, 10);
  planner.plan(std::span(both).first(1), 100, parts);
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].count, 100);
}

TEST_F(StepPlannerTest, AShortRestOfAPromptGoesAlong) {
  const SchedulerOptions options{.min_prefill = 8, .max_prefill = 40};
  const PrefixReuse prefixes(*loaded_.model, options);
  const StepPlanner planner(options, prefixes);
  for (const auto& [tokens, taken] : {std::pair{40, 40}, {47, 47}, {48, 40}}) {
    ScheduledSequence prompt(1, {.prompt = std::vector<std::int32_t>(static_cast<std::size_t>(tokens), 1)}, sink_);
    prompt.most = 4;
    prompt.state = test::new_state(*loaded_.model);
    std::vector<StepPart> parts;
    planner.plan(std::vector<ScheduledSequence*>{&prompt}, 0, parts);
    ASSERT_EQ(parts.size(), 1U);
    EXPECT_EQ(parts[0].count, taken);
  }
}

}  // namespace
}  // namespace moracle
