// What a request becomes before the engine takes it: prompts, defaults of the publisher.
#include "serve/api/prepare.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "support/temporary_folder.h"
#include "support/test_data.h"

namespace moracle::serve {
namespace {

// The example's small files, of which a test may replace some.
class ServePrepare : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* const name : {"config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
      std::filesystem::copy_file(test::source_dir() / "examples/models/qwen3moe-gptq-w4g128-sym" / name,
                                 folder_.path() / name);
  }
  void publish(const char* name, std::string_view text) { folder_.write(name, text); }
  [[nodiscard]] Result<ApiRequest> prepare(GenerationApi api, const std::string& body) {
    const auto config = Checkpoint::read_config(folder_.path());
    EXPECT_TRUE(config.ok());
    auto text = ModelText::open(folder_.path(), *config, true);
    EXPECT_TRUE(text.ok());
    text_ = std::make_unique<ModelText>(*std::move(text));
    MORACLE_ASSIGN(RequestBody parsed, parse_body(body));
    MORACLE_ASSIGN(ApiRequest request, read_request(api, std::move(parsed), false));
    const PrepareOptions how{.context = 2048, .max_replies = most_replies_, .known = known_};
    MORACLE_TRY(prepare_request(request, *text_, how));
    MORACLE_TRY(hold_request(request, how));
    return request;
  }
  [[nodiscard]] Request completion(const std::string& more) {
    const auto prepared = prepare(GenerationApi::completions, R"({"prompt": [1, 2, 3])" + more + "}");
    EXPECT_TRUE(prepared.ok()) << prepared.error().message();
    return prepared.ok() ? prepared->engine : Request{};
  }
  [[nodiscard]] std::int64_t chat_tokens() {
    const auto prepared = prepare(GenerationApi::chat, R"({"messages": [{"role": "user", "content": "hi"}]})");
    EXPECT_TRUE(prepared.ok()) << prepared.error().message();
    return prepared.ok() ? prepared->engine.max_tokens.value_or(-1) : -1;
  }

  test::TemporaryFolder folder_;
  std::unique_ptr<ModelText> text_;
  std::int64_t most_replies_ = 0;
  ModelCheck known_;
};

TEST_F(ServePrepare, TheTemperatureIsTheRequestsThePublishersOrOne) {
  EXPECT_EQ(completion("").sampling.temperature, 1.0) << "without generation_config.json";
  publish("generation_config.json", R"({"do_sample": true})");  // as gpt-oss has it
  EXPECT_EQ(completion("").sampling.temperature, 1.0);
  EXPECT_EQ(completion(R"(, "temperature": null)").sampling.temperature, 1.0);
  EXPECT_EQ(completion(R"(, "temperature": 0)").sampling.temperature, 0.0);
  for (const char* const sampling :
       {R"({"do_sample": true, "temperature": 0.6, "top_p": 0.9})", R"({"temperature": 0.6, "top_p": 0.9})"}) {
    publish("generation_config.json", sampling);
    EXPECT_EQ(completion("").sampling.temperature, 0.6) << sampling;
    EXPECT_EQ(completion("").sampling.top_p, 0.9) << sampling;
    EXPECT_EQ(completion(R"(, "temperature": 0.5)").sampling.temperature, 0.5) << sampling;
  }
  publish("generation_config.json", R"({"do_sample": true, "temperature": -1})");
  EXPECT_EQ(prepare(GenerationApi::completions, R"({"prompt": [1]})").error().code, "config.range");
  EXPECT_EQ(completion(R"(, "temperature": 0.5)").sampling.temperature, 0.5);
}

TEST_F(ServePrepare, ThePublishersLengthsBoundChatsThatNameNone) {
  EXPECT_EQ(chat_tokens(), 2048 - 13);
  publish("generation_config.json", R"({"max_length": 100})");
  EXPECT_EQ(chat_tokens(), 100 - 13) << "prompt and reply";
  publish("generation_config.json", R"({"max_length": 5})");
  EXPECT_EQ(chat_tokens(), 1);
  publish("generation_config.json", R"({"max_length": 100, "max_new_tokens": 40})");
  EXPECT_EQ(chat_tokens(), 40);
  publish("generation_config.json", R"({"max_length": 100000})");
  EXPECT_EQ(chat_tokens(), 2048 - 13) << "what there is room for";
}

TEST_F(ServePrepare, EchoesOfIdsHaveSpecialTokensWhereTheyAreWanted) {
  const auto echoed = [this](const std::string& more) {
    const auto prepared =
        prepare(GenerationApi::completions, R"({"prompt": [4094, 72, 4095], "echo": true)" + more + "}");
    EXPECT_TRUE(prepared.ok()) << prepared.error().message();
    return prepared.ok() ? prepared->prompts[0].text : "";
  };
  EXPECT_EQ(echoed(""), "i");
  EXPECT_EQ(echoed(R"(, "skip_special_tokens": false)"), "<|im_start|>i<|im_end|>");
}

TEST_F(ServePrepare, MoreRepliesThanTheQueueHoldsAreNoMatterOfTrying) {
  most_replies_ = 6;
  const auto refusal = [this](const std::string& body) {
    const auto prepared = prepare(GenerationApi::completions, body);
    return prepared.ok() ? "" : prepared.error().code + " " + prepared.error().where;
  };
  EXPECT_EQ(refusal(R"({"prompt": ["a", "b", "c"], "n": 2})"), "");
  EXPECT_EQ(refusal(R"({"prompt": ["a", "b", "c"], "n": 3})"), "request.limit n");
  EXPECT_EQ(refusal(R"({"prompt": ["a", "b", "c", "d", "e", "f", "g"]})"), "request.limit prompt");
  const auto chat = prepare(GenerationApi::chat, R"({"messages": [{"role": "user", "content": "hi"}], "n": 7})");
  ASSERT_FALSE(chat.ok());
  EXPECT_EQ(chat.error().wanted, "at most 6 replies, which this server's queue holds");
}

TEST_F(ServePrepare, AReplyGoesOnWhereItsWordsEnd) {
  const auto prompt = [this](const std::string& words) {
    const auto prepared = prepare(GenerationApi::chat, R"({"continue_final_message": true, "messages": [
        {"role": "user", "content": "hi"}, {"role": "assistant", "content": )" +
                                                           Json(words).dump() + "}]}");
    EXPECT_TRUE(prepared.ok()) << prepared.error().message();
    return prepared.ok() ? prepared->prompts[0].text : "";
  };
  const std::string opened = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
  // Words that stand in the end of the turn as well, none, and white space.
  for (const char* const words : {"The King", "", "\n", ">", "im_end", "e", "<|im_end|>", "The King ", "assistant"})
    EXPECT_EQ(prompt(words), opened + words) << words;
  publish("chat_template.jinja", "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}]{% endfor %}");
  EXPECT_EQ(prompt("The King "), "[user]hi][assistant]The King");
  EXPECT_EQ(prompt(" "), "[user]hi][assistant]");
  EXPECT_EQ(prompt("]"), "[user]hi][assistant]]");
  publish("chat_template.jinja", "{{ messages[0].content }}");
  EXPECT_EQ(prepare(GenerationApi::chat, R"({"continue_final_message": true, "messages": [
      {"role": "user", "content": "hi"}, {"role": "assistant", "content": "a"}]})")
                .error()
                .where,
            "continue_final_message");
}

