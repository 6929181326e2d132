// Every keyword that replies are held to: valid instances may come, invalid ones may not. MORACLE_SCHEMA_SUITE names a
// folder of JSON-Schema-Test-Suite (tests/draft2020-12), whose cases are tried too.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/held_output.h"
#include "text/constrain/schema/keywords.h"

namespace moracle {
namespace {

using testing::compiled;
using testing::may_be;
using testing::schema_format;

// Instances as a reply may write them: members in the order of the schema.
struct Keyword {
  std::string_view name, schema;
  std::vector<std::string_view> valid, invalid;
};

const std::vector<Keyword>& keywords() {
  static const std::vector<Keyword> rows = {
      {"type", R"({"type":["integer","string"]})", {"1", "\"a\""}, {"1.5", "null", "true", "[]", "{}"}},
      {"enum",
       R"({"enum":[1,"a",null,[false],{"b":2}]})",
       {"1", "\"a\"", "null", "[false]", R"({"b":2})"},
       {"2", "[true]", R"({"b":3})", "\"A\"", "false"}},
      {"const", R"({"const":{"a":[1,null]}})", {R"({"a":[1,null]})"}, {R"({"a":[1]})", "{}", "null"}},
      {"properties",
       R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}}})",
       {"{}", R"({"a":1})", R"({"a":1,"b":"x"})"},
       {R"({"a":"x"})", R"({"b":1})", "[]"}},
      {"required",
       R"({"type":"object","properties":{"a":{},"b":{}},"required":["b"]})",
       {R"({"b":1})", R"({"a":1,"b":2})"},
       {"{}", R"({"a":1})"}},
      {"additionalProperties",
       R"({"type":"object","properties":{"a":{}},"additionalProperties":{"type":"boolean"}})",
       {R"({"a":1})", R"({"a":1,"x":true})", R"({"x":false})"},
       {R"({"x":1})", R"({"a":1,"x":null})"}},
      {"unevaluatedProperties",
       R"({"type":"object","properties":{"a":{}},"unevaluatedProperties":false})",
       {"{}", R"({"a":1})"},
       {R"({"x":1})"}},
      {"propertyNames",
       R"({"type":"object","propertyNames":{"maxLength":2},"additionalProperties":{}})",
       {"{}", R"({"ab":1})"},
       {R"({"abc":1})"}},
      {"minProperties",
       R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"minProperties":2})",
       {R"({"a":1,"b":2})", R"({"b":1,"c":2})"},
       {"{}", R"({"a":1})"}},
      {"maxProperties",
       R"({"type":"object","properties":{"a":{},"b":{}},"maxProperties":1})",
       {"{}", R"({"b":1})"},
       {R"({"a":1,"b":2})"}},
      {"items",
       R"({"type":"array","items":{"type":"integer"}})",
       {"[]", "[1]", "[1,2,3]"},
       {"[\"a\"]", "[1,null]", "{}"}},
      {"prefixItems",
       R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false})",
       {"[]", "[1]", "[1,\"a\"]"},
       {"[\"a\"]", "[1,2]", "[1,\"a\",1]"}},
      {"additionalItems",
       R"({"type":"array","items":[{"type":"integer"}],"additionalItems":{"type":"null"}})",
       {"[]", "[1]", "[1,null,null]"},
       {"[null]", "[1,2]"}},
      {"unevaluatedItems",
       R"({"type":"array","prefixItems":[{"type":"integer"}],"unevaluatedItems":false})",
       {"[]", "[1]"},
       {"[1,1]", "[null]"}},
      {"minItems", R"({"type":"array","items":{},"minItems":2})", {"[1,2]", "[1,2,3]"}, {"[]", "[1]"}},
      {"maxItems", R"({"type":"array","items":{},"maxItems":2})", {"[]", "[1,2]"}, {"[1,2,3]"}},
      {"uniqueItems", R"({"type":"array","items":{},"uniqueItems":true,"maxItems":1})", {"[]", "[1]"}, {"[1,1]"}},
      {"minLength",
       R"({"type":"string","minLength":2})",
       {"\"ab\"", "\"\xe5\xa4\xa9\xe5\xa4\xa9\""},
       {"\"\"", "\"a\"", "\"\xe5\xa4\xa9\""}},
      {"maxLength", R"({"type":"string","maxLength":2})", {"\"\"", "\"\xe5\xa4\xa9\xe5\xa4\xa9\""}, {"\"abc\""}},
      {"pattern", R"({"type":"string","pattern":"a+b"})", {"\"ab\"", "\"xaaby\""}, {"\"b\"", "\"ac\""}},
      {"format", R"({"type":"string","format":"date"})", {"\"2024-02-29\""}, {"\"2024-13-01\"", "\"today\""}},
      {"minimum", R"({"type":"number","minimum":-1.5})", {"-1.5", "0", "7"}, {"-1.6", "-2"}},
      {"maximum", R"({"type":"integer","maximum":300})", {"300", "-5", "0"}, {"301", "1000"}},
      {"exclusiveMinimum", R"({"type":"integer","exclusiveMinimum":3})", {"4", "10"}, {"3", "-4"}},
      {"exclusiveMaximum", R"({"type":"number","exclusiveMaximum":3})", {"2.9", "-4"}, {"3", "3.0", "3.1"}},
      {"multipleOf", R"({"type":"integer","multipleOf":7})", {"0", "7", "-14", "49"}, {"1", "8", "50"}},
      {"anyOf", R"({"anyOf":[{"type":"integer"},{"type":"string","minLength":2}]})", {"1", "\"ab\""}, {"1.5", "\"a\""}},
      {"oneOf", R"({"oneOf":[{"type":"integer"},{"type":"null"}]})", {"1", "null"}, {"1.5", "\"a\""}},
      {"allOf", R"({"allOf":[{"type":"integer","minimum":2},{"maximum":4}]})", {"2", "4"}, {"1", "5"}},
      {"if", R"({"type":"integer","if":{"minimum":3}})", {"1", "5"}, {"null"}},
      {"$ref",
       R"({"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"}},
                "additionalProperties":false}}})",
       {"{}", R"({"next":{"next":{}}})"},
       {R"({"next":1})", R"({"other":{}})"}},
  };
  return rows;
}

class KeywordsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_constrain()) GTEST_SKIP() << "built without xgrammar";
  }
};

TEST_F(KeywordsTest, EachIsEnforced) {
  for (const Keyword& row : keywords()) {
    SCOPED_TRACE(std::string(row.schema));
    EXPECT_EQ(use_of_keyword(row.name), KeywordUse::enforced);
    const auto grammar = compiled(schema_format(row.schema));
    ASSERT_TRUE(grammar.ok()) << grammar.error().message();
    for (const std::string_view text : row.valid) EXPECT_TRUE(may_be(**grammar, text)) << text;
    for (const std::string_view text : row.invalid) EXPECT_FALSE(may_be(**grammar, text)) << text;
  }
}

// Members in the order in which the schema names them, as replies have them.
OrderedJson in_order(const OrderedJson& schema, const OrderedJson& value) {
  if (!value.is_object() || !schema.is_object()) return value;
  const auto properties = schema.find("properties");
  if (properties == schema.end() || !properties->is_object()) return value;
  OrderedJson ordered = OrderedJson::object();
  for (const auto& [name, part] : properties->items()) {
    if (value.contains(name)) ordered[name] = in_order(part, value.at(name));
  }
  for (const auto& [name, part] : value.items()) {
    if (!ordered.contains(name)) ordered[name] = part;
  }
  return ordered;
}

// A valid instance may be refused: members that the schema does not name, and types of which its keywords say nothing.
// An invalid one is never accepted.
TEST_F(KeywordsTest, NoInvalidInstanceOfTheTestSuiteIsAccepted) {
  const char* const folder = std::getenv("MORACLE_SCHEMA_SUITE");
  if (folder == nullptr) GTEST_SKIP() << "MORACLE_SCHEMA_SUITE names no folder";
  std::size_t held = 0, refused = 0, valid = 0, taken = 0, invalid = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".json") continue;
    for (const OrderedJson& group : OrderedJson::parse(std::ifstream(file.path()))) {
      SCOPED_TRACE(file.path().filename().string() + ": " + group["description"].get<std::string>());
      const OrderedJson& schema = group["schema"];
      const auto grammar = compiled({.kind = OutputFormat::Kind::json_schema, .schema = schema});
      ++(grammar.ok() ? held : refused);
      if (!grammar.ok()) continue;
      for (const OrderedJson& one : group["tests"]) {
        const std::string text = in_order(schema, one["data"]).dump();
        const bool may = may_be(**grammar, text);
        if (one["valid"].get<bool>()) {
          ++valid;
          taken += may ? 1 : 0;
        } else {
          ++invalid;
          EXPECT_FALSE(may) << text;
        }
      }
    }
  }
  RecordProperty("schemas held", static_cast<int>(held));
  RecordProperty("schemas refused", static_cast<int>(refused));
  RecordProperty("valid instances that may come", static_cast<int>(taken));
  EXPECT_GT(invalid, 200U);
  EXPECT_GE(taken * 5, valid * 3) << taken << " of " << valid;
}

}  // namespace
}  // namespace moracle
