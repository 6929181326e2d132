#include "text/template/chat_templates.h"

#include <gtest/gtest.h>

#include "support/temporary_folder.h"

namespace moracle {
namespace {

class ChatTemplatesTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const { folder_.write(name, text); }
  [[nodiscard]] Result<ChatTemplates> load() const {
    MORACLE_ASSIGN(const TokenizerConfig config, TokenizerConfig::load(folder_.path(), {}, true));
    return ChatTemplates::load(folder_.path(), config);
  }
  // The text, or the code of the error.
  [[nodiscard]] std::string render(const ChatRequest& request = {}) const {
    const auto loaded = load();
    if (!loaded.ok()) return loaded.error().code;
    const auto text = loaded->render(request);
    return text.ok() ? *text : text.error().code;
  }
  static ChatRequest with_tools() {
    ChatRequest request;
    request.tools =
        OrderedJson::parse(R"([{"type": "function", "function": {"name": "f", "arguments": {"b": 1, "a": 2}}}])");
    return request;
  }

  test::TemporaryFolder folder_;
};

TEST_F(ChatTemplatesTest, NothingThere) {
  const auto loaded = load();
  ASSERT_TRUE(loaded.ok()) << loaded.error().message();
  EXPECT_TRUE(loaded->empty());
  EXPECT_EQ(loaded->render({}).error().code, "template.missing");
  EXPECT_EQ(loaded->check({}).error().code, "template.missing");
}

TEST_F(ChatTemplatesTest, FileBeforeConfigurationBeforeTheProcessorsFile) {
  write("chat_template.json", R"({"chat_template": "processor {{ bos_token }}"})");
  EXPECT_EQ(render(), "processor ");
  write("tokenizer_config.json",
        R"({"chat_template": "config", "bos_token": {"content": "<s>", "lstrip": false}, "pad_token": null})");
  EXPECT_EQ(render(), "config");
  write("chat_template.jinja", "file {{ bos_token }}{{ eos_token }}\n");
  write("special_tokens_map.json", R"({"bos_token": "<other>", "eos_token": "</s>"})");
  EXPECT_EQ(render(), "file <other></s>") << "special_tokens_map.json speaks last without an added_tokens_decoder";
}

TEST_F(ChatTemplatesTest, AnotherTemplateThatGoesUnreadIsNamed) {
  const auto warnings = [&] { return load()->warnings({}); };
  write("chat_template.jinja", "a\n");
  write("tokenizer_config.json", R"({"chat_template": "a"})");
  EXPECT_EQ(warnings(), std::vector<std::string>{}) << "the same";
  write("chat_template.json", R"({"chat_template": "b"})");
  ASSERT_EQ(warnings().size(), 1U);
  EXPECT_NE(warnings().front().find("chat_template.json: chat_template is not used: that of "), std::string::npos);
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "c"}]})");
  EXPECT_EQ(warnings().size(), 2U);
  std::filesystem::remove(folder_.path() / "chat_template.jinja");
  EXPECT_EQ(warnings().size(), 1U);
  EXPECT_EQ(render(), "c");
}

TEST_F(ChatTemplatesTest, WhatNoTemplateNamesIsTold) {
  write("chat_template.jinja", "{{ enable_thinking }}{{ my_tools }}");
  const auto warnings = [&](const OrderedJson& variables, const OrderedJson& tools) {
    return load()->warnings({.tools = tools, .variables = variables});
  };
  EXPECT_EQ(warnings({{"enable_thinking", false}}, nullptr), std::vector<std::string>{});
  EXPECT_EQ(warnings({{"thinking", false}}, OrderedJson::array()),
            (std::vector<std::string>{"the chat template does not use tools",
                                      "the chat template does not use the variable thinking"}));
}

TEST_F(ChatTemplatesTest, NamedOnes) {
  for (
      const char* config :
      {R"({"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]})",
       R"({"chat_template": {"rag": "r", "default": "d", "tool_use": "t"}})"}) {
    write("tokenizer_config.json", config);
    EXPECT_EQ(render(), "d") << config;
    EXPECT_EQ(render(with_tools()), "t") << config;
  }
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "d"}]})");
  EXPECT_EQ(render(with_tools()), "d");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "r"}]})");
  EXPECT_EQ(render(), "template.missing");
}

TEST_F(ChatTemplatesTest, AdditionalFiles) {
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]})");
  write("additional_chat_templates/tool_use.jinja", "more");
  write("additional_chat_templates/README.md", "text");
  EXPECT_EQ(render(), "d");
  EXPECT_EQ(render(with_tools()), "more");
  write("chat_template.jinja", "file");
  EXPECT_EQ(render(), "file");
  std::filesystem::remove(folder_.path() / "additional_chat_templates/tool_use.jinja");
  EXPECT_EQ(render(with_tools()), "file") << "files stand in for all of the configuration's";
}

