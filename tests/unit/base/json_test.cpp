#include "base/json.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <cmath>
#include <limits>

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
  for (const char* text : {"", "{", "{\"a\":}", "[1,]", "{'a':1}", "nul", "[1] x", "[nan]", "[01]", "\"\x01\""}) {
    EXPECT_EQ(code_of(text), "json.syntax") << text;
  }
  const auto result = parse_json("[1,2,x]", "file.json");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().where, "byte 5");
}

TEST(ParseJson, RefusesTextThatIsNotUtf8) {
  EXPECT_EQ(code_of("\"\xFF\""), "json.syntax");
  EXPECT_EQ(code_of("\"\xC0\x80\""), "json.syntax");
  EXPECT_EQ(code_of("\"\\ud800\""), "json.syntax");
}

TEST(ParseJson, RefusesNumbersOutOfRangeWithoutThrowing) {
  EXPECT_EQ(code_of("[1e999]"), "json.syntax");
}

// Python's json writes these three, and reads them; nothing else that resembles them.
TEST(ParseJson, ReadsTheNumbersThatPythonWrites) {
  const auto json = parse_json(R"({"a":NaN,"b":[Infinity, -Infinity],"c":"NaN","NaN":1})", "file.json");
  ASSERT_TRUE(json.ok()) << json.error().message();
  EXPECT_TRUE(std::isnan(json->at("a").get<double>()));
  EXPECT_EQ(json->at("b")[0].get<double>(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(json->at("b")[1].get<double>(), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(json->at("c"), "NaN");
  for (const char* text : {"[-NaN]", "[+Infinity]", "[inf]", "[Infinit]", "[NaN1]", "{NaN:1}", "[- Infinity]",
                           "[INFINITY]", "[Infinity0]", "NaNNaN"}) {
    EXPECT_EQ(code_of(text), "json.syntax") << text;
  }
  const JsonReader reader(*json, "file.json");
  const auto unusable = reader.number_or("a", 1.0);
  ASSERT_FALSE(unusable.ok());
  EXPECT_EQ(unusable.error().where, "/a");
  EXPECT_EQ(unusable.error().found, "NaN");
  EXPECT_EQ(reader.integer("a", 0, 1).error().code, "config.type");
}

TEST(ParseJson, KeepsNumbersAsTheyAre) {
  const auto json = parse_json(
      "[0, -0, 18446744073709551615, -9223372036854775808, 18446744073709551616, 1.5, 1e2, 1e-400, -0.0, 5e-324]", "f");
  ASSERT_TRUE(json.ok()) << json.error().message();
  EXPECT_EQ(*json, Json::parse(json->dump()));
  EXPECT_TRUE((*json)[0].is_number_unsigned());
  EXPECT_TRUE((*json)[1].is_number_integer());
  EXPECT_EQ((*json)[2].get<std::uint64_t>(), UINT64_MAX);
  EXPECT_EQ((*json)[3].get<std::int64_t>(), INT64_MIN);
  EXPECT_TRUE((*json)[4].is_number_float());
  EXPECT_EQ((*json)[4].get<double>(), 18446744073709551616.0);
  EXPECT_TRUE((*json)[6].is_number_float());
  EXPECT_EQ((*json)[7].get<double>(), 0.0);
  EXPECT_EQ((*json)[9].get<double>(), 5e-324);
}

// Held against the library's own parser, on texts that it accepts.
TEST(ParseJson, AgreesWithTheLibrary) {
  for (const char* text : {"\xEF\xBB\xBF{}", " [ ] ", R"({"b":1,"a":{"z":[],"y":{}},"":null})",
                           R"("\ud83d\ude42\u00e4\/\b\f\n\r\t\"\\")", "[[[1,[2,{\"a\":[true,false,null]}]]]]", "123",
                           "\"\"", "[1e5,1E+5,1e-5,0.1,-7]", "\t\r\n{\"a\" : 1 , \"b\":2}\n"}) {
    const auto json = parse_json(text, "file.json");
    ASSERT_TRUE(json.ok()) << text << ": " << json.error().message();
    EXPECT_EQ(*json, Json::parse(text)) << text;
  }
}

TEST(ParseJson, BoundsTheNumberOfValues) {
  EXPECT_EQ(code_of("[1,2,3]", {.bytes = 100, .depth = 64, .values = 4}), "");
  EXPECT_EQ(code_of("[1,2,3]", {.bytes = 100, .depth = 64, .values = 3}), "json.values");
  EXPECT_EQ(code_of(R"({"a":{},"b":[]})", {.bytes = 100, .depth = 64, .values = 2}), "json.values");
}

// What json.h states of memory, for the shapes that take most.
TEST(ParseJson, TakesAStatedMultipleOfTheText) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers bring a malloc of their own";
#elif defined(__GLIBC__)
  const auto list = [](const char* element, std::size_t count) {
    std::string text = "[";
    for (std::size_t i = 0; i < count; ++i) text += (i == 0 ? "" : ",") + std::string(element);
    return text + "]";
  };
  std::string members = "{";
  for (int i = 0; i < 100000; ++i) members += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":0";
  members += "}";
  for (const std::string& text : {list("0", 1 << 20), list("{}", 1 << 19), list("[]", 1 << 19), list("\"\"", 1 << 19),
                                  list("{\"\":0}", 1 << 18), list("[0]", 1 << 18), members}) {
    const std::size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    const auto json = parse_json(text, "file.json");
    ASSERT_TRUE(json.ok());
    const std::size_t taken = mallinfo2().uordblks + mallinfo2().hblkhd - before;
    EXPECT_LE(taken, 40 * text.size()) << text.substr(0, 20);
  }
#endif
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

// So many members that most wait until their object is whole, in an order that no writer has.
TEST(ParseJson, TakesManyMembersInAnyOrder) {
  constexpr int kMembers = 5003;
  const auto text = [](int count) {
    std::string members = "{";
    for (int i = 0; i < count; ++i) {
      members += (i > 0 ? ",\"" : "\"") + std::to_string(i * 1009 % kMembers) + "\":" + std::to_string(i);
    }
    return members;
  };
  const auto json = parse_json(text(kMembers) + "}", "file.json");
  ASSERT_TRUE(json.ok()) << json.error().message();
  EXPECT_EQ(json->size(), static_cast<std::size_t>(kMembers));
  for (int i = 0; i < kMembers; ++i) EXPECT_EQ(json->at(std::to_string(i * 1009 % kMembers)), i);
  for (const int again : {0, 1, 255, 256, 4000, kMembers - 1}) {
    const std::string twice = text(kMembers) + ",\"" + std::to_string(again * 1009 % kMembers) + "\":1}";
    EXPECT_EQ(code_of(twice), "json.duplicate") << again;
  }
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

// A default that does not fit the rest of the file is as wrong as a value that does not.
TEST_F(JsonReaderTest, HoldsFallbacksToTheRangeOfTheValue) {
  for (const char* key : {"absent", "null"}) {
    const auto above = reader_.integer_or(key, 8, 1, 4);
    ASSERT_FALSE(above.ok()) << key;
    EXPECT_EQ(above.error().code, "config.missing");
    EXPECT_EQ(above.error().where, reader_.pointer(key));
    EXPECT_EQ(above.error().wanted, "1 to 4");
    EXPECT_NE(above.error().found.find("8"), std::string::npos);
    EXPECT_EQ(*reader_.integer_or(key, 4, 1, 4), 4);
    EXPECT_EQ(reader_.number_or(key, 0.0, {.low = 0.0, .above_low = true}).error().code, "config.missing");
    EXPECT_EQ(reader_.number_or(key, std::numeric_limits<double>::quiet_NaN()).error().code, "config.missing");
    EXPECT_EQ(*reader_.number_or(key, 0.0, {.low = 0.0}), 0.0);
  }
}

TEST_F(JsonReaderTest, HoldsNumbersToTheirRange) {
  EXPECT_EQ(*reader_.number_or("half", 0, {.low = 7.5, .high = 7.5}), 7.5);
  EXPECT_EQ(*reader_.number_or("big", 0), 1e300);
  for (const NumberRange range :
       {NumberRange{.low = 7.5, .above_low = true}, NumberRange{.high = 7.0}, NumberRange{.low = 8.0, .high = 9.0}}) {
    const auto outside = reader_.number_or("half", 8.5, range);
    ASSERT_FALSE(outside.ok());
    EXPECT_EQ(outside.error().code, "config.range");
    EXPECT_EQ(outside.error().where, "/base/half");
    EXPECT_EQ(outside.error().found, "7.5");
  }
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

}  // namespace
}  // namespace moracle
