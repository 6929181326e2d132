#include "verify/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/successor_model.h"

namespace moracle {
namespace {

using test::SuccessorModel;

// Windows of 4 over 10 tokens: 4 + 4 + 2, of which 3 + 3 + 1 are scored. Following tokens cost -log softmax of logit 2
// among nine zeros, others that of a zero.
TEST(Evaluate, ScoresIndependentWindows) {
  SuccessorModel model(100);
  ThreadPool pool(2);
  const std::vector<std::int32_t> ids = {0, 1, 2, 3, 9, 0, 5, 6, 1, 1};
  const auto result = evaluate(model, pool, ids, {.window = 4});
  ASSERT_TRUE(result.ok()) << result.error().message();
  EXPECT_EQ(result->tokens, 10);
  EXPECT_EQ(result->scored, 7);
  const double total = std::log(std::exp(2.0) + 9);
  EXPECT_NEAR(result->mean_nll, (5 * (total - 2) + 2 * total) / 7, 1e-12);
  EXPECT_NEAR(result->perplexity, std::exp(result->mean_nll), 1e-12);
}

TEST(Evaluate, RefusesWindowsAndTextsWithoutAnythingToScore) {
  SuccessorModel model(100);
  ThreadPool pool(1);
  const std::vector<std::int32_t> ids = {0, 1, 2};
  EXPECT_EQ(evaluate(model, pool, ids, {.window = 1}).error().code, "eval.window");
  EXPECT_EQ(evaluate(model, pool, ids, {.window = 101}).error().code, "eval.window");
  EXPECT_EQ(evaluate(model, pool, std::span(ids).first(1), {.window = 8}).error().code, "eval.short");
  model.poison = true;
  EXPECT_EQ(evaluate(model, pool, ids, {.window = 8}).error().code, "numeric.nan");
}

}  // namespace
}  // namespace moracle
