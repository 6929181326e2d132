// Parts of a reply in the output and in the JSON document, and models by their name on the hub.
#include <cstdlib>

#include "cli/cli_fixture.h"
#include "support/scripted_model.h"

namespace moracle::test {
namespace {

using Strings = std::vector<std::string>;

class ReplyTest : public CliTest {
 protected:
  std::string model(const Script& script) {
    write_scripted_model(folder_ / "model", script);
    return (folder_ / "model").string();
  }
};

const Script kThinker = {.reply = {"<think>", "\nTwo and", " two.\n", "</think>", "\n\nFour", ", plainly."},
                         .special = {}};

TEST_F(ReplyTest, JsonHasReasoningAndAnswerBesideTheText) {
  const std::string thinker = model(kThinker);
  const Json json = json_of({"run", thinker, "--chat", "-p", "2+2?"});
  EXPECT_EQ(json.at("reasoning"), "Two and two.");
  EXPECT_EQ(json.at("answer"), "Four, plainly.");
  EXPECT_EQ(json.at("text"), "<think>\nTwo and two.\n</think>\n\nFour, plainly.");
  EXPECT_EQ(json.at("finish_reason"), "stop");
  const Json cut = json_of({"run", thinker, "--chat", "-p", "2+2?", "-n", "2"});
  EXPECT_EQ(cut.at("reasoning"), "Two and");
  EXPECT_EQ(cut.at("answer"), "");
  const Json stopped = json_of({"run", thinker, "--chat", "-p", "2+2?", "--stop", "ur, pl"});
  EXPECT_EQ(stopped.at("answer"), "Fo");
}

TEST_F(ReplyTest, APipeGetsReasoningBetweenMarks) {
  const std::string thinker = model(kThinker);
  const RunOutcome all = moracle_run({"run", thinker, "--chat", "-p", "2+2?"});
  EXPECT_EQ(all.out, "<think>\nTwo and two.\n</think>\n\nFour, plainly.\n");
  EXPECT_NE(all.err.find("tokens/s"), std::string::npos);
  const RunOutcome hidden = moracle_run({"run", thinker, "--chat", "-p", "2+2?", "--hide-reasoning", "--quiet"});
  EXPECT_EQ(hidden.out, "Four, plainly.\n");
  EXPECT_EQ(hidden.err, "");
  const RunOutcome cut = moracle_run({"run", thinker, "--chat", "-p", "2+2?", "-n", "2"});
  EXPECT_EQ(cut.out, "<think>\nTwo and\n</think>\n");
}

// The template has opened the reasoning, and the closing mark comes in pieces.
TEST_F(ReplyTest, ReasoningMayBeOpenedByTheTemplate) {
  const std::string opened = model({.reply = {"Two and", " two.\n</th", "ink>\n\nFour"},
                                    .special = {},
                                    .chat_template = "{{ messages[0].content + '<think>\n' }}"});
  const Json json = json_of({"run", opened, "--chat", "-p", "2+2?"});
  EXPECT_EQ(json.at("reasoning"), "Two and two.");
  EXPECT_EQ(json.at("answer"), "Four");
}

TEST_F(ReplyTest, ChannelsInPiecesAreToldApart) {
  const std::string harmony =
      model({.reply = {"<|chan", "nel|>analysis<|mess", "age|>Greet", " them.<|end|><|start|>assis",
                       "tant<|channel|>final<|message|>", "Hello!"},
             .special = {},
             .chat_template = "{% if 0 %}<|channel|>analysis<|message|>{% endif %}"
                              "<|start|>user<|message|>{{ messages[0].content }}<|end|><|start|>assistant",
             .last_byte = 't'});
  const Json json = json_of({"run", harmony, "--chat", "-p", "hi"});
  EXPECT_EQ(json.at("reasoning"), "Greet them.");
  EXPECT_EQ(json.at("answer"), "Hello!");
  EXPECT_EQ(json.at("text").get<std::string>().find("assistantfinal"), std::string::npos);
  EXPECT_EQ(moracle_run({"run", harmony, "--chat", "-p", "hi"}).out, "<think>\nGreet them.\n</think>\n\nHello!\n");
}

TEST_F(ReplyTest, ChannelsThatAreTokensStayInTheText) {
  const std::string harmony =
      model({.reply = {"<|channel|>", "analysis", "<|message|>", "spelled <|end|> stays"},
             .special = {"<|channel|>", "<|message|>"},
             .chat_template = "<|start|>user<|message|>{{ messages[0].content }}<|end|><|start|>assistant",
             .last_byte = 't'});
  const Json json = json_of({"run", harmony, "--chat", "-p", "hi"});
  EXPECT_EQ(json.at("text"), "<|channel|>analysis<|message|>spelled <|end|> stays");
  EXPECT_EQ(json.at("reasoning"), "spelled");
}

TEST_F(ReplyTest, ATerminalGetsNoControlCharactersOfTheModel) {
  const std::string evil = model({.reply = {"a\x1b]0;owned\x07",
                                            "b\xc2\x9b"
                                            "c"},
                                  .special = {}});
  EXPECT_EQ(json_of({"run", evil, "--chat", "-p", "x"}).at("text"),
            "a\x1b]0;owned\x07"
            "b\xc2\x9b"
            "c");
}

// Sets a variable while it lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

TEST_F(ReplyTest, AModelOfTheHubsCacheIsFoundByItsName) {
  const auto repository = folder_ / "home" / "hub" / "models--Org--Tiny-MoE";
  write_scripted_model(repository / "snapshots" / "abc123", {.reply = {"fine"}, .special = {}});
  std::filesystem::create_directories(repository / "refs");
  std::ofstream(repository / "refs" / "main") << "abc123";
  {
    const Variable home("HF_HOME", (folder_ / "home").string());
    EXPECT_EQ(json_of({"run", "Org/Tiny-MoE", "--chat", "-p", "x"}).at("text"), "fine");
    for (const char* command : {"inspect", "explain", "plan"})
      EXPECT_EQ(moracle_run({command, "Org/Tiny-MoE"}).code, 0) << command;
    for (const char* meant : {"Org/Tiny-MoE/", "https://huggingface.co/Org/Tiny-MoE", "hf.co/Org/Tiny-MoE/tree/main",
                              "models--Org--Tiny-MoE"})
      EXPECT_EQ(moracle_run({"inspect", meant}).code, 0) << meant;
    const RunOutcome missing = moracle_run({"run", "Org/Other", "-p", "x"});
    EXPECT_EQ(missing.code, 1);
    EXPECT_NE(missing.err.find("`hf download Org/Other`"), std::string::npos) << missing.err;
    EXPECT_NE(missing.err.find((folder_ / "home" / "hub").string()), std::string::npos) << missing.err;
    for (const char* path : {"./Org/Other", "/Org/Other", "Org/Other/more", "Org/", "Org"})
      EXPECT_EQ(moracle_run({"inspect", path}).err.find("hf download"), std::string::npos) << path;
  }
  const Variable cache("HF_HUB_CACHE", (folder_ / "home" / "hub").string());
  EXPECT_EQ(moracle_run({"inspect", "Org/Tiny-MoE"}).code, 0);
}

}  // namespace
}  // namespace moracle::test
