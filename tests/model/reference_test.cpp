// Whole models against transformers: prefill logits and greedy decoding.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "support/model_fixture.h"

namespace moracle::test {
namespace {

// f32 noise of a correct engine is 3e-7; weights rounded to bf16 cost 1.2e-3, bf16 activations 1.7e-3. Where
// activations are quantized, f32 noise flips single codes at ties, and a flip spreads to that token and all later ones:
// the best token shows that the definition is the same, the medians only bound gross faults.
struct Bounds {
  double median;  // over all tokens
  double best;    // token
  double worst;   // median of a prompt
  float sure;     // margin from which on greedy tokens must be the same
};
constexpr Bounds kExact{.median = 1e-5, .best = 1e-5, .worst = 1e-5, .sure = 1e-3F};
constexpr Bounds kRounded{.median = 5e-3, .best = 5e-3, .worst = 1e-2, .sure = 0.05F};
constexpr Bounds kExactCodes{.median = 3e-2, .best = 1e-3, .worst = 3e-2, .sure = 0.2F};
constexpr Bounds kRoundedInt8{.median = 3e-2, .best = 3e-2, .worst = 3e-2, .sure = 0.5F};
constexpr Bounds kRoundedFp8{.median = 5e-2, .best = 5e-2, .worst = 5e-2, .sure = 0.5F};
constexpr Bounds kRoundedFp4{.median = 0.15, .best = 0.15, .worst = 0.3, .sure = 1.0F};

struct Case {
  const char* folder;
  const char* backend;  // "": the oracle's choice
  Bounds bounds;
};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  std::string name = std::string(info.param.folder) + (*info.param.backend != '\0' ? "_ref" : "_chosen");
  std::replace_if(name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
}

// The folder among the test data, else in the shared collection.
std::optional<std::filesystem::path> find_folder(const std::string& name) {
  const auto own = data_dir() / "checkpoints" / name;
  if (std::filesystem::exists(own / "config.json")) return own;
  if (!shared_dir()) return std::nullopt;
  const auto shared = *shared_dir() / "checkpoints" / name;
  if (std::filesystem::exists(shared / "config.json")) return shared;
  return std::nullopt;
}

std::int32_t best(const std::vector<float>& logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

float gap(std::vector<float> logits) {
  std::nth_element(logits.begin(), logits.begin() + 1, logits.end(), std::greater<>());
  return logits[0] - logits[1];
}

class ReferenceTest : public testing::TestWithParam<Case> {};

TEST_P(ReferenceTest, LogitsAndGreedyTokens) {
  const auto folder = find_folder(GetParam().folder);
  if (!folder) GTEST_SKIP() << GetParam().folder << " is only in the shared collection";
  const Bounds& bounds = GetParam().bounds;
  const bool chosen = *GetParam().backend == '\0';
  const Loaded loaded = load(*folder, chosen ? Policy{} : pinned(GetParam().backend));
  ASSERT_NE(loaded.model, nullptr);
  const auto width = static_cast<std::size_t>(loaded.model->info().vocab_size);
  std::vector<double> errors;
  const auto prompts = references(*folder);
  ASSERT_FALSE(prompts.empty());
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    SCOPED_TRACE("prompt " + std::to_string(p));
    const Reference& want = prompts[p];
    const auto state = new_state(*loaded.model);
    std::vector<float> logits = run(*loaded.model, *state, want.ids);
    ASSERT_EQ(logits.size(), want.logits.size());
    const std::vector<double> own = relative_errors(logits, want.logits, width);
    EXPECT_LE(median(own), bounds.worst);
    errors.insert(errors.end(), own.begin(), own.end());
    logits.erase(logits.begin(), logits.end() - static_cast<std::ptrdiff_t>(width));
    for (std::size_t step = 0; step < want.greedy.size(); ++step) {
      const float margin = want.margin.empty() ? gap(logits) : want.margin[step];
      if (margin < bounds.sure) break;  // from here on the two may rightly part
      ASSERT_EQ(best(logits), want.greedy[step]) << "step " << step << ", margin " << margin;
      logits = run(*loaded.model, *state, {want.greedy[step]}, LogitRows::last_of_each);
      ASSERT_EQ(logits.size(), width);
    }
  }
  RecordProperty("median_relative_error", std::to_string(median(errors)));
  const auto [best_error, worst_error] = std::minmax_element(errors.begin(), errors.end());
  std::cout << "median relative error " << median(errors) << ", from " << *best_error << " to " << *worst_error << '\n';
  EXPECT_LE(median(errors), bounds.median);
  EXPECT_LE(*best_error, bounds.best);
}

// Each with the reference kernels and with those that the oracle chooses.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* folder : {"qwen3moe-gptq-w4g128-sym", "qwen3moe-gptq-w4g32-actorder", "mixtral-awq-w4g32",
                             "qwen3moe-gptq-w4g128-asym-v2", "qwen3moe-ct-w4a16-g128-asym", "qwen35moe-ct-w4a16-g128",
                             "glm4moe-ct-w4a16-g128", "native-mxfp4-gpt_oss", "modelopt-w4a16nvfp4-qwen3_moe"}) {
    all.push_back({folder, "ref", kExact});
    all.push_back({folder, "", kRounded});
  }
  for (const char* folder : {"quark-mxfp4-a4-gpt_oss", "qwen3moe-ct-nvfp4-w4a4"}) {
    all.push_back({folder, "ref", kExactCodes});
    all.push_back({folder, "", kRoundedFp4});
  }
  for (const char* folder : {"quark-int8-ptpc-step3p5", "qwen3moe-ct-w8a8-int8"}) {
    all.push_back({folder, "ref", kExactCodes});
    all.push_back({folder, "", kRoundedInt8});
  }
  for (const char* folder : {"dsv3-ct-fp8-block", "quark-mxfp4-a8fp8-qwen3_moe"}) {
    all.push_back({folder, "ref", kExactCodes});
    all.push_back({folder, "", kRoundedFp8});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, ReferenceTest, testing::ValuesIn(cases()), name_of);

}  // namespace
}  // namespace moracle::test
