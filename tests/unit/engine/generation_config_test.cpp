#include "engine/generation_config.h"

#include <gtest/gtest.h>

#include "support/temporary_folder.h"

namespace moracle {
namespace {

class GenerationConfigTest : public ::testing::Test {
 protected:
  void publish(const std::string& text) { folder_.write("generation_config.json", text); }
  Result<GenerationConfig> load(const Json& config) { return load_generation_config(folder_.path(), config, 100); }

  test::TemporaryFolder folder_;
};

TEST_F(GenerationConfigTest, ListsAndSingleIdsAreRead) {
  publish(R"({"eos_token_id": [7, 3, 7], "bos_token_id": 1})");
  const auto config = load({{"eos_token_id", 50}, {"bos_token_id", 51}});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->eos_ids, (std::vector<std::int32_t>{3, 7}));
  EXPECT_EQ(config->bos_id, 1);
  EXPECT_TRUE(config->stops(7));
  EXPECT_FALSE(config->stops(50));
}

TEST_F(GenerationConfigTest, ConfigStandsInForWhatIsNotPublished) {
  const auto config = load({{"eos_token_id", 50}, {"bos_token_id", nullptr}});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->eos_ids, (std::vector<std::int32_t>{50}));
  EXPECT_FALSE(config->bos_id.has_value());
  const auto nested = load({{"text_config", {{"eos_token_id", 9}}}});
  ASSERT_TRUE(nested.ok());
  EXPECT_EQ(nested->eos_ids, (std::vector<std::int32_t>{9}));
}

TEST_F(GenerationConfigTest, SamplingIsThePublishersOrGreedy) {
  EXPECT_EQ(load(Json::object())->sampling.temperature, 0.0);
  publish(R"({"do_sample": true})");
  EXPECT_EQ(load(Json::object())->sampling.temperature, 0.0);
  publish(R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95})");
  const auto config = load(Json::object());
  EXPECT_EQ(config->sampling.temperature, 0.6);
  EXPECT_EQ(config->sampling.top_k, 20);
  EXPECT_EQ(config->sampling.top_p, 0.95);
  publish(R"({"do_sample": false, "temperature": 0.6})");
  EXPECT_EQ(load(Json::object())->sampling.temperature, 0.0);
}

TEST_F(GenerationConfigTest, HostileValuesAreRefusedByName) {
  for (const char* text :
       {R"({"eos_token_id": -1})", R"({"eos_token_id": 100})", R"({"eos_token_id": [1, 1e9]})",
        R"({"eos_token_id": "7"})", R"({"eos_token_id": 18446744073709551615})", R"({"eos_token_id": {"a": 1}})"}) {
    publish(text);
    const auto config = load(Json::object());
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_EQ(config.error().where, "/eos_token_id") << text;
  }
  publish(R"({"do_sample": true, "temperature": -1})");
  EXPECT_EQ(load(Json::object()).error().where, "/temperature");
  publish(R"({"do_sample": true, "temperature": 1, "top_p": 0})");
  EXPECT_EQ(load(Json::object()).error().where, "/top_p");
  publish("[1]");
  EXPECT_EQ(load(Json::object()).error().code, "config.type");
}

}  // namespace
}  // namespace moracle
