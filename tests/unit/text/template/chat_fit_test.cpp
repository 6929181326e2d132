// Conversations in the shapes that templates differ in.
#include "text/template/chat_fit.h"

#include <gtest/gtest.h>

#include <string>

namespace moracle {
namespace {

OrderedJson opened(const OrderedJson& arguments, bool fits = true) {
  OrderedJson function = {{"name", "f"}, {"arguments", arguments}};
  EXPECT_EQ(open_arguments_of(function), fits) << arguments;
  return function["arguments"];
}

TEST(ChatFit, ArgumentsOfCallsBecomeObjects) {
  EXPECT_EQ(opened(R"({"b": 1, "a": [2]})"), (OrderedJson{{"b", 1}, {"a", {2}}}));
  EXPECT_EQ(opened(R"({"b": 1, "a": 2})").begin().key(), "b") << "members keep their order";
  EXPECT_EQ(opened({{"a", 1}}), (OrderedJson{{"a", 1}}));
  EXPECT_EQ(opened(nullptr), OrderedJson::object());
  EXPECT_EQ(opened(""), OrderedJson::object());
  for (const OrderedJson& broken : {OrderedJson(R"({"a": )"), OrderedJson("[1]"), OrderedJson("Oslo"), OrderedJson(3)})
    EXPECT_EQ(opened(broken, false), (OrderedJson{{"arguments", broken}}));
  OrderedJson deep = {{"arguments", std::string(80, '[')}};
  EXPECT_FALSE(open_arguments_of(deep));
}

TEST(ChatFit, WhatIsNoCallIsLeftAsItIs) {
  OrderedJson messages =
      OrderedJson::array({3,
                          {{"role", "user"}},
                          {{"tool_calls", "none"}},
                          {{"tool_calls", {1, {{"function", 2}}}}},
                          {{"tool_calls", OrderedJson::array({{{"function", {{"arguments", R"({"a":1})"}}}}})}}});
  const OrderedJson before = messages;
  open_arguments(messages);
  EXPECT_EQ(messages[4]["tool_calls"][0]["function"]["arguments"], (OrderedJson{{"a", 1}}));
  close_arguments(messages);
  EXPECT_EQ(messages, before);
}

TEST(ChatFit, TextsThatAreMissingAreEmpty) {
  ChatRequest chat{.messages = OrderedJson::array({{{"role", "user"}, {"content", "a"}},
                                                   {{"role", "assistant"}, {"content", nullptr}},
                                                   {{"role", "assistant"}}}),
                   .tools = OrderedJson::array({{{"function", {{"name", "f"}}}}})};
  EXPECT_TRUE(fill_texts(chat));
  EXPECT_EQ(chat.messages[0]["content"], "a");
  EXPECT_EQ(chat.messages[1]["content"], "");
  EXPECT_EQ(chat.messages[2]["content"], "");
  EXPECT_EQ(chat.tools[0]["function"]["description"], "");
  EXPECT_FALSE(fill_texts(chat));
}

}  // namespace
}  // namespace moracle
