// Whole models against transformers: prefill logits and greedy decoding.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "support/model_fixture.h"

namespace moracle::test {
namespace {

struct Case {
  const char* folder;
  const char* backend;  // "": the oracle's choice
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
  const bool reference_kernel = *GetParam().backend != '\0';
  // f32 noise of a correct engine is 3e-7; weights rounded to bf16 cost 1.2e-3, bf16 activations 1.7e-3.
  const double tolerance = reference_kernel ? 1e-5 : 5e-3;
  const float sure = reference_kernel ? 1e-3F : 0.05F;
  const Loaded loaded = load(*folder, reference_kernel ? pinned(GetParam().backend) : Policy{});
  ASSERT_NE(loaded.model, nullptr);
  const auto width = static_cast<std::size_t>(loaded.model->info().vocabulary);
  std::vector<double> errors;
  const auto prompts = references(*folder);
  ASSERT_FALSE(prompts.empty());
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    SCOPED_TRACE("prompt " + std::to_string(p));
    const Reference& want = prompts[p];
    const auto state = new_state(*loaded.model);
    std::vector<float> logits = run(*loaded.model, *state, want.ids);
    ASSERT_EQ(logits.size(), want.logits.size());
    for (const double error : relative_errors(logits, want.logits, width)) errors.push_back(error);
    logits.erase(logits.begin(), logits.end() - static_cast<std::ptrdiff_t>(width));
    for (std::size_t step = 0; step < want.greedy.size(); ++step) {
      const float margin = want.margin.empty() ? gap(logits) : want.margin[step];
      if (margin < sure) break;  // from here on the two may rightly part
      ASSERT_EQ(best(logits), want.greedy[step]) << "step " << step << ", margin " << margin;
      logits = run(*loaded.model, *state, {want.greedy[step]}, LogitRows::last_of_each);
      ASSERT_EQ(logits.size(), width);
    }
  }
  RecordProperty("median_relative_error", std::to_string(median(errors)));
  std::cout << "median relative error " << median(errors) << ", largest "
            << *std::max_element(errors.begin(), errors.end()) << '\n';
  EXPECT_LE(median(errors), tolerance);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, ReferenceTest,
                         testing::Values(Case{"qwen3moe-gptq-w4g128-sym", "ref"}, Case{"qwen3moe-gptq-w4g128-sym", ""},
                                         Case{"qwen3moe-gptq-w4g32-actorder", "ref"},
                                         Case{"qwen3moe-gptq-w4g32-actorder", ""}, Case{"mixtral-awq-w4g32", "ref"},
                                         Case{"mixtral-awq-w4g32", ""}, Case{"qwen3moe-gptq-w4g128-asym-v2", "ref"},
                                         Case{"qwen3moe-gptq-w4g128-asym-v2", ""},
                                         Case{"qwen3moe-ct-w4a16-g128-asym", "ref"},
                                         Case{"qwen3moe-ct-w4a16-g128-asym", ""}),
                         name_of);

}  // namespace
}  // namespace moracle::test
