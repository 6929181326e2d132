// Answers that are held to the JSON schema of a file.
#include "cli/cli_fixture.h"
#include "cli/terminal.h"
#include "support/scripted_model.h"

namespace moracle::test {
namespace {

using Strings = std::vector<std::string>;

constexpr const char* kAnswer =
    R"({"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}, "size": {"type": "integer", "minimum": 1,
        "maximum": 9}}, "required": ["city", "size"], "additionalProperties": false})";

const Script kThinker = {.reply = {"<think>", "\nTwo and", " two.\n", "</think>", "\n\nFour", ", plainly."},
                         .special = {}};

class SchemaTest : public CliTest {
 protected:
  void SetUp() override {
#ifndef MORACLE_CONSTRAIN
    GTEST_SKIP() << "built without xgrammar";
#endif
  }
  std::string schema(const std::string& text, const char* name = "answer.json") {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  static void expect_meets(const std::string& answer) {
    const auto json = parse_json(answer, "answer");
    ASSERT_TRUE(json.ok()) << answer;
    EXPECT_EQ(json->size(), 2U) << answer;
    EXPECT_TRUE(json->at("city") == "Oslo" || json->at("city") == "Rome") << answer;
    EXPECT_TRUE(json->at("size").is_number_integer()) << answer;
  }
  void expect_refused(const std::string& file, const Strings& words) {
    const RunOutcome outcome = moracle_run({"run", model_path(), "-p", "x", "--schema", file});
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.err.find("moracle: error: "), 0U) << "before the model is opened: " << outcome.err;
    for (const std::string& word : words)
      EXPECT_NE(outcome.err.find(word), std::string::npos) << "no '" << word << "' in\n" << outcome.err;
  }
};

TEST_F(SchemaTest, EveryAnswerMeetsIt) {
  const std::string file = schema(kAnswer);
  for (const char* seed : {"1", "2", "3"}) {
    Strings run = {"run", model_path(), "-p", "A city:", "--schema", file, "--temperature", "1", "--seed", seed};
    expect_meets(moracle_run(run).out);
    const Json json = json_of(run);
    expect_meets(json.at("answer"));
    EXPECT_EQ(json.at("finish_reason"), "stop");
    run.emplace_back("--chat");
    expect_meets(json_of(run).at("answer"));
  }
}

TEST_F(SchemaTest, ReasoningBeforeItIsFree) {
  write_scripted_model(folder_ / "thinker", kThinker);
  const Json json =
      json_of({"run", (folder_ / "thinker").string(), "--chat", "-p", "2+2?", "--schema", schema(kAnswer)});
  EXPECT_EQ(json.at("reasoning"), "Two and two.");
  expect_meets(json.at("answer"));
}

TEST_F(SchemaTest, AnAnswerThatIsCutIsNoSuccess) {
  Strings run = {"run", model_path(), "-p", "x", "--schema", schema(kAnswer), "-n", "2", "--quiet"};
  const RunOutcome cut = moracle_run(run);
  EXPECT_EQ(cut.code, 1);
  EXPECT_NE(cut.err.find("[answer.cut]"), std::string::npos) << cut.err;
  EXPECT_NE(cut.err.find("answer.json"), std::string::npos) << cut.err;
  EXPECT_EQ(json_of(run, 1).at("finish_reason"), "length");
}

TEST_F(SchemaTest, WhatCannotBeHeldIsRefusedByFileAndPlace) {
  expect_refused((folder_ / "no.json").string(), {"no.json"});
  expect_refused(schema("{\"type\": ", "half.json"), {"half.json", "json"});
  expect_refused(schema(R"({"type": "array", "uniqueItems": true})", "unique.json"),
                 {"unique.json: /uniqueItems", "[schema.unsupported]"});
  expect_refused(schema(R"({"type": "object", "properties": {"a": {"type": "integer", "minimum": 2, "maximum": 1}},
                            "required": ["a"]})",
                        "empty.json"),
                 {"empty.json"});
}

TEST_F(SchemaTest, WhatCutsAnswersIsRefusedBesideIt) {
  const std::string file = schema(kAnswer);
  for (const Strings& option : {Strings{"--ignore-eos"}, Strings{"--stop", "x"}}) {
    Strings run = {"run", model_path(), "-p", "x", "--schema", file};
    run.insert(run.end(), option.begin(), option.end());
    const RunOutcome outcome = moracle_run(run);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.err.find("--schema"), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(moracle_run({"run", model_path(), "-p", "x", "--schema", ""}).code, 2);
}

TEST_F(SchemaTest, AChatHoldsEveryAnswer) {
  Terminal chat({"run", model_path(), "--quiet", "--schema", schema(kAnswer)}, {{"TERM", "dumb"}});
  bool found = false;
  chat.until("> ", found);
  ASSERT_TRUE(found) << chat.text();
  for (const char* question : {"A city?", "Another?"}) {
    chat.type(std::string(question) + "\r");
    chat.until("\r\n", found);
    ASSERT_TRUE(found) << chat.text();
    expect_meets(chat.until("\r\n> ", found));
  }
  chat.type("/exit\r");
  EXPECT_EQ(chat.finish(), 0) << chat.text();
}

}  // namespace
}  // namespace moracle::test
