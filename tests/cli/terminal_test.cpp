// What only happens on a terminal: the chat and the progress bar.
#include "cli/terminal.h"

#include "cli/cli_fixture.h"

namespace moracle::test {
namespace {

constexpr const char* kChatModel = "mixtral-awq-w4g32";

// Lines as a pipe has them.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c != '\r') out += c;
  }
  return out;
}

TEST_F(CliTest, ChatAnswersAsASinglePromptDoes) {
  const std::vector<std::string> settings = {"-n", "8", "--temperature", "0"};
  std::vector<std::string> once = {"run", model_path(kChatModel), "--chat", "-p", "hello there"};
  once.insert(once.end(), settings.begin(), settings.end());
  const auto want = json_of(once).at("text").get<std::string>();

  std::vector<std::string> arguments = {"run", model_path(kChatModel)};
  arguments.insert(arguments.end(), settings.begin(), settings.end());
  Terminal chat(arguments);
  bool found = false;
  chat.until("Ctrl-C stops an answer.\r\n> ", found);
  ASSERT_TRUE(found) << chat.text();
  chat.type("hello there\n");
  chat.until("hello there\r\n", found);
  ASSERT_TRUE(found) << "the terminal echoes what is typed: " << chat.text();
  const std::string answer = chat.until("\r\n> ", found);
  ASSERT_TRUE(found) << chat.text();
  EXPECT_EQ(plain(answer), want);
  // A second turn continues the first.
  chat.type("and again\n");
  chat.until("and again\r\n", found);
  chat.until("\r\n> ", found);
  ASSERT_TRUE(found) << chat.text();
  chat.type("/exit\n");
  EXPECT_EQ(chat.finish(), 0) << chat.text();
}

TEST_F(CliTest, ChatEndsByCtrlDAndByCtrlC) {
  for (const auto& [key, code] : {std::pair{"\x04", 0}, std::pair{"\x03", 130}}) {
    Terminal chat({"run", model_path(kChatModel)});
    bool found = false;
    chat.until("\r\n> ", found);
    ASSERT_TRUE(found) << chat.text();
    EXPECT_EQ(chat.finish_by(key), code) << chat.text();
  }
}

TEST_F(CliTest, ProgressIsDrawnOnATerminalAndWipedAtTheEnd) {
  const std::vector<std::string> arguments = {"run", model_path(), "-p", "a", "-n", "1", "--temperature", "0"};
  Terminal terminal(arguments);
  ASSERT_EQ(terminal.finish(), 0) << terminal.text();
  const std::string& text = terminal.text();
  const std::string wipe = "\r\x1b[K";
  const std::size_t full = text.find("[" + std::string(32, '#') + "] 100 %");
  ASSERT_NE(full, std::string::npos) << text;
  EXPECT_EQ(text.compare(full + 32 + 2 + 6, wipe.size(), wipe), 0) << "nothing of the bar stays: " << text;
  const RunOutcome piped = moracle_run(arguments);
  EXPECT_EQ(piped.code, 0) << piped.err;
  EXPECT_EQ(piped.err.find('\x1b'), std::string::npos) << piped.err;
}

}  // namespace
}  // namespace moracle::test
