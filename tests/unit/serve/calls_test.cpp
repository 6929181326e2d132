// Calls of tools over a socket: an engine that gives back the prompt makes the calls that the prompt spells.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/serve_fixture.h"
#include "text/reply/call_syntax.h"

namespace moracle::serve {
namespace {

using test::HttpAnswer;

constexpr const char* kPath = "/v1/chat/completions";
const Json kTools = Json::parse(R"([{"type": "function", "function": {"name": "f", "parameters":
  {"type": "object", "properties": {"a": {"type": "integer"}}}}}, {"type": "function", "function": {"name": "g"}}])");
const std::string kWords =
    "Well.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": \"x\\ny\"}}\n</tool_call>\n"
    "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";
const std::string kFirst = R"({"a": 1, "b": "x\ny"})";

class ServeCalls : public test::ServeFixture {
 protected:
  static void SetUpTestSuite() {
    ServeFixture::SetUpTestSuite();
    text_->set_call_syntax(*find_call_syntax("hermes"));
  }

  static Json body(const Json& more) {
    Json json = {{"messages", Json::array({{{"role", "user"}, {"content", kWords}}})}, {"tools", kTools}};
    json.update(more);
    return json;
  }
  [[nodiscard]] HttpAnswer chat(const Json& more) const { return post(kPath, body(more).dump()); }
  [[nodiscard]] Json choice(const Json& more) const { return chat(more).json()["choices"][0]; }
  // Of the prompt, which the engine gives back.
  [[nodiscard]] std::int64_t prompt_tokens() const {
    return post("/tokenize", body(Json::object()).dump()).json()["count"].get<std::int64_t>();
  }
  static std::vector<Json> frames_of(const std::string& stream) {
    std::vector<Json> frames;
    for (std::size_t at = stream.find("data: {"); at != std::string::npos; at = stream.find("data: {", at + 1))
      frames.push_back(Json::parse(stream.substr(at + 6, stream.find('\n', at) - at - 6)));
    return frames;
  }
};

TEST_F(ServeCalls, AreToldFromTheText) {
  serve();
  const Json all = choice({{"stop", "assistant"}});
  EXPECT_EQ(all["finish_reason"], "tool_calls");
  EXPECT_EQ(all["message"]["content"], "user\nWell.");
  const Json& calls = all["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0]["type"], "function");
  EXPECT_EQ(calls[0]["function"], Json({{"name", "f"}, {"arguments", kFirst}}));
  EXPECT_EQ(calls[1]["function"], Json({{"name", "g"}, {"arguments", "{}"}}));
  EXPECT_NE(calls[0]["id"], calls[1]["id"]);
  const Json one = choice({{"parallel_tool_calls", false}});
  EXPECT_EQ(one["finish_reason"], "tool_calls");
  EXPECT_EQ(one["message"]["tool_calls"].size(), 1U);
  const Json two = chat({{"parallel_tool_calls", false}, {"n", 2}}).json()["choices"];
  EXPECT_NE(two[0]["message"]["tool_calls"][0]["id"], two[1]["message"]["tool_calls"][0]["id"]);
}

TEST_F(ServeCalls, StreamNamesFirstThenArguments) {
  serve();
  const HttpAnswer answer = chat({{"stop", "assistant"}, {"stream", true}});
  std::vector<Json> calls;
  std::string content, finish;
  for (const Json& frame : frames_of(answer.body)) {
    const Json& choice = frame["choices"][0];
    content += choice["delta"].value("content", "");
    if (choice["finish_reason"].is_string()) finish = choice["finish_reason"].get<std::string>();
    for (const Json& delta : choice["delta"].value("tool_calls", Json::array())) {
      const auto index = delta["index"].get<std::size_t>();
      if (delta.contains("id")) {
        ASSERT_EQ(index, calls.size());
        calls.push_back(delta);
        EXPECT_EQ(delta["function"]["arguments"], "");
      } else {
        ASSERT_EQ(index + 1, calls.size());
        calls[index]["function"]["arguments"].get_ref<std::string&>() +=
            delta["function"]["arguments"].get<std::string>();
      }
    }
  }
  EXPECT_EQ(finish, "tool_calls");
  EXPECT_EQ(content, "user\nWell.");
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0]["function"], Json({{"name", "f"}, {"arguments", kFirst}}));
  EXPECT_EQ(calls[1]["function"], Json({{"name", "g"}, {"arguments", "{}"}}));
}

TEST_F(ServeCalls, ACutReplyHasNoHalfCall) {
  serve();
  const std::int64_t whole = prompt_tokens();
  std::size_t most = 0;
  for (std::int64_t tokens = 1; tokens <= whole; ++tokens) {
    const Json cut = choice({{"max_tokens", tokens}});
    EXPECT_EQ(cut["finish_reason"], "length");
    const Json calls = cut["message"].value("tool_calls", Json::array());
    for (const Json& call : calls) EXPECT_TRUE(Json::accept(call["function"]["arguments"].get<std::string>()));
    EXPECT_GE(calls.size(), most);
    most = calls.size();
    const Json& content = cut["message"]["content"];
    if (content.is_string()) {
      EXPECT_EQ(content.get<std::string>().find("{\""), std::string::npos) << content;
    }
  }
  EXPECT_EQ(most, 2U);
}

TEST_F(ServeCalls, WithoutToolsTheyAreText) {
  serve();
  for (const Json& more : {Json{{"tools", nullptr}}, Json{{"tools", Json::array()}}, Json{{"tool_choice", "none"}}}) {
    Json asked = more;
    asked["stop"] = "assistant";
    const Json plain = choice(asked);
    EXPECT_EQ(plain["finish_reason"], "stop");
    EXPECT_NE(plain["message"]["content"].get<std::string>().find(kWords), std::string::npos);
    EXPECT_FALSE(plain["message"].contains("tool_calls"));
  }
}

TEST_F(ServeCalls, WhatWasMendedIsToldInAHeader) {
  serve();
  const Json messages = Json::array({{{"role", "tool"}, {"tool_call_id", "1"}, {"content", "orphan"}}});
  const HttpAnswer answer = chat({{"messages", messages}, {"max_tokens", 1}});
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.has("x-moracle-changed: messages[0].role")) << answer.head;
  EXPECT_TRUE(
      chat({{"messages", messages}, {"max_tokens", 1}, {"stream", true}}).has("x-moracle-changed: messages[0].role"));
  EXPECT_FALSE(chat({{"max_tokens", 1}}).has("x-moracle-changed"));
}

class ServeNoCalls : public test::ServeFixture {};

TEST_F(ServeNoCalls, AModelWithoutASyntaxRefusesTools) {
  serve();
  const Json body = {{"messages", Json::array({{{"role", "user"}, {"content", "a"}}})}, {"tools", kTools}};
  const HttpAnswer answer = post(kPath, body.dump());
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.json()["error"]["code"], "tools_unsupported");
  EXPECT_EQ(answer.json()["error"]["param"], "tools");
  EXPECT_TRUE(answer.has("--tool-format"));
}

}  // namespace
}  // namespace moracle::serve
