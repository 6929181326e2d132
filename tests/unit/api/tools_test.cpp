// Tools that answers of the C interface call.
#include <string>
#include <utility>
#include <vector>

#include "support/scripted_model.h"
#include "support/temporary_folder.h"
#include "text/constrain/grammar/grammar_compiler.h"
#include "unit/api/c_call.h"

namespace moracle::test {
namespace {

constexpr const char* kTools =
    R"([{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
        "properties": {"city": {"const": "Oslo"}}, "required": ["city"], "additionalProperties": false}}}])";
constexpr const char* kCall = "\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n";
constexpr const char* kPrompt = "Warm?\n";

class CTools : public ::testing::Test {
 protected:
  void SetUp() override {
    write_scripted_model(folder_.path(),
                         {.reply = {"Let us see.", "<tool_call>", kCall, "</tool_call>", "Done."},
                          .special = {},
                          .chat_template = "{{ messages[0].content }}{% for m in messages %}{% for c in "
                                           "m.tool_calls or [] %}{{ c.function.arguments.city }}"
                                           "{% endfor %}{% endfor %}\n"});
  }
  [[nodiscard]] moracle_engine* open(const char* format) const {
    return opened_engine(folder_.path(), nullptr, format);
  }
  static moracle_generate_options asking(std::int64_t tokens = 1500) {
    moracle_generate_options options = greedy(tokens);
    options.ignore_eos = 0;
    options.tools = kTools;
    return options;
  }
  static moracle_status generate(moracle_engine* engine, const moracle_generate_options& options, char** json,
                                 moracle_error** error) {
    const auto ids = tokens_of(engine, kPrompt);
    return moracle_engine_generate(engine, ids.data(), ids.size(), kPrompt, &options, nullptr, nullptr, json, error);
  }
  static Json reply_of(moracle_engine* engine, const moracle_generate_options& options) {
    return document_of([&](char** json, moracle_error** error) { return generate(engine, options, json, error); });
  }

  TemporaryFolder folder_;
};

TEST_F(CTools, AreCalled) {
  moracle_engine* const engine = open("hermes");
  const Json reply = reply_of(engine, asking());
  EXPECT_EQ(reply["finish_reason"], "tool_calls");
  EXPECT_EQ(reply["answer"].get<std::string>().substr(0, 11), "Let us see.");
  ASSERT_EQ(reply["tool_calls"].size(), 1U) << reply.dump();
  const Json& call = reply["tool_calls"][0];
  EXPECT_EQ(call["type"], "function");
  EXPECT_EQ(call["id"].get<std::string>().size(), 29U);
  EXPECT_EQ(call["function"]["name"], "get_weather");
  EXPECT_EQ(Json::parse(call["function"]["arguments"].get<std::string>()), Json({{"city", "Oslo"}}));
  moracle_generate_options other = asking();
  other.seed = 7;
  EXPECT_NE(reply_of(engine, other)["tool_calls"][0]["id"], call["id"]);
  moracle_generate_options one = asking();
  one.max_calls = 1;
  EXPECT_LT(reply_of(engine, one)["ids"].size(), reply["ids"].size()) << "what follows the call is not made";
  EXPECT_EQ(moracle_engine_close(engine), MORACLE_OK);
}

TEST_F(CTools, AreCalledAsTheChoiceSays) {
  if (!can_constrain()) GTEST_SKIP() << "built without xgrammar";
  moracle_engine* const engine = open("hermes");
  const auto reply = [&](const auto& change) {
    moracle_generate_options options = asking();
    change(options);
    return reply_of(engine, options);
  };
  for (const char* const choice : {"\"required\"", R"({"type": "function", "function": {"name": "get_weather"}})"}) {
    const Json called = reply([&](auto& o) { o.tool_choice = choice; });
    EXPECT_EQ(called["answer"], "") << "a reply that must call says nothing beside";
    EXPECT_TRUE(called["text"].get<std::string>().starts_with("<tool_call>")) << called.dump();
  }
  EXPECT_EQ(reply([](auto& o) { o.tool_choice = "\"none\""; })["tool_calls"], nullptr);
  EXPECT_EQ(reply([](auto& o) { o.tool_choice = "\"auto\""; })["finish_reason"], "tool_calls");
  const Json formed = reply([](auto& o) { o.structured_outputs = R"({"choice": ["a", "b"]})"; });
  const bool calls = !formed["tool_calls"].is_null();
  EXPECT_TRUE(calls || formed["answer"] == "a" || formed["answer"] == "b") << formed.dump();
  EXPECT_EQ(moracle_engine_close(engine), MORACLE_OK);
}

