#include "generate/generation_config.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "support/temporary_folder.h"

namespace moracle {
namespace {

SamplingChoice only(double SamplingOptions::* member, double value) {
  return SamplingChoice().set(member, value);
}

class GenerationConfigTest : public ::testing::Test {
 protected:
  void publish(const std::string& text) { folder_.write("generation_config.json", text); }
  GenerationConfig load(const Json& config = Json::object()) {
    return load_generation_config(folder_.path(), config, 100);
  }
  // What holds for a caller who chooses this, with an end token so that nothing is said of that.
  Result<GenerationSettings> settle(const GenerationChoice& choice = {}) {
    return load({{"eos_token_id", 7}}).settle(choice);
  }
  // The code and place of the refusal.
  std::string refusal(const GenerationChoice& choice = {}) {
    const auto settings = settle(choice);
    return settings.ok() ? "none" : settings.error().code + " at " + settings.error().where;
  }
  std::string only_warning(const GenerationChoice& choice = {}) {
    const auto settings = settle(choice);
    if (!settings.ok()) return settings.error().message();
    return settings->warnings.size() == 1 ? settings->warnings.front() : std::to_string(settings->warnings.size());
  }

  test::TemporaryFolder folder_;
};

TEST_F(GenerationConfigTest, ListsAndSingleIdsAreRead) {
  publish(R"({"eos_token_id": [7, 3, 7], "bos_token_id": 1})");
  GenerationConfig config = load({{"eos_token_id", 50}, {"bos_token_id", 51}});
  EXPECT_EQ(config.eos_ids, (std::vector<std::int32_t>{3, 7}));
  EXPECT_EQ(config.bos_id, 1);
  for (const std::int32_t id : {5, 3, 99}) config.add_end(id);
  EXPECT_EQ(config.eos_ids, (std::vector<std::int32_t>{3, 5, 7, 99}));
}

TEST_F(GenerationConfigTest, ConfigStandsInForWhatIsNotPublished) {
  const GenerationConfig config = load({{"eos_token_id", 50}, {"bos_token_id", nullptr}});
  EXPECT_EQ(config.eos_ids, (std::vector<std::int32_t>{50}));
  EXPECT_FALSE(config.bos_id.has_value());
  EXPECT_EQ(load({{"text_config", {{"eos_token_id", 9}}}}).eos_ids, (std::vector<std::int32_t>{9}));
}

TEST_F(GenerationConfigTest, IdsThatTheModelCannotMakeAreLeftOut) {
  publish(R"({"eos_token_id": [100, -1, 3, 18446744073709551615, 163586]})");
  EXPECT_EQ(load().eos_ids, (std::vector<std::int32_t>{3}));
  EXPECT_TRUE(load().faults.empty());
}

TEST_F(GenerationConfigTest, SamplingIsThePublishersOrGreedy) {
  EXPECT_EQ(settle()->sampling.temperature, 0.0);
  publish(R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.1,
              "repetition_penalty": 1.05})");
  const auto settings = settle();
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->sampling.temperature, 0.6);
  EXPECT_EQ(settings->sampling.top_k, 20);
  EXPECT_EQ(settings->sampling.top_p, 0.95);
  EXPECT_EQ(settings->sampling.min_p, 0.1);
  EXPECT_EQ(settings->sampling.repetition_penalty, 1.05);
  EXPECT_TRUE(settings->warnings.empty());
  publish(R"({"do_sample": false, "temperature": 0.6, "repetition_penalty": 1.3})");
  EXPECT_EQ(settle()->sampling.temperature, 0.0);
  EXPECT_EQ(settle()->sampling.repetition_penalty, 1.3) << "also where the likeliest token is taken";
  EXPECT_TRUE(settle()->warnings.empty());
}

TEST_F(GenerationConfigTest, GreedyWhereSamplingIsHalfAskedForIsSaid) {
  publish(R"({"do_sample": true})");
  EXPECT_EQ(settle()->sampling.temperature, 0.0);
  EXPECT_NE(only_warning().find("do_sample without a temperature"), std::string::npos);
  publish(R"({"temperature": 0.6})");
  EXPECT_EQ(settle()->sampling.temperature, 0.0);
  EXPECT_NE(only_warning().find("a temperature without do_sample"), std::string::npos);
  EXPECT_TRUE(settle({.sampling = only(&SamplingOptions::temperature, 0.6)})->warnings.empty());
}

TEST_F(GenerationConfigTest, WhoSamplesInAnyCaseTakesThePublishersTemperatureOrOne) {
  EXPECT_EQ(settle({.samples = true})->sampling.temperature, 1.0);
  publish(R"({"do_sample": true})");
  EXPECT_EQ(settle({.samples = true})->sampling.temperature, 1.0);
  EXPECT_TRUE(settle({.samples = true})->warnings.empty());
  publish(R"({"do_sample": false, "temperature": 0.6})");
  EXPECT_EQ(settle({.samples = true})->sampling.temperature, 0.6);
  EXPECT_EQ(settle({.sampling = only(&SamplingOptions::temperature, 0.0), .samples = true})->sampling.temperature, 0.0);
}

