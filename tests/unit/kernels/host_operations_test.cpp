// Operations of the host alone, by numbers worked out by hand; whole models hold the others (families_test.cpp).
#include <gtest/gtest.h>

#include <cmath>
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

}  // namespace
}  // namespace moracle