TEST_F(CTools, AreNotCalledByHalves) {
  moracle_engine* const engine = open("hermes");
  const Json cut = reply_of(engine, asking(3));
  EXPECT_EQ(cut["finish_reason"], "length");
  EXPECT_EQ(cut["tool_calls"], nullptr);
  moracle_generate_options none = asking();
  none.tools = nullptr;
  const Json text = reply_of(engine, none);
  EXPECT_EQ(text["tool_calls"], nullptr);
  EXPECT_NE(text["answer"].get<std::string>().find("get_weather"), std::string::npos);
  EXPECT_EQ(moracle_engine_close(engine), MORACLE_OK);
}

TEST_F(CTools, ThatCannotBeCalledAreErrors) {
  moracle_engine* const engine = open("hermes");
  moracle_engine* const unknown = open(nullptr);
  char* json = nullptr;
  const auto refusal = [&](moracle_engine* of, const auto& change) {
    moracle_generate_options options = asking();
    change(options);
    CallError error;
    EXPECT_NE(generate(of, options, &json, &error.error), MORACLE_OK);
    return std::pair<std::string, std::string>(error.code(), error.error == nullptr ? "" : error.error->where);
  };
  using Refusal = std::pair<std::string, std::string>;
  EXPECT_EQ(refusal(unknown, [](auto&) {}), Refusal("tools.unsupported", "options.tools"));
  EXPECT_EQ(refusal(engine, [](auto& o) { o.tools = "{"; }), Refusal("argument.json", "options.tools"));
  EXPECT_EQ(refusal(engine, [](auto& o) { o.tools = "{}"; }), Refusal("argument.type", "options.tools"));
  EXPECT_EQ(refusal(engine, [](auto& o) { o.max_calls = -1; }), Refusal("argument.range", "options.max_calls"));
  EXPECT_EQ(refusal(engine, [](auto& o) { o.tool_choice = "some"; }), Refusal("argument.json", "options.tool_choice"));
  EXPECT_EQ(refusal(engine, [](auto& o) { o.tool_choice = "\"some\""; }),
            Refusal("argument.value", "options.tool_choice"));
  EXPECT_EQ(refusal(engine, [](auto& o) { o.tool_choice = R"({"type": "function", "function": {"name": "other"}})"; }),
            Refusal("argument.value", "options.tool_choice"));
  const auto required = [](auto& o) { o.tool_choice = "\"required\""; };
  EXPECT_EQ(refusal(engine,
                    [&](auto& o) {
                      required(o);
                      o.tools = nullptr;
                    }),
            Refusal("argument.value", "options.tool_choice"));
  EXPECT_EQ(refusal(engine,
                    [&](auto& o) {
                      required(o);
                      o.ignore_eos = 1;
                    }),
            Refusal("argument.range", "options.ignore_eos"));
  if (can_constrain()) {
    EXPECT_EQ(refusal(engine, [](auto& o) { o.structured_outputs = R"({"json": {"not": {}}})"; }),
              Refusal("schema.unsupported", "options.structured_outputs.json/not"));
  }
  moracle_engine_options options{};
  options.size = sizeof options;
  options.tool_format = "morse";
  moracle_engine* none = nullptr;
  EXPECT_EQ(code_of(MORACLE_INVALID,
                    [&](auto** error) { return moracle_engine_open(folder_.path().c_str(), &options, &none, error); }),
            "argument.name");
  for (moracle_engine* const each : {engine, unknown}) EXPECT_EQ(moracle_engine_close(each), MORACLE_OK);
}

// Clients keep arguments as they get them, JSON as text; templates read objects.
TEST_F(CTools, OfEarlierTurnsReachTheTemplateAsObjects) {
  moracle_engine* const engine = open("hermes");
  char* text = nullptr;
  std::int32_t* ids = nullptr;
  std::uint64_t count = 0;
  CallError error;
  ASSERT_EQ(moracle_engine_template(engine, R"({"messages": [{"role": "user", "content": "Warm in "},
      {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "type": "function",
       "function": {"name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"}}]}]})",
                                    &text, &ids, &count, &error.error),
            MORACLE_OK)
      << error.message();
  EXPECT_EQ(std::string(text), "Warm in Oslo");
  moracle_free(text);
  moracle_free(ids);
  EXPECT_EQ(moracle_engine_close(engine), MORACLE_OK);
}

}  // namespace
}  // namespace moracle::test