TEST_F(GenerationConfigTest, ChoicesWin) {
  publish(R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "repetition_penalty": 1.05, "max_new_tokens": 9})");
  const auto settings = settle({.sampling = SamplingChoice()
                                                .set(&SamplingOptions::temperature, 1.5)
                                                .set(&SamplingOptions::top_p, 0.5)
                                                .set(&SamplingOptions::repetition_penalty, 2.0)
                                                .set(&SamplingOptions::presence_penalty, -0.5)
                                                .set(&SamplingOptions::frequency_penalty, 0.25),
                                .max_tokens = 3,
                                .seed = 4});
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->sampling.temperature, 1.5);
  EXPECT_EQ(settings->sampling.top_k, 20);
  EXPECT_EQ(settings->sampling.top_p, 0.5);
  EXPECT_EQ(settings->sampling.repetition_penalty, 2.0);
  EXPECT_EQ(settings->sampling.presence_penalty, -0.5);
  EXPECT_EQ(settings->sampling.frequency_penalty, 0.25);
  EXPECT_EQ(settings->sampling.seed, 4U);
  EXPECT_EQ(settings->answer_tokens(1), 3);
  EXPECT_EQ(refusal({.sampling = only(&SamplingOptions::temperature, -1.0)}), "sampling.range at temperature");
}

TEST_F(GenerationConfigTest, LengthsBoundTheAnswer) {
  EXPECT_EQ(settle()->answer_tokens(10), 512);
  publish(R"({"max_new_tokens": 2048, "max_length": 20})");
  EXPECT_EQ(settle()->answer_tokens(10), 2048);
  publish(R"({"max_length": 20})");
  EXPECT_EQ(settle()->answer_tokens(5), 15);
  EXPECT_EQ(settle()->answer_tokens(50), 1);
  EXPECT_EQ(settle({.max_tokens = 30})->answer_tokens(50), 30);
  publish(R"({"max_length": 131072})");
  EXPECT_EQ(settle()->answer_tokens(5), 512);
}

TEST_F(GenerationConfigTest, EndsAreThePublishersAndTheCallers) {
  publish(R"({"eos_token_id": 3, "stop_strings": ["###", "END"]})");
  const auto settings = settle({.stop_texts = {"mine"}});
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->stop_ids, std::vector<std::int32_t>{3});
  EXPECT_EQ(settings->stop_texts, (std::vector<std::string>{"###", "END", "mine"}));
  EXPECT_TRUE(settle({.ignore_eos = true})->stop_ids.empty());
}

TEST_F(GenerationConfigTest, NothingThatCouldEndAnAnswerIsSaid) {
  const auto settings = load().settle({});
  ASSERT_TRUE(settings.ok());
  ASSERT_EQ(settings->warnings.size(), 1U);
  EXPECT_NE(settings->warnings.front().find("end token"), std::string::npos);
  EXPECT_TRUE(load().settle({.ignore_eos = true})->warnings.empty()) << "the caller wants it so";
}

TEST_F(GenerationConfigTest, ValuesThatMeanOffAreOff) {
  publish(R"({"do_sample": true, "temperature": 0.7, "top_k": -1, "top_p": -1, "min_p": null, "repetition_penalty": 1.0,
              "typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0, "no_repeat_ngram_size": 0, "num_beams": 1,
              "bad_words_ids": null, "suppress_tokens": [], "penalty_alpha": 0, "max_new_tokens": -1, "max_length": null,
              "forced_eos_token_id": null, "guidance_scale": 1.0, "min_length": 0, "token_healing": false})");
  const auto settings = settle();
  ASSERT_TRUE(settings.ok()) << settings.error().message();
  EXPECT_EQ(settings->sampling.top_k, 0);
  EXPECT_EQ(settings->sampling.top_p, 1.0);
  EXPECT_EQ(settings->sampling.min_p, 0.0);
  EXPECT_TRUE(settings->warnings.empty());
  EXPECT_EQ(settings->answer_tokens(1), 512);
}

TEST_F(GenerationConfigTest, WhatIsNotAppliedIsNamedInOneWarning) {
  publish(R"({"do_sample": true, "temperature": 0.7, "typical_p": 0.9, "epsilon_cutoff": 0.01, "eta_cutoff": 0.002,
              "top_h": 0.4, "no_repeat_ngram_size": 3, "bad_words_ids": [[1, 2]], "suppress_tokens": [5],
              "begin_suppress_tokens": [6], "forced_eos_token_id": 7, "forced_bos_token_id": 8, "num_beams": 4,
              "penalty_alpha": 0.6, "min_new_tokens": 2, "min_length": 3, "sequence_bias": [[[1], 2.0]],
              "exponential_decay_length_penalty": [1, 2.0], "guidance_scale": 1.5, "max_time": 3.5})");
  const std::string warning = only_warning();
  for (const char* part :
       {"typical_p 0.9", "epsilon_cutoff 0.01", "eta_cutoff 0.002", "top_h 0.4", "no_repeat_ngram_size 3",
        "bad_words_ids [[1,2]]", "suppress_tokens [5]", "begin_suppress_tokens [6]", "forced_eos_token_id 7",
        "forced_bos_token_id 8", "num_beams 4", "penalty_alpha 0.6", "min_new_tokens 2", "min_length 3",
        "sequence_bias", "exponential_decay_length_penalty", "guidance_scale 1.5", "max_time 3.5"}) {
    EXPECT_NE(warning.find(part), std::string::npos) << part << " in " << warning;
  }
  const std::string greedy = only_warning({.sampling = only(&SamplingOptions::temperature, 0.0)});
  EXPECT_EQ(greedy.find("typical_p"), std::string::npos) << "it means nothing where the likeliest token is taken";
  EXPECT_NE(greedy.find("num_beams 4"), std::string::npos);
}

