#include "base/json.h"

#include <gtest/gtest.h>

#include "support/temporary_folder.h"

namespace moracle {
namespace {

std::string code_of(std::string_view text, JsonLimits limits = {}) {
  const auto result = parse_json(text, "file.json", limits);
  if (result.ok()) return "";
  EXPECT_EQ(result.error().file, "file.json");
  EXPECT_FALSE(result.error().found.empty());
  return result.error().code;
}

TEST(ParseJson, ReadsWhatIsValid) {
  const auto json = parse_json(R"({"a":[1,2.5,"x\n",true,null],"b":{"a":{}}})", "file.json");
  ASSERT_TRUE(json.ok()) << json.error().message();
  EXPECT_EQ(json->at("a").size(), 5U);
}

TEST(ParseJson, NamesTheByteOfASyntaxError) {
  for (const char* text : {"", "{", "{\"a\":}", "[1,]", "{'a':1}", "nul", "[1] x", "[NaN]", "[01]", "\"\x01\""}) {
    EXPECT_EQ(code_of(text), "json.syntax") << text;
  }
  const auto result = parse_json("[1,2,x]", "file.json");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().where, "byte 6");
}

TEST(ParseJson, RefusesTextThatIsNotUtf8) {
  EXPECT_EQ(code_of("\"\xFF\""), "json.syntax");
  EXPECT_EQ(code_of("\"\xC0\x80\""), "json.syntax");
  EXPECT_EQ(code_of("\"\\ud800\""), "json.syntax");
}

TEST(ParseJson, RefusesNumbersOutOfRangeWithoutThrowing) {
  EXPECT_EQ(code_of("[1e999]"), "json.syntax");
}

TEST(ParseJson, BoundsSizeAndDepth) {
  EXPECT_EQ(code_of("[1]", {.bytes = 2, .depth = 64}), "json.size");
  EXPECT_EQ(code_of("[[[]]]", {.bytes = 100, .depth = 2}), "json.depth");
  EXPECT_EQ(code_of("[[],[],{}]", {.bytes = 100, .depth = 2}), "");
  EXPECT_EQ(code_of(R"(["[[[[{{{{\"[[[["])", {.bytes = 100, .depth = 1}), "") << "brackets in strings do not nest";
  EXPECT_EQ(code_of(std::string(1U << 20, '[')), "json.depth");
}

TEST(ParseJson, RefusesDuplicateKeysOfOneObjectOnly) {
  EXPECT_EQ(code_of(R"({"a":1,"a":2})"), "json.duplicate");
  EXPECT_EQ(code_of(R"({"a":1,"\u0061":2})"), "json.duplicate");
  EXPECT_EQ(code_of(R"([{"x":{"a":1,"b":{"a":1},"a":2}}])"), "json.duplicate");
  EXPECT_EQ(code_of(R"({"a":{"a":1},"b":{"a":1}})"), "");
}

class JsonReaderTest : public testing::Test {
 protected:
  Json json_ = Json::parse(R"({"int":7,"real":7.0,"half":7.5,"huge":18446744073709551615,"big":1e300,"neg":-1,
                               "text":"t","flag":true,"null":null,"list":[]})");
  JsonReader reader_{json_, "config.json", "/base"};
};

TEST_F(JsonReaderTest, ReadsIntegersInTheirRange) {
  EXPECT_EQ(*reader_.integer("int", 0, 10), 7);
  EXPECT_EQ(*reader_.integer("real", 0, 10), 7);
  EXPECT_EQ(*reader_.integer("int", 7, 7), 7);
  const auto above = reader_.integer("int", 0, 6);
  ASSERT_FALSE(above.ok());
  EXPECT_EQ(above.error().code, "config.range");
  EXPECT_EQ(above.error().message(), "config.json: /base/int: wanted 0 to 6, found 7 [config.range]");
  EXPECT_EQ(reader_.integer("neg", 0, 10).error().code, "config.range");
  for (const char* key : {"half", "huge", "big", "text", "flag", "list"}) {
    EXPECT_EQ(reader_.integer(key, INT64_MIN, INT64_MAX).error().code, "config.type") << key;
  }
  for (const char* key : {"absent", "null"}) {
    EXPECT_EQ(reader_.integer(key, 0, 10).error().code, "config.missing") << key;
    EXPECT_EQ(*reader_.integer_or(key, 5, 0, 10), 5) << key;
  }
  EXPECT_EQ(reader_.integer_or("text", 5, 0, 10).error().code, "config.type");
}

TEST_F(JsonReaderTest, ReadsOtherTypes) {
  EXPECT_EQ(*reader_.number_or("half", 0), 7.5);
  EXPECT_EQ(*reader_.number_or("absent", 0.5), 0.5);
  EXPECT_EQ(reader_.number_or("text", 0).error().where, "/base/text");
  EXPECT_TRUE(*reader_.boolean_or("flag", false));
  EXPECT_EQ(reader_.boolean_or("int", false).error().code, "config.type");
  EXPECT_EQ(*reader_.string_or("text", ""), "t");
  EXPECT_EQ(*reader_.string_or("null", "fallback"), "fallback");
  EXPECT_EQ(reader_.string_or("list", "").error().code, "config.type");
}

TEST(ReadText, TellsWhatIsWrongWithAPath) {
  const test::TemporaryFolder folder;
  EXPECT_EQ(read_text(folder.path() / "no-such-file").error().code, "file.open");
  EXPECT_EQ(read_text(folder.path()).error().code, "file.open");
  folder.write("text", "12345");
  const auto path = folder.path() / "text";
  EXPECT_EQ(*read_text(path), "12345");
  EXPECT_EQ(read_text(path, 4).error().code, "file.size");
  EXPECT_EQ(*read_text(path, 5), "12345");
  EXPECT_EQ(read_json(path)->get<int>(), 12345);
}

}  // namespace
}  // namespace moracle
