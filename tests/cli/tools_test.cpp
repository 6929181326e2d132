// Tools that a model calls: calls that are shown, results that are typed or read.
#include "cli/cli_fixture.h"
#include "cli/terminal.h"
#include "support/scripted_model.h"

namespace moracle::test {
namespace {

using Strings = std::vector<std::string>;

constexpr const char* kTools =
    R"([{"type": "function", "function": {"name": "get_weather", "description": "", "parameters": {"type": "object",
        "properties": {"city": {"const": "Oslo"}}, "required": ["city"], "additionalProperties": false}}}])";

// Calls the tool, and answers behind its result, which may not be "boom".
const Script kCaller = {
    .reply = {"<tool_call>", "\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n", "</tool_call>",
              "<|eot|>", "It is", " warm in Oslo."},
    .special = {"<|eot|>"},
    .chat_template = R"({%- for tool in tools or [] %}{{- '<|system|>' + tool | tojson }}{%- endfor %}
{%- for m in messages %}
{%- if m.role == 'user' %}{{- '<|user|>' + m.content }}
{%- elif m.role == 'tool' %}
{%- if 'boom' in m.content %}{{- raise_exception('no weather: ' + m.content) }}{%- endif %}
{{- '<|tool|>' + m.content }}
{%- else %}{{- '<|assistant|>' + (m.content or '') }}
{%- for c in m.tool_calls or [] %}
{{- '\n<tool_call>\n{"name": "' + c.function.name + '", "arguments": ' + (c.function.arguments | tojson) + '}\n</tool_call>' }}
{%- endfor %}{{- '<|end|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|eot|>' if messages[-1].role == 'tool' else '<|assistant|>' }}{%- endif %})",
    .last_byte = '>'};

class ToolsTest : public CliTest {
 protected:
  void SetUp() override {
    write_scripted_model(folder_ / "caller", kCaller);
    std::ofstream(folder_ / "caller" / "generation_config.json")
        << R"({"eos_token_id": [256, 262], "do_sample": false})";
    tools(kTools);
  }
  std::string tools(const std::string& text) {
    std::ofstream(folder_ / "tools.json") << text;
    return (folder_ / "tools.json").string();
  }
  [[nodiscard]] Strings asking(const Strings& more = {}) const {
    Strings run = {"run",     (folder_ / "caller").string(),     "-p",     "Is it warm?",
                   "--tools", (folder_ / "tools.json").string(), "--quiet"};
    run.insert(run.end(), more.begin(), more.end());
    return run;
  }
  // The first line is the call; what stands behind it.
  static std::string behind_call(const std::string& out) {
    const std::size_t end = std::min(out.find('\n'), out.size());
    const auto line = parse_json(out.substr(0, end), "call");
    EXPECT_TRUE(line.ok()) << out;
    if (!line.ok()) return "";
    const Json& call = line->at("tool_call");
    EXPECT_EQ(call.at("name"), "get_weather");
    EXPECT_EQ(call.at("arguments"), Json({{"city", "Oslo"}}));
    EXPECT_EQ(call.at("id").get<std::string>().substr(0, 5), "call_");
    return out.substr(std::min(end + 1, out.size()));
  }
};

TEST_F(ToolsTest, CallsAndResultsAreLinesOfAPipe) {
  for (const char* result : {"17 degrees\n", "17 degrees", "\"17\\ndegrees\"\n\n", "\"\n"}) {
    const RunOutcome answered = moracle_run(asking(), {.input = result});
    EXPECT_EQ(answered.code, 0) << answered.err;
    EXPECT_EQ(behind_call(answered.out), "It is warm in Oslo.\n") << result;
  }
  for (const char* result : {"boom\n", "\"bo\\u006fm\"\n"}) {
    const RunOutcome refused = moracle_run(asking(), {.input = result});
    EXPECT_EQ(refused.code, 1);
    EXPECT_NE(refused.err.find("no weather: boom"), std::string::npos) << "the template has it: " << refused.err;
  }
  EXPECT_NE(moracle_run(asking(), {.input = "\xff\n"}).err.find("[text.utf8]"), std::string::npos);
}

TEST_F(ToolsTest, CallsEndTheAnswerWhereNoResultComes) {
  const RunOutcome alone = moracle_run(asking());
  EXPECT_EQ(alone.code, 0) << alone.err;
  EXPECT_EQ(behind_call(alone.out), "");
  const Json json = json_of(asking());
  EXPECT_EQ(json.at("finish_reason"), "tool_calls");
  EXPECT_EQ(json.at("answer"), "");
  ASSERT_EQ(json.at("tool_calls").size(), 1U);
  const Json& call = json.at("tool_calls")[0];
  EXPECT_EQ(call.at("type"), "function");
  EXPECT_EQ(call.at("function").at("name"), "get_weather");
  EXPECT_EQ(Json::parse(call.at("function").at("arguments").get<std::string>()), Json({{"city", "Oslo"}}));
}

