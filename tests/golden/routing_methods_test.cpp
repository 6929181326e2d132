// Routing against the golden vectors: ids equal, weights within a few ulp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "checkpoint/safetensors_file.h"
#include "moe/routing.h"
#include "support/route_row.h"
#include "support/test_data.h"

namespace moracle {
namespace {

struct Case {
  const char* name;
  RoutingSpec spec;
  bool bias = false;
};

constexpr std::int64_t kExperts = 32;
constexpr std::int64_t kTopK = 4;

RoutingSpec spec_of(Routing method, float factor = 1.0F, std::int64_t groups = 1, std::int64_t top_groups = 1) {
  return {.method = method,
          .experts = kExperts,
          .top_k = kTopK,
          .renormalize = true,
          .factor = factor,
          .groups = groups,
          .top_groups = top_groups};
}

template <class T>
std::vector<T> read(const SafetensorsFile& file, const std::string& name) {
  const TensorView* tensor = file.find(name);
  if (tensor == nullptr) {
    ADD_FAILURE() << name << " is not there";
    return {};
  }
  std::vector<T> values(tensor->bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

// exp, log1p and a division round once each, and so does every addition of a sum of 32: 8 ulp covers the orders that
// two libraries may choose.
void expect_close(float got, float want) {
  EXPECT_NEAR(got, want, std::abs(want) * 8 * 6e-8F);
}

TEST(RoutingGolden, EveryMethod) {
  const auto opened = SafetensorsFile::open(test::reference_dir() / "golden" / "routing.safetensors");
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  const SafetensorsFile& file = *opened;
  const auto logits = read<float>(file, "logits");
  const auto bias = read<float>(file, "bias");
  const auto table = read<std::int32_t>(file, "hash.tid2eid");
  const auto tokens = read<std::int32_t>(file, "hash.input_ids");
  ASSERT_EQ(logits.size(), 16U * kExperts);
  const std::vector<Case> cases{
      {"softmax_topk", spec_of(Routing::softmax_topk)},
      {"softmax_topk_renorm", spec_of(Routing::softmax_topk_renorm)},
      {"topk_softmax_gptoss", spec_of(Routing::topk_softmax)},
      {"sigmoid_topk", spec_of(Routing::sigmoid)},
      {"sigmoid_topk_renorm", spec_of(Routing::sigmoid_renorm)},
      {"sigmoid_bias_renorm_scale2.5", spec_of(Routing::sigmoid_bias_renorm, 2.5F), true},
      {"grouped_noaux_tc_g8_top4_scale2.5", spec_of(Routing::grouped_sigmoid_bias, 2.5F, 8, 4), true},
      {"grouped_softmax_max_g8_top4", spec_of(Routing::grouped_softmax, 1.0F, 8, 4)},
      {"sqrtsoftplus_bias_renorm_scale1.5", spec_of(Routing::sqrtsoftplus_bias, 1.5F), true},
      {"hash_sqrtsoftplus_renorm_scale1.5", spec_of(Routing::hash, 1.5F)},
  };
  for (const Case& sample : cases) {
    SCOPED_TRACE(sample.name);
    const auto want_ids = read<std::int32_t>(file, std::string(sample.name) + ".ids");
    const auto want_weights = read<float>(file, std::string(sample.name) + ".weights");
    ASSERT_EQ(want_ids.size(), 16U * kTopK);
    for (std::size_t t = 0; t < 16; ++t) {
      std::vector<std::int32_t> ids(kTopK);
      std::vector<float> weights(kTopK);
      test::RoutingRow row{.logits = std::span(logits).subspan(t * kExperts, kExperts)};
      if (sample.bias) row.bias = bias;
      if (sample.spec.method == Routing::hash) {
        row.fixed = std::span(table).subspan(static_cast<std::size_t>(tokens[t]) * kTopK, kTopK);
      }
      ASSERT_TRUE(test::route(sample.spec, row, ids, weights));
      // The golden lists each row by ascending id.
      std::vector<std::size_t> order(kTopK);
      std::iota(order.begin(), order.end(), 0U);
      std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return ids[a] < ids[b]; });
      for (std::size_t i = 0; i < kTopK; ++i) {
        SCOPED_TRACE("token " + std::to_string(t) + ", slot " + std::to_string(i));
        EXPECT_EQ(ids[order[i]], want_ids[t * kTopK + i]);
        expect_close(weights[order[i]], want_weights[t * kTopK + i]);
      }
    }
  }
}

}  // namespace
}  // namespace moracle
