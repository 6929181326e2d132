// JSON schemas: what replies may be, and what is refused.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "support/held_output.h"
#include "text/constrain/schema/keywords.h"

namespace moracle {
namespace {

using testing::compiled;
using testing::may_be;
using testing::schema_format;

struct Case {
  std::string_view schema;
  std::vector<std::string_view> may;
  std::vector<std::string_view> may_not;
};

class SchemaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_constrain()) GTEST_SKIP() << "built without xgrammar";
  }

  static void check(const Case& one) {
    SCOPED_TRACE(std::string(one.schema));
    const auto grammar = compiled(schema_format(one.schema));
    ASSERT_TRUE(grammar.ok()) << grammar.error().message();
    for (const std::string_view text : one.may) EXPECT_TRUE(may_be(**grammar, text)) << text;
    for (const std::string_view text : one.may_not) EXPECT_FALSE(may_be(**grammar, text)) << text;
  }
};

TEST_F(SchemaTest, TypesAndValues) {
  check({R"({"type":"null"})", {"null", " null"}, {"true", "", "nul"}});
  check({R"({"type":"boolean"})", {"true", "false"}, {"0", "null", "truefalse"}});
  check({R"({"type":["integer","null"]})", {"12", "-3", "0", "null"}, {"1.5", "01", "1e3", "\"1\""}});
  check({R"({"type":"number"})", {"12", "-3.25", "1e9", "2.5E-3"}, {"1.", ".5", "+1", "1e999", "NaN"}});
  check({R"({"const":{"a":[1,"x"]}})", {R"({"a":[1,"x"]})"}, {R"({"a":[1,"y"]})"}});
  check({R"({"enum":["a","b",3,null]})", {"\"a\"", "3", "null"}, {"\"c\"", "4"}});
  check({R"({"type":"string","enum":["a",3]})", {"\"a\""}, {"3"}});
  check({R"({"enum":[1.0,{"a":[2.0],"b":1},"x"],"allOf":[{"enum":[1,{"b":1,"a":[2]},"y"]}]})",
         {"1.0", R"({"a":[2.0],"b":1})"},
         {"\"x\"", "\"y\""}});
  check({R"({"enum":["a","bb","ccc"],"minLength":2,"pattern":"^c"})", {"\"ccc\""}, {"\"bb\"", "\"a\""}});
  check({"true", {"[1,{\"a\":null}]", "\"x\""}, {"[1,]", "{1:2}"}});
  check(
      {R"({"title":"t","description":"d","default":1,"examples":[],"$schema":"s","x-any":{},"readOnly":true,"$comment":""})",
       {"1", "[]"},
       {"]"}});
}