TEST_F(ToolsTest, ACallThatIsCutIsNone) {
  const Json json = json_of(asking({"-n", "2"}));
  EXPECT_EQ(json.at("finish_reason"), "length");
  EXPECT_EQ(json.at("tool_calls"), nullptr);
  EXPECT_EQ(moracle_run(asking({"-n", "2"})).out, "\n");
}

TEST_F(ToolsTest, APersonTypesResults) {
  Terminal chat({"run", "caller", "--quiet", "--tools", "tools.json"}, {{"TERM", "dumb"}}, 100, folder_.string());
  bool found = false;
  const auto see = [&](const std::string& text) {
    chat.until(text, found);
    EXPECT_TRUE(found) << text << " in " << chat.text();
  };
  see("> ");
  chat.type("Is it warm?\r");
  see("-> get_weather {\"city\":\"Oslo\"}");
  see("get_weather> ");
  chat.type("17 \\\rdegrees\r");
  see("It is warm in Oslo.");
  see("\r\n> ");
  chat.type("And now?\r");
  see("get_weather> ");
  chat.type("\x03");
  see("forgotten");
  see("\r\n> ");
  chat.type("/save talk.json\r");
  see("Saved to talk.json.");
  see("\r\n> ");
  chat.type("Once more?\r");
  see("get_weather> ");
  chat.type("\x04");
  EXPECT_EQ(chat.finish(), 0) << chat.text();
  const Json messages = read_json(folder_ / "talk.json")->at("messages");
  ASSERT_EQ(messages.size(), 4U) << messages.dump();
  EXPECT_EQ(messages[1].at("tool_calls")[0].at("function").at("arguments"), Json({{"city", "Oslo"}}));
  EXPECT_EQ(messages[2].at("tool_call_id"), messages[1].at("tool_calls")[0].at("id"));
  EXPECT_EQ(messages[2].at("content"), "17 \ndegrees");
  EXPECT_EQ(messages[3], Json({{"role", "assistant"}, {"content", "It is warm in Oslo."}}));
}

TEST_F(ToolsTest, TheChoiceIsOfTheFirstReply) {
#ifndef MORACLE_CONSTRAIN
  GTEST_SKIP() << "built without xgrammar";
#endif
  for (const char* const choice : {"auto", "required", "get_weather"}) {
    const RunOutcome answered = moracle_run(asking({"--tool-choice", choice}), {.input = "17 degrees\n"});
    EXPECT_EQ(answered.code, 0) << answered.err;
    EXPECT_EQ(behind_call(answered.out), "It is warm in Oslo.\n") << choice;
  }
  const Json none = json_of(asking({"--tool-choice", "none", "-n", "3"}));
  EXPECT_EQ(none.at("tool_calls"), nullptr);
  const RunOutcome other = moracle_run(asking({"--tool-choice", "other"}));
  EXPECT_EQ(other.code, 2) << other.err;
  EXPECT_NE(other.err.find("--tool-choice"), std::string::npos) << other.err;
}

TEST_F(ToolsTest, AnAnswerBehindCallsHasTheFormOfTheSchema) {
#ifndef MORACLE_CONSTRAIN
  GTEST_SKIP() << "built without xgrammar";
#endif
  const std::string schema = (folder_ / "schema.json").string();
  std::ofstream(schema) << R"({"const": {"warm": true}})";
  const RunOutcome answered = moracle_run(asking({"--schema", schema}), {.input = "17 degrees\n"});
  EXPECT_EQ(answered.code, 0) << answered.err;
  EXPECT_EQ(Json::parse(behind_call(answered.out)), Json({{"warm", true}}));
  std::ofstream(schema) << R"({"not": {}})";
  const RunOutcome refused = moracle_run(asking({"--schema", schema}));
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("schema.json: /not"), std::string::npos) << refused.err;
}

TEST_F(ToolsTest, WhatCannotBeCalledIsRefused) {
  const auto refusal = [&](const Strings& arguments) {
    const RunOutcome outcome = moracle_run(arguments);
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  tools(R"([{"type": "function", "function": {"name": "get weather"}}])");
  const std::string named = refusal(asking());
  EXPECT_NE(named.find("tools.json: tools[0].function.name"), std::string::npos) << named;
  tools(R"({"type": "function"})");
  EXPECT_NE(refusal(asking()).find("a list of tools"), std::string::npos);
  tools(kTools);
  std::ofstream(folder_ / "caller" / "chat_template.jinja") << "{{ tools | tojson }}{{ messages[0].content + '>' }}";
  const std::string unknown = refusal(asking());
  EXPECT_NE(unknown.find("[tools.unsupported]"), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("--tool-format: hermes"), std::string::npos) << unknown;
  EXPECT_EQ(behind_call(moracle_run(asking({"--tool-format", "hermes"})).out), "");
  EXPECT_EQ(moracle_run(asking({"--tool-format", "morse"})).code, 2);
  EXPECT_EQ(moracle_run(asking({"--tool-choice", ""})).code, 2);
  EXPECT_EQ(moracle_run({"run", (folder_ / "caller").string(), "-p", "x", "--tool-choice", "auto"}).code, 2);
}

}  // namespace
}  // namespace moracle::test