TEST_F(ChatTemplatesTest, WrongConfiguration) {
  for (const char* config : {R"({"chat_template": 1})", R"({"chat_template": [{"name": "default"}]})",
                             R"({"chat_template": {"default": 1}})", R"({"chat_template": ["x"]})"}) {
    write("tokenizer_config.json", config);
    EXPECT_EQ(render(), "template.config") << config;
  }
}

TEST_F(ChatTemplatesTest, WhatCannotBeReadConcernsWhoAsksForIt) {
  write("tokenizer_config.json", R"({"chat_template": 1})");
  EXPECT_TRUE(load().ok());
  write("tokenizer_config.json", "{}");
  write("chat_template.json", "{");
  EXPECT_TRUE(load().ok());
  EXPECT_EQ(render(), "json.syntax");
  std::filesystem::create_directory(folder_.path() / "chat_template.jinja");
  EXPECT_EQ(render(), "file.open");
  write("additional_chat_templates/tool_use.jinja", "t");
  std::filesystem::create_directory(folder_.path() / "additional_chat_templates/rag.jinja");
  EXPECT_EQ(render(with_tools()), "t");
}

TEST_F(ChatTemplatesTest, AFolderThatCannotBeReadConcernsWhoAsksForTools) {
  write("chat_template.jinja", "file");
  write("additional_chat_templates", "a file");
  EXPECT_EQ(render(), "file");
  EXPECT_EQ(render(with_tools()), "file.open");
}

TEST_F(ChatTemplatesTest, ATemplateThatDoesNotParseConcernsWhoAsksForIt) {
  write("chat_template.jinja", "{% if %}");
  write("additional_chat_templates/tool_use.jinja", "t");
  ASSERT_TRUE(load().ok());
  EXPECT_EQ(render(), "template.syntax");
  EXPECT_EQ(render(with_tools()), "t");
}

TEST_F(ChatTemplatesTest, SeesWhatTransformersGives) {
  write("tokenizer_config.json", R"({"eos_token": "</s>", "image_token": "<i>"})");
  write("chat_template.jinja",
        "{{ tools is none }} {{ documents is none }} {{ add_generation_prompt }} {{ eos_token }} {{ image_token }} "
        "{{ bos_token is defined }} {{ x is defined }}");
  EXPECT_EQ(render(), "True True True </s> <i> False False");
  ChatRequest request = with_tools();
  request.add_generation_prompt = false;
  request.variables = {{"x", 1}, {"eos_token", "mine"}, {"documents", OrderedJson::array({{{"title", "t"}}})}};
  EXPECT_EQ(render(request), "False False False mine <i> False True");
  write("chat_template.jinja", "{{ tools | tojson }}");
  EXPECT_EQ(render(request), R"([{"type": "function", "function": {"name": "f", "arguments": {"b": 1, "a": 2}}}])");
  write("tokenizer_config.json", R"({"tokenizer_class": "TikTokenTokenizer"})");
  EXPECT_EQ(render(request), R"([{"function": {"arguments": {"a": 2, "b": 1}, "name": "f"}, "type": "function"}])");
}

TEST_F(ChatTemplatesTest, MessagesAreThoseOfTransformers) {
  write("chat_template.jinja", "{% for m in messages %}{{ m | tojson }}{% endfor %}");
  ChatRequest request;
  request.messages =
      OrderedJson::parse(R"([{"role": "assistant", "content": null, "reasoning": "r", "tool_calls": null}])");
  EXPECT_EQ(render(request), R"({"thinking": "r", "role": "assistant", "reasoning": "r", "reasoning_content": "r"})");
  request.messages = OrderedJson::parse(R"([{"role": "assistant", "thinking": "t", "content": "c"}])");
  EXPECT_EQ(render(request), R"({"role": "assistant", "thinking": "t", "content": "c", "reasoning_content": "t"})");
}

TEST_F(ChatTemplatesTest, ArgumentsOfAWrongKind) {
  write("chat_template.jinja", "x");
  ChatRequest request;
  for (const char* tools : {"{}", "[1]", "\"f\""}) {
    request.tools = OrderedJson::parse(tools);
    EXPECT_EQ(render(request), "template.arguments") << tools;
  }
  request.tools = nullptr;
  request.variables = {{"documents", 1}};
  EXPECT_EQ(render(request), "template.arguments");
  request.variables = {{"messages", 1}};
  EXPECT_EQ(render(request), "template.arguments");
}

}  // namespace
}  // namespace moracle