TEST_F(SchemaTest, Strings) {
  check({R"({"type":"string"})",
         {R"("")", R"("\n\"\\\u00e9")", "\"\xc3\xa9\"", R"("\ud83d\ude00")"},
         {R"("\ud83d")", R"("\x")", "\"\n\"", "\"a", R"("\ude00\ud83d")"}});
  check({R"({"type":"string","minLength":2,"maxLength":3})",
         {R"("ab")", R"("abc")", "\"\xc3\xa9\xc3\xa9\xc3\xa9\"", R"("\ud83d\ude00x")"},
         {R"("a")", R"("abcd")"}});
  check({R"({"type":"string","pattern":"^[a-z]+-\\d{2}$"})", {R"("ab-12")"}, {R"("ab-1")", R"("-12")", R"("ab-123")"}});
  check({R"({"type":"string","pattern":"b"})", {R"("abc")", R"("b")", R"("\"b\n")"}, {R"("ac")"}});
  check({R"({"type":"string","pattern":"^\"\\\\$"})", {R"("\"\\")"}, {R"("""")"}});
  check({R"({"type":"string","pattern":"^[a-z][a-z0-9]*$","maxLength":3})", {R"("a")", R"("a12")"}, {R"("a123")"}});
  check({R"({"type":"string","format":"date"})",
         {R"("2024-02-29")", R"("2023-12-31")"},
         {R"("2023-02-29")", R"("2023-13-01")"}});
  check({R"({"type":"string","format":"uuid"})", {R"("123e4567-e89b-12d3-a456-426614174000")"}, {R"("123")"}});
  check({R"({"type":"string","format":"email"})",
         {R"("a.b@c.de")", R"("te~st@mail.a-b.example.com")"},
         {R"("a.b@")", R"(".a@b.de")", R"("a.@b.de")", R"("a..b@c.de")", R"("a@b")", R"("a@-b.de")", R"("a@b-.de")"}});
  check({R"({"type":"string","format":"hostname"})",
         {R"("localhost")", R"("www.a-b-c.example.com")", R"("1.2.3.4")"},
         {R"("")", R"("-a")", R"("a-")", R"("a.")", R"(".a")", R"("a..b")", R"("a_b")", R"("xn--x")",
          "\"" + std::string(64, 'a') + "\""}});
  check({R"({"type":"string","format":"uri"})",
         {R"("http://a")", R"("http://a:80/b//c?d=%20e#f")", R"("ftp://a/")"},
         {R"("a")", R"("http://")", R"("http://a b")", R"("http://a/%2")", R"("http://a#b#c")", R"("http://a:/")"}});
}

TEST_F(SchemaTest, Numbers) {
  check({R"({"type":"integer","minimum":-3,"maximum":120})", {"-3", "0", "99", "120"}, {"-4", "121", "1200", "-0"}});
  check({R"({"type":"integer","exclusiveMinimum":9,"exclusiveMaximum":12})", {"10", "11"}, {"9", "12", "1"}});
  check({R"({"type":"integer","minimum":1})", {"1", "123456789012345"}, {"0", "-1", "1.0"}});
  check({R"({"type":"number","minimum":0,"maximum":1})", {"0", "1", "0.5", "0.999"}, {"1.01", "-0.1", "2"}});
  check({R"({"type":"number","exclusiveMinimum":0,"maximum":2.5})",
         {"0.001", "2.5", "1", "2.49"},
         {"0", "0.0", "2.51", "3"}});
  check({R"({"type":"number","minimum":-1.25,"exclusiveMaximum":-0.5})",
         {"-1.25", "-1", "-0.51"},
         {"-1.26", "-0.5", "0"}});
  check({R"({"type":"integer","multipleOf":7})", {"0", "7", "-21", "98"}, {"8", "70001"}});
  check({R"({"type":"number","multipleOf":0.01,"minimum":0})", {"1.25", "3"}, {"1.255"}});
  check({R"({"type":"integer","minimum":5,"exclusiveMinimum":true})", {"6"}, {"5"}});
}

TEST_F(SchemaTest, Arrays) {
  check({R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
         {"[1]", "[1,2, 3]", "[\n  1,\n  2\n]"},
         {"[]", "[1,2,3,4]", "[\"a\"]"}});
  check({R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false})",
         {"[]", "[1]", "[1,\"a\"]"},
         {"[\"a\"]", "[1,\"a\",2]"}});
  check({R"({"type":"array","items":[{"const":1}],"additionalItems":{"const":2},"minItems":2})",
         {"[1,2]", "[1,2,2]"},
         {"[1]"}});
  check({R"({"type":"array","uniqueItems":true,"maxItems":1})", {"[]", "[1]"}, {"[1,1]"}});
  check({R"({"unevaluatedItems":false,"prefixItems":[{"const":1}]})", {"[]", "[1]"}, {"[1,2]"}});
  check({R"({"enum":[[1],[]],"unevaluatedItems":false})", {"[]"}, {"[1]"}});
  check({R"({"type":"array"})", {"[]", "[1,[]]"}, {"{}"}});
}

TEST_F(SchemaTest, Objects) {
  check({R"({"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"string"}},"required":["a"]})",
         {R"({"b":1,"a":"x"})", R"({ "a": "x" })"},
         {R"({"b":1})", R"({"a":"x","b":1})", R"({"a":"x","c":1})", "{}"}});
  check({R"({"type":"object","properties":{"ab":{"type":"integer"}},"additionalProperties":{"type":"string"}})",
         {R"({"ab":1,"a":"x","abc":"y"})", R"({"a":"x"})", "{}"},
         {R"({"ab":"x"})", R"({"ab":1,"ab":"x"})", R"({"a\u0062":"x"})", R"({"a":1})"}});
  check(
      {R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3},"d":{"const":4}},"required":["c"]})",
       {R"({"c":3})", R"({"a":1,"c":3})", R"({"a":1,"b":2,"c":3,"d":4})", R"({"b":2,"c":3})"},
       {R"({"a":1})", R"({"a":1,"d":4})", R"({"a":1 "c":3})", R"({,"c":3})", R"({"c":3,})"}});
  check({R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2}},"additionalProperties":{"const":9},
             "minProperties":1,"maxProperties":2})",
         {R"({"a":1})", R"({"b":2,"x":9})", R"({"x":9,"y":9})", R"({"a":1,"b":2})"},
         {"{}", R"({"a":1,"b":2,"x":9})", R"({"x":9,"a":1})"}});
  check({R"({"type":"object","properties":{"abcdefghijkl":{"const":1}},"additionalProperties":{"const":9}})",
         {R"({"abcdefghijkl":1,"abcd":9,"abz":9,"b":9})"},
         {R"({"abcdefghijkl":9})"}});
  check({R"({"type":"object","additionalProperties":false})", {"{}"}, {R"({"a":1})"}});
  check({R"({"type":"object","propertyNames":{"pattern":"^[a-z]$"},"additionalProperties":{"type":"integer"}})",
         {R"({"a":1,"b":2})"},
         {R"({"ab":1})"}});
  check({R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"minProperties":2,"maxProperties":2})",
         {R"({"a":1,"c":2})", R"({"b":1,"c":2})"},
         {R"({"a":1})", R"({"a":1,"b":1,"c":1})"}});
  check({R"({"type":"object","maxProperties":1})", {"{}", R"({"x":1})"}, {R"({"x":1,"y":2})"}});
  check({R"({"type":"object","minProperties":1})", {R"({"x":1})"}, {"{}"}});
  check({R"({"required":["a"],"type":"object"})", {R"({"a":[]})"}, {"{}", R"({"b":1})"}});
  check({R"({"type":"object","unevaluatedProperties":false})", {"{}"}, {R"({"b":1})"}});
  check({R"({"properties":{"a":{"const":1}},"unevaluatedProperties":false})", {R"({"a":1})"}, {R"({"b":1})"}});
}

TEST_F(SchemaTest, Combinations) {
  check({R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}]})", {"1", R"("a")"}, {R"("ab")", "null"}});
  check({R"({"allOf":[{"type":"integer","minimum":3},{"maximum":5}]})", {"3", "5"}, {"2", "6"}});
  check({R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},
             {"properties":{"a":{"minimum":5},"b":{"const":1}},"required":["b"]}]})",
         {R"({"a":5,"b":1})"},
         {R"({"a":4,"b":1})", R"({"a":5})"}});
  check({R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"x":{"type":"integer"}},"required":["k"]},
             {"type":"object","properties":{"k":{"const":"b"},"y":{"type":"integer"}},"required":["k"]}]})",
         {R"({"k":"a","x":1})", R"({"k":"b"})"},
         {R"({"k":"a","y":1})"}});
  check({R"({"oneOf":[{"type":"integer","maximum":3},{"type":"integer","minimum":4},{"type":"string"}]})",
         {"3", "4", R"("x")"},
         {"null"}});
  check({R"({"type":"object","properties":{"a":{},"b":{}},"anyOf":[{"required":["a"]},{"required":["b"]}]})",
         {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"},
         {"{}"}});
}

TEST_F(SchemaTest, References) {
  check(
      {R"({"$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},
             "required":["v","next"]}},"$ref":"#/$defs/n"})",
       {R"({"v":1,"next":{"v":2,"next":null}})"},
       {R"({"v":1})", R"({"v":1,"next":1})"}});
  check(
      {R"({"definitions":{"a/b~c":{"$anchor":"q","const":1}},"anyOf":[{"$ref":"#/definitions/a~1b~0c"},{"$ref":"#q"}]})",
       {"1"},
       {"2"}});
  check(
      {R"({"$id":"http://x/y","properties":{"a":{"$ref":"http://x/y"}},"additionalProperties":false,"type":"object"})",
       {R"({"a":{"a":{}}})"},
       {R"({"b":1})"}});
  check({R"({"$defs":{"s":{"type":"string"}},"$ref":"#/$defs/s","maxLength":1})", {R"("a")"}, {R"("ab")", "1"}});
}

struct Refused {
  std::string_view schema;
  std::string_view code;
  std::string_view where;
};

TEST(Schema, IsRefusedWithAPointer) {
  const Refused cases[] = {
      {R"({"not":{"type":"null"}})", "schema.unsupported", "/not"},
      {R"({"properties":{"a":{"patternProperties":{"x":{}}}}})", "schema.unsupported",
       "/properties/a/patternProperties"},
      {R"({"type":"array","uniqueItems":true})", "schema.unsupported", "/uniqueItems"},
      {R"({"type":"array","contains":{}})", "schema.unsupported", "/contains"},
      {R"({"if":{},"then":{"type":"null"}})", "schema.unsupported", "/if"},
      {R"({"dependentRequired":{"a":["b"]}})", "schema.unsupported", "/dependentRequired"},
      {R"({"dependentSchemas":{"a":{}, "b":false}})", "schema.unsupported", "/dependentSchemas"},
      {R"({"dependencies":{"a":["b"]}})", "schema.unsupported", "/dependencies"},
      {R"({"$dynamicRef":"#a"})", "schema.unsupported", "/$dynamicRef"},
      {R"({"$recursiveRef":"#"})", "schema.unsupported", "/$recursiveRef"},
      {R"({"type":"string","format":"iri"})", "schema.unsupported", "/format"},
      {R"({"type":"string","pattern":"(?=a)b"})", "regex.unsupported", "/pattern"},
      {R"({"type":"string","pattern":"a","allOf":[{"pattern":"b"}]})", "schema.unsupported", "/allOf/0/pattern"},
      {R"({"type":"string","pattern":"^a*b*$","maxLength":3})", "schema.unsupported", "/maxLength"},
      {R"({"oneOf":[{"type":"integer"},{"minimum":2}]})", "schema.unsupported", "/oneOf"},
      {R"({"type":"number","multipleOf":0.3})", "schema.unsupported", "/multipleOf"},
      {R"({"allOf":[{"unevaluatedProperties":false,"type":"object"},{"properties":{"a":{}}}]})", "schema.unsupported",
       "/allOf/0/unevaluatedProperties"},
      {R"({"propertyNames":{"maxLength":3},"properties":{"a":{}},"additionalProperties":true})", "schema.unsupported",
       "/propertyNames"},
      {R"({"additionalProperties":true,"minProperties":3})", "schema.unsupported", "/minProperties"},
      {R"({"properties":{"a":{"$id":"x"}}})", "schema.unsupported", "/properties/a/$id"},
      {R"({"minlength":3})", "schema.unknown", "/minlength"},
      {R"({"$ref":"http://elsewhere/x"})", "schema.reference", "/$ref"},
      {R"({"$ref":"#/$defs/none"})", "schema.reference", "/$ref"},
      {R"({"items":{"type":"integer","minimum":"3"},"type":"array"})", "schema.value", "/items/minimum"},
      {R"({"type":"int"})", "schema.value", "/type"},
      {R"({"enum":3})", "schema.value", "/enum"},
      {"3", "schema.value", ""},
      {"false", "schema.empty", ""},
      {R"({"type":"integer","minimum":5,"maximum":4})", "schema.empty", ""},
      {R"({"type":"integer","minimum":0.2,"maximum":0.8})", "schema.empty", ""},
      {R"({"enum":[]})", "schema.empty", ""},
      {R"({"type":"string","enum":[1]})", "schema.empty", ""},
      {R"({"allOf":[{"type":"string"},{"type":"null"}]})", "schema.empty", ""},
      {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", "schema.empty", ""},
      {R"({"type":"object","required":["a"],"additionalProperties":false})", "schema.empty", ""},
      {R"({"type":"string","minLength":30000})", "constrain.complex", "/minLength"},
      {R"json({"type":"string","pattern":"((a{1,200}){1,200})"})json", "constrain.complex", "/pattern"},
  };
  for (const Refused& one : cases) {
    SCOPED_TRACE(std::string(one.schema));
    const auto grammar = grammar_of(schema_format(one.schema));
    ASSERT_FALSE(grammar.ok());
    EXPECT_EQ(grammar.error().code, one.code) << grammar.error().message();
    EXPECT_EQ(grammar.error().where, one.where) << grammar.error().message();
  }
}

TEST(Schema, KeywordsAreEnforcedOrAnnotationsOrRefused) {
  for (const char* const name : {"title", "$comment", "examples", "x-anything", "deprecated", "contentEncoding"})
    EXPECT_EQ(use_of_keyword(name), KeywordUse::annotation) << name;
  for (const char* const name : {"type", "required", "allOf", "pattern", "multipleOf", "$ref"})
    EXPECT_EQ(use_of_keyword(name), KeywordUse::enforced) << name;
  for (const char* const name : {"not", "patternProperties", "dependentSchemas", "contains"})
    EXPECT_EQ(use_of_keyword(name), KeywordUse::refused) << name;
  EXPECT_EQ(use_of_keyword("Type"), std::nullopt);
}

TEST(Schema, LimitsStandInFront) {
  std::string deep = "true";
  for (int i = 0; i < 40; ++i) deep = R"({"items":)" + deep + "}";
  EXPECT_TRUE(grammar_of(schema_format(deep)).ok());
  for (int i = 0; i < 40; ++i) deep = R"({"items":)" + deep + "}";
  EXPECT_EQ(grammar_of(schema_format(deep)).error().code, "constrain.complex");

  OrderedJson wide = {{"type", "object"}};
  for (int i = 0; i < 2001; ++i) wide["properties"]["p" + std::to_string(i)] = true;
  EXPECT_EQ(grammar_of(schema_format(wide.dump())).error().code, "constrain.complex");
  EXPECT_EQ(grammar_of(schema_format(R"({"const":")" + std::string(300'000, 'a') + "\"}")).error().code,
            "constrain.complex");

  // What costs the compiler the square of their number.
  const auto optional = [](int members) {
    OrderedJson some = {{"type", "object"}};
    for (int i = 0; i < members; ++i) some["properties"]["p" + std::to_string(i)] = true;
    return some;
  };
  EXPECT_TRUE(grammar_of(schema_format(optional(500).dump())).ok());
  EXPECT_EQ(grammar_of(schema_format(optional(501).dump())).error().code, "constrain.complex");
  OrderedJson counted = optional(100);
  counted["minProperties"] = 50;
  EXPECT_EQ(grammar_of(schema_format(counted.dump())).error().code, "constrain.complex");
  OrderedJson ranges = {{"type", "array"}, {"prefixItems", OrderedJson::array()}};
  for (int i = 0; i < 1000; ++i)
    ranges["prefixItems"].push_back({{"type", "integer"}, {"minimum", 123456 + i}, {"maximum", 987654321 + i}});
  EXPECT_EQ(grammar_of(schema_format(ranges.dump())).error().code, "constrain.complex");

  // Combinations that multiply.
  OrderedJson bomb = {{"allOf", OrderedJson::array()}};
  for (int i = 0; i < 20; ++i) bomb["allOf"].push_back({{"anyOf", {{{"minimum", i}}, {{"maximum", 100 + i}}}}});
  EXPECT_EQ(grammar_of(schema_format(bomb.dump())).error().code, "constrain.complex");
}

}  // namespace
}  // namespace moracle
