// What requests hold their answers to.
#include "text/constrain/output_request.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace moracle {
namespace {

using Kind = OutputFormat::Kind;

std::optional<OutputField> read(const std::string& name, const char* json) {
  auto field = read_output_request(name, OrderedJson::parse(json));
  EXPECT_TRUE(field.ok()) << field.error().message();
  return field.ok() ? *std::move(field) : std::nullopt;
}

TEST(OutputRequest, HasTheShapesOfTheApis) {
  EXPECT_FALSE(read("response_format", R"({"type":"text"})"));
  EXPECT_EQ(read("response_format", R"({"type":"json_object"})")->format.kind, Kind::json_object);
  const auto chat =
      read("response_format", R"({"type":"json_schema","json_schema":{"name":"n","schema":{"b":1,"a":2}}})");
  EXPECT_EQ(chat->format.kind, Kind::json_schema);
  EXPECT_EQ(chat->place, "response_format.json_schema.schema");
  EXPECT_EQ(chat->format.schema.begin().key(), "b") << "members keep their order";
  EXPECT_EQ(read("text.format", R"({"type":"json_schema","schema":{}})")->place, "text.format.schema");
  EXPECT_EQ(read("response_format", R"({"type":"json_object","schema":{}})")->format.kind, Kind::json_schema);
  EXPECT_EQ(read("structured_outputs", R"({"regex":"a+","json":null})")->format.regex, "a+");
  EXPECT_EQ(read("structured_outputs", R"({"json_object":true})")->format.kind, Kind::json_object);
  EXPECT_FALSE(read("structured_outputs", R"({"json_object":false})"));
  EXPECT_EQ(read("guided_json", R"("{\"type\":\"null\"}")")->format.schema, (OrderedJson{{"type", "null"}}));
  EXPECT_EQ(read("guided_choice", R"(["a","b"])")->format.choices.size(), 2U);
}

TEST(OutputRequest, IsRefusedWithItsPlace) {
  using Refusal = std::pair<std::string, std::string>;
  const auto refusal = [](const std::string& name, const char* json) {
    const auto field = read_output_request(name, OrderedJson::parse(json));
    EXPECT_FALSE(field.ok()) << json;
    return field.ok() ? Refusal() : Refusal(field.error().code, field.error().where);
  };
  EXPECT_EQ(refusal("response_format", "3"), Refusal("request.type", "response_format"));
  EXPECT_EQ(refusal("response_format", "{}"), Refusal("request.unsupported", "response_format.type"));
  EXPECT_EQ(refusal("response_format", R"({"type":"xml"})"), Refusal("request.unsupported", "response_format.type"));
  EXPECT_EQ(refusal("response_format", R"({"type":"json_schema"})"),
            Refusal("request.missing", "response_format.json_schema"));
  EXPECT_EQ(refusal("response_format", R"({"type":"json_schema","json_schema":{}})"),
            Refusal("request.missing", "response_format.json_schema.schema"));
  EXPECT_EQ(refusal("structured_outputs", R"({"json":{},"regex":"a"})"),
            Refusal("request.value", "structured_outputs.regex"));
  EXPECT_EQ(refusal("structured_outputs", R"({"grammar":"a"})"),
            Refusal("request.unsupported", "structured_outputs.grammar"));
  EXPECT_EQ(refusal("structured_outputs", R"({"choice":"a"})"), Refusal("request.type", "structured_outputs.choice"));
  EXPECT_EQ(refusal("guided_regex", "3"), Refusal("request.type", "guided_regex"));
  EXPECT_EQ(refusal("guided_json", R"("{")"), Refusal("request.value", "guided_json"));
  const Error error =
      at_output({.format = {}, .place = "guided_regex"}, {.code = "c", .where = "byte 3", .found = "f"});
  EXPECT_EQ(error.where, "guided_regex");
  EXPECT_EQ(error.found, "f at byte 3");
}

}  // namespace
}  // namespace moracle
