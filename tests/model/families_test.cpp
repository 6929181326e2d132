// Every family in every spelling that no sample of the reference collection has: random models of a few layers, whose
// logits transformers gave (tests/tools/family_*.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "support/model_fixture.h"

namespace moracle::test {
namespace {

std::vector<std::string> folders() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(data_dir() / "families")) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string name_of(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
}

class FamiliesTest : public testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] static std::filesystem::path folder() { return data_dir() / "families" / GetParam(); }
};

// Both compute in f32; a few hundred roundings of 6e-8 each.
TEST_P(FamiliesTest, ReferenceKernelsMatchTransformers) {
  const Loaded loaded = load(folder(), pinned("ref"));
  ASSERT_NE(loaded.model, nullptr);
  const auto width = static_cast<std::size_t>(loaded.model->info().vocab_size);
  const auto prompts = references(folder());
  ASSERT_FALSE(prompts.empty());
  for (const Reference& want : prompts) {
    const auto state = new_state(*loaded.model);
    std::vector<float> logits = run(*loaded.model, *state, want.ids);
    ASSERT_EQ(logits.size(), want.logits.size());
    const auto errors = relative_errors(logits, want.logits, width);
    EXPECT_LE(*std::max_element(errors.begin(), errors.end()), 1e-5) << want.ids.size() << " tokens";
    logits.erase(logits.begin(), logits.end() - static_cast<std::ptrdiff_t>(width));
    for (std::size_t step = 0; step < want.greedy.size() && want.margin[step] > 1e-3F; ++step) {
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      ASSERT_EQ(best, want.greedy[step]) << "step " << step;
      logits = run(*loaded.model, *state, {want.greedy[step]}, LogitRows::last_of_each);
      ASSERT_EQ(logits.size(), width);
    }
  }
}

// Kernels may round activations to bf16.
TEST_P(FamiliesTest, ChosenKernelsAreClose) {
  const Loaded loaded = load(folder(), Policy{});
  ASSERT_NE(loaded.model, nullptr);
  std::vector<double> errors;
  for (const Reference& want : references(folder())) {
    const auto state = new_state(*loaded.model);
    const auto logits = run(*loaded.model, *state, want.ids);
    ASSERT_EQ(logits.size(), want.logits.size());
    const auto width = static_cast<std::size_t>(loaded.model->info().vocab_size);
    for (const double error : relative_errors(logits, want.logits, width)) errors.push_back(error);
  }
  EXPECT_LE(median(errors), 5e-3);
}

// Prompts alone and together, then steps: the top k are those of the largest logits.
TEST_P(FamiliesTest, TopKAreTheLargestLogits) {
  for (const Policy& policy : {Policy{}, pinned("ref")}) {
    const Loaded plain = load(folder(), policy);
    const Loaded other = load(folder(), policy);
    ASSERT_NE(plain.model, nullptr);
    ASSERT_NE(other.model, nullptr);
    const auto vocabulary = static_cast<std::size_t>(plain.model->info().vocab_size);
    const auto prompts = references(folder());
    for (const std::size_t together : {std::size_t{1}, prompts.size()}) {
      std::vector<std::unique_ptr<SequenceState>> plain_states;
      std::vector<std::unique_ptr<SequenceState>> other_states;
      std::vector<std::vector<std::int32_t>> fed;
      for (std::size_t i = 0; i < together; ++i) {
        plain_states.push_back(new_state(*plain.model));
        other_states.push_back(new_state(*other.model));
        fed.push_back(prompts[i].ids);
      }
      for (const std::int64_t wanted_logits : {1, 20, 1, 64, 100}) {  // more than a head's copy is asked for, at last
        const auto most = static_cast<std::size_t>(wanted_logits);
        Ragged plain_batch;
        Ragged other_batch;
        for (std::size_t i = 0; i < together; ++i) {
          plain_batch.add(*plain_states[i], fed[i]);
          other_batch.add(*other_states[i], fed[i]);
        }
        std::vector<float> logits;
        std::vector<TokenLogit> top;
        ASSERT_TRUE(plain_batch.forward(*plain.model, LogitRows::last_of_each, logits).ok());
        ASSERT_TRUE(other_batch.forward_top_k(*other.model, {.k = static_cast<std::int64_t>(most)}, top).ok());
        const std::size_t told = std::min(most, vocabulary);
        ASSERT_EQ(top.size(), together * told);
        for (std::size_t i = 0; i < together; ++i) {
          std::vector<TokenLogit> wanted;
          for (std::size_t id = 0; id < vocabulary; ++id)
            wanted.push_back({logits[i * vocabulary + id], static_cast<std::int32_t>(id)});
          std::sort(wanted.begin(), wanted.end(), [](const auto& a, const auto& b) { return a.before(b); });
          for (std::size_t k = 0; k < told; ++k) {
            ASSERT_EQ(top[i * told + k].id, wanted[k].id) << most << " " << k;
            ASSERT_EQ(top[i * told + k].logit, wanted[k].logit) << most << " " << k;
          }
          ASSERT_EQ(other_states[i]->length(), plain_states[i]->length());
          fed[i] = {wanted.front().id};
        }
      }
    }
  }
}

TEST_P(FamiliesTest, TokenByTokenEqualsTheWholePrompt) {
  const Loaded loaded = load(folder(), pinned("ref"));
  ASSERT_NE(loaded.model, nullptr);
  for (const Reference& want : references(folder())) {
    const auto whole_state = new_state(*loaded.model);
    const auto whole = run(*loaded.model, *whole_state, want.ids);
    const auto state = new_state(*loaded.model);
    std::vector<float> pieces;
    for (const std::int32_t id : want.ids) {
      const auto logits = run(*loaded.model, *state, {id});
      pieces.insert(pieces.end(), logits.begin(), logits.end());
    }
    ASSERT_EQ(pieces.size(), whole.size());
    EXPECT_EQ(std::memcmp(pieces.data(), whole.data(), whole.size() * sizeof(float)), 0);
  }
}

// A batch of both prompts on three threads: each row is what it is alone on one.
TEST_P(FamiliesTest, RaggedBatchEqualsEachSequenceAlone) {
  const Loaded together = load(folder(), pinned("ref"), 3);
  const Loaded single = load(folder(), pinned("ref"), 1);
  ASSERT_NE(together.model, nullptr);
  ASSERT_NE(single.model, nullptr);
  Ragged batch;
  std::vector<std::unique_ptr<SequenceState>> states;
  std::vector<float> alone;
  for (const Reference& want : references(folder())) {
    states.push_back(new_state(*together.model));
    batch.add(*states.back(), want.ids);
    const auto state = new_state(*single.model);
    const auto logits = run(*single.model, *state, want.ids);
    alone.insert(alone.end(), logits.begin(), logits.end());
  }
  std::vector<float> logits;
  ASSERT_TRUE(batch.forward(*together.model, LogitRows::all, logits).ok());
  ASSERT_EQ(logits.size(), alone.size());
  EXPECT_EQ(std::memcmp(logits.data(), alone.data(), alone.size() * sizeof(float)), 0);
}

INSTANTIATE_TEST_SUITE_P(Models, FamiliesTest, testing::ValuesIn(folders()), name_of);

}  // namespace
}  // namespace moracle::test
