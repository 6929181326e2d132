// Lists of tools: what is taken, what templates see of it, and what is refused with its place.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "text/constrain/calls/tool_use.h"
#include "text/reply/tool_list.h"

namespace moracle {
namespace {

OrderedJson tool(const OrderedJson& function) {
  return {{"type", "function"}, {"function", function}};
}

TEST(ToolList, TemplatesSeeASchemaAndNoWordAboutStrictness) {
  EXPECT_EQ(*read_tool_list(nullptr), OrderedJson());
  EXPECT_EQ(*read_tool_list(OrderedJson::array()), OrderedJson());
  const OrderedJson schema = {{"type", "object"}, {"properties", {{"b", true}, {"a", true}}}};
  const auto seen = read_tool_list(
      OrderedJson::array({tool({{"name", "f"}, {"strict", true}, {"parameters", schema}, {"description", nullptr}}),
                          tool({{"name", "g"}})}));
  ASSERT_TRUE(seen.ok()) << seen.error().message();
  EXPECT_EQ((*seen)[0], tool({{"name", "f"}, {"parameters", schema}}));
  EXPECT_EQ((*seen)[0]["function"]["parameters"]["properties"].begin().key(), "b") << "members keep their order";
  EXPECT_EQ((*seen)[1]["function"]["parameters"],
            (OrderedJson{{"type", "object"}, {"properties", OrderedJson::object()}}));
}

TEST(ToolList, IsRefusedWithItsPlace) {
  using Refusal = std::pair<std::string, std::string>;
  const auto refusal = [](const OrderedJson& tools) {
    const auto seen = read_tool_list(tools);
    EXPECT_FALSE(seen.ok());
    return seen.ok() ? Refusal() : Refusal(seen.error().code, seen.error().where);
  };
  const auto one = [](const OrderedJson& entry) { return OrderedJson::array({entry}); };
  EXPECT_EQ(refusal(3), Refusal("request.type", "tools"));
  EXPECT_EQ(refusal(one(3)), Refusal("request.type", "tools[0]"));
  EXPECT_EQ(refusal(one({{"type", "web_search"}})), Refusal("request.unsupported", "tools[0].type"));
  EXPECT_EQ(refusal(one({{"type", "function"}})), Refusal("request.type", "tools[0].function"));
  EXPECT_EQ(refusal(one(tool(OrderedJson::object()))), Refusal("request.missing", "tools[0].function.name"));
  for (const std::string& name : {std::string("a b"), std::string(), std::string("\xc3\xa9"), std::string(65, 'a')})
    EXPECT_EQ(refusal(one(tool({{"name", name}}))), Refusal("request.value", "tools[0].function.name"));
  EXPECT_TRUE(read_tool_list(one(tool({{"name", std::string(64, 'a')}}))).ok());
  EXPECT_EQ(refusal(one(tool({{"name", "f"}, {"description", 3}}))),
            Refusal("request.type", "tools[0].function.description"));
  EXPECT_EQ(refusal(one(tool({{"name", "f"}, {"parameters", "{}"}}))),
            Refusal("request.type", "tools[0].function.parameters"));
  EXPECT_EQ(refusal(one(tool({{"name", "f"}, {"parameters", {{"const", std::string(kToolSchemaBytes, 'a')}}}}))),
            Refusal("request.limit", "tools[0].function.parameters"));
  EXPECT_EQ(refusal(OrderedJson::array({tool({{"name", "f"}}), tool({{"name", "f"}})})),
            Refusal("request.value", "tools[1].function.name"));
  OrderedJson many = OrderedJson::array();
  for (std::size_t i = 0; i <= kMostTools; ++i) many.push_back(tool({{"name", "f" + std::to_string(i)}}));
  EXPECT_EQ(refusal(many), Refusal("request.limit", "tools"));
}

TEST(ToolUse, AChoiceSaysWhatAReplyMayAndMustCall) {
  const OrderedJson tools = OrderedJson::array({tool({{"name", "f"}}), tool({{"name", "g"}, {"strict", true}})});
  for (const OrderedJson& choice : {OrderedJson(), OrderedJson("auto")}) {
    const auto use = read_tool_use(tools, choice);
    ASSERT_TRUE(use.ok());
    EXPECT_TRUE(use->may_call() && !use->must_call);
    EXPECT_EQ(use->forms.size(), 2U);
  }
  EXPECT_FALSE(read_tool_use(tools, "none")->may_call());
  EXPECT_TRUE(read_tool_use(tools, "required")->must_call);
  const auto named = read_tool_use(tools, {{"type", "function"}, {"function", {{"name", "g"}}}});
  ASSERT_TRUE(named.ok());
  ASSERT_EQ(named->forms.size(), 1U);
  EXPECT_TRUE(named->must_call && named->forms[0].strict && named->forms[0].name == "g");
  EXPECT_EQ(named->tools.size(), 2U) << "the template shows all";
  EXPECT_FALSE(read_tool_use(nullptr, nullptr)->may_call());
  const OrderedJson other = {{"type", "function"}, {"function", {{"name", "h"}}}};
  for (const auto& [list, choice] : {std::pair<OrderedJson, OrderedJson>(tools, "some"),
                                     {tools, other},
                                     {tools, 3},
                                     {nullptr, "required"},
                                     {nullptr, other}}) {
    const auto use = read_tool_use(list, choice);
    ASSERT_FALSE(use.ok()) << choice;
    EXPECT_EQ(use.error().code, "request.value");
    EXPECT_EQ(use.error().where, "tool_choice");
  }
}

}  // namespace
}  // namespace moracle
