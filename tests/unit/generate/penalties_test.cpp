#include "generate/penalties.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace moracle {
namespace {

using Ids = std::vector<std::int32_t>;

std::vector<float> penalized(const SamplingOptions& options, const Ids& prompt, const Ids& answer,
                             std::vector<float> logits) {
  Penalties penalties(options);
  penalties.add_prompt(prompt);
  for (const std::int32_t id : answer) penalties.add_answer(id);
  penalties.apply(logits);
  return logits;
}

TEST(Penalties, RepetitionCountsPromptAndAnswerOnce) {
  EXPECT_EQ(penalized({.repetition_penalty = 2.0}, {0, 1, 1}, {2, 2}, {4, -3, 5, 6}),
            (std::vector<float>{2, -6, 2.5F, 6}));
  EXPECT_EQ(penalized({.repetition_penalty = 0.5}, {0, 1}, {}, {4, -3, 5}), (std::vector<float>{8, -1.5F, 5}));
}

TEST(Penalties, PresenceAndFrequencyCountTheAnswer) {
  EXPECT_EQ(penalized({.presence_penalty = 1.5}, {0}, {1, 1, 2}, {4, 4, 4, 4}), (std::vector<float>{4, 2.5F, 2.5F, 4}));
  EXPECT_EQ(penalized({.frequency_penalty = 0.5}, {0}, {1, 1, 2}, {4, 4, 4, 4}), (std::vector<float>{4, 3, 3.5F, 4}));
  EXPECT_EQ(penalized({.repetition_penalty = 2.0, .presence_penalty = -1.0, .frequency_penalty = 0.25}, {3}, {1, 1},
                      {4, 4, 4, 4}),
            (std::vector<float>{4, 2.5F, 4, 2}))
      << "the repetition penalty comes first";
}

TEST(Penalties, NumbersStayWhatTheyWere) {
  const auto logits =
      penalized({.repetition_penalty = 1e-30}, {0, 1, 2, 3, 9, -1}, {}, {1e20F, -INFINITY, std::nanf(""), INFINITY});
  EXPECT_EQ(logits[0], std::numeric_limits<float>::max()) << "a finite logit stays finite";
  EXPECT_EQ(logits[1], -INFINITY);
  EXPECT_TRUE(std::isnan(logits[2]));
  EXPECT_EQ(logits[3], INFINITY);
}

}  // namespace
}  // namespace moracle
