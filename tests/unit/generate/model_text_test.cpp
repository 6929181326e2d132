#include "generate/model_text.h"

#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "generate/request.h"
#include "support/temporary_folder.h"
#include "support/test_data.h"

namespace moracle {
namespace {

// Tokens that an answer shows are found as text, before which min_tokens masks nothing.
TEST(ModelText, StopTextsThatNoAnswerShowsAreTokens) {
  const auto published = test::source_dir() / "examples/models/qwen3moe-gptq-w4g128-sym";
  const test::TemporaryFolder folder;
  for (const char* const name : {"config.json", "tokenizer_config.json"}) {
    std::filesystem::copy(published / name, folder.path());
  }
  auto tokens = read_json(published / "tokenizer.json");
  ASSERT_TRUE(tokens.ok());
  // A mark that is no special token, as models that reason have.
  for (Json& token : (*tokens)["added_tokens"]) {
    if (token["content"] == "<|im_start|>") token.update({{"content", "</think>"}, {"special", false}});
  }
  folder.write("tokenizer.json", tokens->dump());
  const auto config = Checkpoint::read_config(folder.path());
  ASSERT_TRUE(config.ok());
  const auto text = ModelText::open(folder.path(), *config, true);
  ASSERT_TRUE(text.ok()) << text.error().message();
  const Tokenizer& tokenizer = text->tokenizer();
  ASSERT_TRUE(tokenizer.token_to_id("the"));
  const std::vector<std::string> stops = {"the", "<|im_end|>", "</think>", "no token at all"};
  const auto found = text->stop_tokens(stops);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].text, "<|im_end|>");
  EXPECT_EQ(found[0].id, tokenizer.token_to_id("<|im_end|>"));
  EXPECT_EQ(found[1].text, "</think>");
  EXPECT_EQ(found[1].id, tokenizer.token_to_id("</think>"));
}

// Every text would be refused; the folder is, by the place that is wrong.
TEST(ModelText, IdsAroundATextAreTheModels) {
  const auto published = test::source_dir() / "examples/models/qwen3moe-gptq-w4g128-sym";
  const test::TemporaryFolder folder;
  std::filesystem::copy(published / "config.json", folder.path());
  auto tokens = read_json(published / "tokenizer.json");
  const auto config = Checkpoint::read_config(folder.path());
  ASSERT_TRUE(tokens.ok() && config.ok());
  const auto vocabulary = config->at("vocab_size").get<std::int64_t>();
  const auto open = [&](const Json& processor) {
    (*tokens)["post_processor"] = processor;
    folder.write("tokenizer.json", tokens->dump());
    const auto text = ModelText::open(folder.path(), *config, true);
    if (text.ok()) return std::string("ok");
    EXPECT_EQ(std::filesystem::path(text.error().file).filename(), "tokenizer.json");
    return text.error().code + " at " + text.error().where + ": " + text.error().found;
  };
  const auto frame = [&](std::int64_t id) {
    return Json{{"type", "BertProcessing"}, {"cls", {"a", 0}}, {"sep", {"b", id}}};
  };
  EXPECT_EQ(open(frame(vocabulary - 1)), "ok");
  EXPECT_EQ(open(frame(vocabulary)), "tokenizer.id at /post_processor/sep/1: " + std::to_string(vocabulary));
  const Json single = {{{"SpecialToken", {{"id", "[S]"}}}}, {{"Sequence", {{"id", "A"}}}}};
  const Json special = {{"[S]", {{"id", "[S]"}, {"ids", {0, 999'999}}, {"tokens", {"a", "b"}}}}};
  const Json whole = {{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", special}};
  EXPECT_EQ(open(whole), "tokenizer.id at /post_processor/special_tokens/[S]/ids: 999999");
  EXPECT_EQ(open({{"type", "Sequence"}, {"processors", {whole}}}),
            "tokenizer.id at /post_processor/processors/0/special_tokens/[S]/ids: 999999");
}

TEST(StopRule, AreEndAndStopTokensFromMinTokensOn) {
  const StopRule both(Request{.min_tokens = 2, .end_ids = {9, 3}, .stop_ids = {5}});
  EXPECT_FALSE(both.at(9, 1));
  EXPECT_TRUE(both.at(9, 2));
  EXPECT_TRUE(both.at(5, 2));
  EXPECT_FALSE(both.at(4, 2));
  const StopRule stops(Request{.end_ids = {9, 3}, .ignore_eos = true, .stop_ids = {5}});
  EXPECT_FALSE(stops.at(9, 0));
  EXPECT_TRUE(stops.at(5, 0));
}

}  // namespace
}  // namespace moracle
