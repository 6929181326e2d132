// Documents whose members stay in the order of the text, whole or in part.
#include "base/json/document.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>

namespace moracle {
namespace {

constexpr std::array<std::string_view, 2> kOrdered = {"m", "n"};

TEST(JsonDocument, NamedMembersKeepTheirOrder) {
  const auto read = parse_document(
      R"({"z": {"b": 1, "a": 2}, "m": [{"b": 1, "a": {"d": 3, "c": 4}}], "a": 5, "n": {"f": 1, "e": 2}})", "f", {},
      kOrdered);
  ASSERT_TRUE(read.ok()) << read.error().message();
  ASSERT_EQ(read->ordered.size(), 2U);
  EXPECT_EQ(read->ordered[0].dump(), R"([{"b":1,"a":{"d":3,"c":4}}])");
  EXPECT_EQ(read->ordered[1].dump(), R"({"f":1,"e":2})");
  EXPECT_EQ(read->json.dump(), R"({"a":5,"m":null,"n":null,"z":{"a":2,"b":1}})");
  EXPECT_FALSE(read->has_nul || read->has_not_finite);
}

TEST(JsonDocument, OnlyTheOutermostObjectsMemberIsApart) {
  const auto read = parse_document(R"({"x": {"m": {"b": 1, "a": 2}}})", "f", {}, kOrdered);
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(read->ordered[0].is_null() && read->ordered[1].is_null());
  EXPECT_EQ(read->json.dump(), R"({"x":{"m":{"a":2,"b":1}}})");
}

TEST(JsonDocument, EveryKindOfValueIsTheSameInEitherOrder) {
  const std::string text =
      R"({"a": [true, false, null, 1, -2, 18446744073709551615, 1.5e3, 1e-999, "t\u00e9\n", {}, []], "b": -0})";
  const auto ordered = parse_ordered_json(text, "f");
  const auto sorted = parse_json(text, "f");
  ASSERT_TRUE(ordered.ok() && sorted.ok());
  EXPECT_EQ(ordered->dump(), sorted->dump());
}

TEST(JsonDocument, ErrorsAreTheSameInEitherOrder) {
  const JsonLimits limits{.bytes = 1000, .depth = 3, .values = 20};
  const std::string many = "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]";
  for (const std::string& text :
       {std::string("{\"a\":1,\"a\":2}"), std::string("{\"a\":}"), std::string("[[[[1]]]]"), many,
        std::string("\"\\ud800\""), std::string("1e999"), std::string("1 2"), std::string(), std::string(1001, ' ')}) {
    const auto sorted = parse_json(text, "f", limits);
    const auto ordered = parse_ordered_json(text, "f", limits);
    const auto apart = parse_document("{\"m\":" + text + "}", "f", {.bytes = 2000, .depth = 4, .values = 21}, kOrdered);
    ASSERT_FALSE(sorted.ok()) << text;
    ASSERT_FALSE(ordered.ok()) << text;
    EXPECT_FALSE(apart.ok() && text.size() < 1000) << text;
    EXPECT_EQ(ordered.error().message(), sorted.error().message());
  }
}

TEST(JsonDocument, NulAndNumbersThatAreNoneAreSeen) {
  for (const char* const text :
       {R"({"a": "\u0000"})", R"({"\u0000": 1})", R"({"m": ["x\u0000"]})", R"({"m": {"\u0000": 1}})"}) {
    const auto read = parse_document(text, "f", {}, kOrdered);
    ASSERT_TRUE(read.ok()) << text;
    EXPECT_TRUE(read->has_nul) << text;
    EXPECT_FALSE(read->has_not_finite);
  }
  for (const char* const text : {R"({"a": NaN})", R"({"m": [-Infinity]})", R"({"a": {"b": Infinity}})"}) {
    const auto read = parse_document(text, "f", {}, kOrdered);
    ASSERT_TRUE(read.ok()) << text;
    EXPECT_TRUE(read->has_not_finite) << text;
    EXPECT_FALSE(read->has_nul);
  }
  EXPECT_FALSE(parse_document(R"({"a": "NaN \\u0000"})", "f")->has_nul);
}

TEST(JsonDocument, ManyMembersAreReadInTime) {
  std::string text = "{";
  constexpr int kMembers = 200000;
  for (int i = kMembers; i > 0; --i) text += (i < kMembers ? ",\"" : "\"") + std::to_string(i) + "\":0";
  const auto read = parse_ordered_json(text + "}", "f");
  ASSERT_TRUE(read.ok()) << read.error().message();
  EXPECT_EQ(read->size(), static_cast<std::size_t>(kMembers));
  EXPECT_EQ(read->begin().key(), std::to_string(kMembers));
  EXPECT_EQ(parse_ordered_json(text + ",\"7\":1}", "f").error().code, "json.duplicate");
}

}  // namespace
}  // namespace moracle
