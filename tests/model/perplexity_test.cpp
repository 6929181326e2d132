// Mean negative log-likelihood of the reference collection's text: windows of 512 tokens go beyond sliding windows and
// reach the clamps of activations, which the short prompts of the logits do not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "generate/session.h"
#include "support/model_fixture.h"
#include "verify/evaluate.h"

namespace moracle::test {
namespace {

// Largest relative difference: rounding of activations to bf16 moves the mean by about its own noise, and flipped codes
// of quantized activations by more.
struct Case {
  const char* folder;
  double reference;  // with the reference kernels
  double chosen;     // with those that the oracle chooses
};
constexpr double kWeightOnly = 1e-4;

std::string name_of(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.folder;
  std::replace_if(name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
}

class PerplexityTest : public testing::TestWithParam<Case> {};

TEST_P(PerplexityTest, MeanOf4096Tokens) {
  if (!shared_dir()) GTEST_SKIP() << GetParam().folder << " is only in the shared collection";
  const auto folder = *shared_dir() / "checkpoints" / GetParam().folder;
  const auto text = read_text(data_dir() / "checkpoints" / "heldout.txt");
  const auto published = read_json(folder / "ref.json");
  ASSERT_TRUE(text.ok() && published.ok());
  const Json& nll = published->at("nll");
  const bool weight_only = !nll.contains("act_quant_simulated_fp32");
  const double want = nll.at(weight_only ? "weight_only_dequant_fp32" : "act_quant_simulated_fp32").get<double>();
  for (const bool reference : {true, false}) {
    SessionOptions options;
    options.folder = folder;
    options.machine = probe_machine();
    options.threads = 2;
    if (reference) options.policy.pinned = "ref";
    auto session = Session::open(options);
    ASSERT_TRUE(session.ok()) << session.error().message();
    auto ids = (*session)->text().tokenizer().encode(*text);
    ASSERT_TRUE(ids.ok()) << ids.error().message();
    ids->resize(4096);
    const auto got = evaluate((*session)->model(), (*session)->pool(), *ids, {});
    ASSERT_TRUE(got.ok()) << got.error().message();
    EXPECT_EQ(got->scored, nll.at("scored").get<std::int64_t>());
    const double difference = got->mean_nll / want - 1.0;
    std::cout << (reference ? "ref " : "chosen ") << got->mean_nll << ", " << 100.0 * difference << " %\n";
    EXPECT_LE(std::abs(difference), reference ? GetParam().reference : GetParam().chosen);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Checkpoints, PerplexityTest,
    testing::Values(Case{"glm4moe-ct-w4a16-g128", kWeightOnly, 2e-3},
                    Case{"qwen35moe-ct-w4a16-g128", kWeightOnly, 2e-3}, Case{"native-mxfp4-gpt_oss", kWeightOnly, 2e-3},
                    Case{"quark-mxfp4-a4-gpt_oss", 1e-3, 5e-3}, Case{"quark-int8-ptpc-step3p5", 1e-3, 2e-3},
                    Case{"dsv3-ct-fp8-block", 1e-3, 2e-3}, Case{"modelopt-w4a16nvfp4-qwen3_moe", kWeightOnly, 2e-3},
                    Case{"qwen3moe-ct-w8a8-int8", 1e-3, 2e-3}, Case{"qwen3moe-ct-nvfp4-w4a4", 1e-3, 5e-3},
                    Case{"quark-mxfp4-a8fp8-qwen3_moe", 1e-3, 2e-3}),
    name_of);

}  // namespace
}  // namespace moracle::test