TEST_F(GenerationConfigTest, MembersThatNobodyKnowsAreNamed) {
  publish(R"({"stop_token_ids": [3], "max_tokens": 9, "mirostat": null, "pad_token_id": 1, "use_cache": true,
              "_from_model_config": true, "output_scores": false, "early_stopping": true, "transformers_version": "5"})");
  const std::string warning = only_warning({.sampling = only(&SamplingOptions::temperature, 0.0)});
  EXPECT_NE(warning.find("not applied: max_tokens 9, stop_token_ids [3]"), std::string::npos) << warning;
}

TEST_F(GenerationConfigTest, WrongValuesAreRefusedByNameWhereTheyAreNeeded) {
  for (const char* text :
       {R"({"eos_token_id": [1, 1e9]})", R"({"eos_token_id": "7"})", R"({"eos_token_id": {"a": 1}})"}) {
    publish(text);
    EXPECT_EQ(refusal(), "config.type at /eos_token_id") << text;
    EXPECT_EQ(refusal({.ignore_eos = true}), "none") << text;
  }
  const auto sampled = [&](const std::string& more) {
    publish(R"({"do_sample": true, "temperature": 1, )" + more + "}");
  };
  publish(R"({"do_sample": true, "temperature": -1})");
  EXPECT_EQ(refusal(), "config.range at /temperature");
  EXPECT_EQ(refusal({.sampling = only(&SamplingOptions::temperature, 0.5)}), "none");
  sampled(R"("top_p": 0)");
  EXPECT_EQ(refusal(), "config.range at /top_p");
  EXPECT_EQ(refusal({.sampling = only(&SamplingOptions::top_p, 0.5)}), "none");
  EXPECT_EQ(refusal({.sampling = only(&SamplingOptions::temperature, 0.0)}), "none") << "nothing is sampled";
  sampled(R"("top_k": "20")");
  EXPECT_EQ(refusal(), "config.type at /top_k");
  EXPECT_EQ(refusal({.sampling = only(&SamplingOptions::temperature, 0.0)}), "none");
  publish(R"({"repetition_penalty": 0})");
  EXPECT_EQ(refusal(), "config.range at /repetition_penalty");
  EXPECT_EQ(refusal({.sampling = only(&SamplingOptions::temperature, 0.0)}), "config.range at /repetition_penalty");
  EXPECT_EQ(refusal({.sampling = only(&SamplingOptions::repetition_penalty, 1.0)}), "none");
  publish(R"({"do_sample": "yes"})");
  EXPECT_EQ(refusal(), "config.type at /do_sample");
  EXPECT_EQ(refusal({.sampling = only(&SamplingOptions::temperature, 0.0)}), "none");
  publish(R"({"max_new_tokens": "many"})");
  EXPECT_EQ(refusal(), "config.type at /max_new_tokens");
  EXPECT_EQ(refusal({.max_tokens = 1}), "none");
  publish(R"({"bos_token_id": "x"})");
  EXPECT_EQ(refusal(), "none") << "it begins nothing but an empty prompt";
  publish("[1]");
  EXPECT_EQ(refusal(), "config.type at ");
  publish("{");
  EXPECT_EQ(refusal().substr(0, 11), "json.syntax");
  EXPECT_EQ(refusal({.sampling = only(&SamplingOptions::temperature, 0.5)}).substr(0, 11), "json.syntax")
      << "top_k and others may be there";
  EXPECT_NE(only_warning({.sampling = only(&SamplingOptions::temperature, 0.0)}).find("not used: "), std::string::npos)
      << "nothing is sampled";
}

TEST_F(GenerationConfigTest, WrongValuesThatAreNotNeededAreWarnings) {
  publish(R"({"do_sample": true, "temperature": 1, "top_p": "x"})");
  const std::string warning = only_warning({.sampling = only(&SamplingOptions::top_p, 0.5)});
  EXPECT_NE(warning.find("/top_p"), std::string::npos) << warning;
  ASSERT_EQ(load().fault_lines().size(), 1U);
  EXPECT_NE(load().fault_lines().front().find("/top_p"), std::string::npos);
}

// A name that leads nowhere is no absent file: what its publisher asks for must not vanish.
TEST_F(GenerationConfigTest, ALinkToNothingIsToldAndNotPassedOver) {
  std::filesystem::create_symlink("../blobs/gone", folder_.path() / "generation_config.json");
  EXPECT_EQ(refusal(), "file.open at ");
}

}  // namespace
}  // namespace moracle