TEST_F(ServePrepare, ChatsHaveTheTokenizersSpecialTokensWhereTheyAskForThem) {
  const auto file = test::source_dir() / "tests/data/checkpoints/mixtral-awq-w4g32";
  for (const char* const name : {"config.json", "tokenizer.json", "tokenizer_config.json"})
    std::filesystem::copy_file(file / name, folder_.path() / name, std::filesystem::copy_options::overwrite_existing);
  publish("chat_template.jinja", "{{ messages[0].content }}");
  const auto ids = [this](const std::string& more) {
    const auto prepared =
        prepare(GenerationApi::chat, R"({"messages": [{"role": "user", "content": "a"}])" + more + "}");
    EXPECT_TRUE(prepared.ok()) << prepared.error().message();
    return prepared.ok() ? prepared->prompts[0].ids : std::vector<std::int32_t>();
  };
  const std::vector<std::int32_t> plain = ids("");
  EXPECT_EQ(ids(R"(, "add_special_tokens": false)"), plain);
  std::vector<std::int32_t> with = {1};  // <s>
  with.insert(with.end(), plain.begin(), plain.end());
  EXPECT_EQ(ids(R"(, "add_special_tokens": true)"), with);
}

TEST_F(ServePrepare, TheModelsNameIsCheckedBeforeTemplateAndTokens) {
  publish("chat_template.jinja", "{{ raise_exception('rendered') }}");
  const std::string chat = R"({"model": "x", "messages": [{"role": "user", "content": "hi"}]})";
  EXPECT_EQ(prepare(GenerationApi::chat, chat).error().code.substr(0, 9), "template.");
  known_ = [](const std::string& name) -> Result<> { return Error{.code = "request.model", .found = name}; };
  EXPECT_EQ(prepare(GenerationApi::chat, chat).error().code, "request.model");
  EXPECT_EQ(prepare(GenerationApi::completions, R"({"model": "x", "prompt": [999999]})").error().code, "request.model");
  EXPECT_EQ(prepare(GenerationApi::chat, R"({"model": "x"})").error().code, "request.missing") << "it has no messages";
}

}  // namespace
}  // namespace moracle::serve
