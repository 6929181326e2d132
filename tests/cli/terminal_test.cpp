// What only happens on a terminal: the chat and the progress bar.
#include "cli/terminal.h"

#include "cli/cli_fixture.h"
#include "support/scripted_model.h"

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

const Terminal::Environment kDumb = {{"TERM", "dumb"}};

// Reads up to the next prompt; what came before it, without the line that was typed.
std::string answer_to(Terminal& chat, const std::string& typed) {
  bool found = false;
  chat.type(typed + "\r");
  chat.until("\r\n", found);
  EXPECT_TRUE(found) << "the line is shown: " << chat.text();
  const std::string answer = plain(chat.until("\r\n> ", found));
  EXPECT_TRUE(found) << chat.text();
  return answer;
}

void expect_prompt(Terminal& chat) {
  bool found = false;
  chat.until("\r\n> ", found);
  ASSERT_TRUE(found) << chat.text();
}

// A template that shows reasoning where it is asked for and refuses what must not reach it.
constexpr const char* kStrictTemplate =
    "{% for m in messages %}"
    "{% if '<think>' in m.content %}{{ raise_exception('marks in the history') }}{% endif %}"
    "{% if 'boom' in m.content %}{{ raise_exception('no booms here') }}{% endif %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

TEST_F(CliTest, ChatAnswersAsASinglePromptDoes) {
  const std::vector<std::string> settings = {"-n", "8", "--temperature", "0"};
  std::vector<std::string> once = {"run", model_path(kChatModel), "--chat", "-p", "hello there"};
  once.insert(once.end(), settings.begin(), settings.end());
  const auto want = json_of(once).at("text").get<std::string>();

  std::vector<std::string> arguments = {"run", model_path(kChatModel), "--quiet"};
  arguments.insert(arguments.end(), settings.begin(), settings.end());
  Terminal chat(arguments, kDumb);
  bool found = false;
  chat.until("> ", found);
  ASSERT_TRUE(found) << chat.text();
  EXPECT_EQ(answer_to(chat, "hello there"), want);
  answer_to(chat, "and again");  // continues the first
  chat.type("/exit\r");
  EXPECT_EQ(chat.finish(), 0) << chat.text();
}

TEST_F(CliTest, ChatKeepsReasoningApartAndOutOfTheWay) {
  write_scripted_model(folder_ / "thinker",
                       {.reply = {"<think>", "\nTwo and", " two.\n", "</think>", "\n\nFour", ", plainly."},
                        .special = {},
                        .chat_template = kStrictTemplate});
  Terminal chat({"run", "thinker", "--quiet"}, kDumb, 100, folder_.string());
  bool found = false;
  chat.until("> ", found);
  ASSERT_TRUE(found) << chat.text();
  const std::string want = "<think>\nTwo and two.\n</think>\n\nFour, plainly.";
  EXPECT_EQ(answer_to(chat, "2+2?"), want);
  EXPECT_NE(answer_to(chat, "a boom").find("no booms here"), std::string::npos) << "an error ends the turn";
  EXPECT_EQ(answer_to(chat, "2+2?"), want) << "and not the chat; no marks are in the history";
  EXPECT_EQ(answer_to(chat, "/save talk.json"), "Saved to talk.json.");
  const Json wanted = {{{"role", "user"}, {"content", "2+2?"}},
                       {{"role", "assistant"}, {"content", "Four, plainly."}, {"reasoning_content", "Two and two."}}};
  Json twice = wanted;
  twice.insert(twice.end(), wanted.begin(), wanted.end());
  EXPECT_EQ(read_json(folder_ / "talk.json")->at("messages"), twice);
  EXPECT_EQ(answer_to(chat, "/save talk.json"), "Saved to talk.json.") << "its own file";
  EXPECT_NE(answer_to(chat, "/save thinker/config.json").find("wanted a new file"), std::string::npos);
  EXPECT_EQ(answer_to(chat, "/reset"), "The conversation is forgotten.");
  EXPECT_EQ(answer_to(chat, "/system Be brief."), "The system prompt is set.");
  answer_to(chat, "//slash");
  answer_to(chat, "/save new.json");
  const Json saved = read_json(folder_ / "new.json")->at("messages");
  ASSERT_EQ(saved.size(), 3U);
  EXPECT_EQ(saved[0], (Json{{"role", "system"}, {"content", "Be brief."}}));
  EXPECT_EQ(saved[1].at("content"), "/slash");
  chat.type("/exit\r");
  EXPECT_EQ(chat.finish(), 0) << chat.text();
}

TEST_F(CliTest, ChatTakesMessagesOfSeveralLines) {
  write_scripted_model(folder_ / "echo", {.reply = {"fine"}, .special = {}});
  Terminal chat({"run", "echo", "--quiet"}, {{"TERM", "xterm"}}, 100, folder_.string());
  bool found = false;
  chat.until("> ", found);
  chat.type("one\\\rtwo\r");
  chat.until("fine", found);
  ASSERT_TRUE(found) << chat.text();
  chat.until("> ", found);
  chat.type("\"\"\"\ralpha\r\rbeta\"\"\"\r");
  chat.until("fine", found);
  ASSERT_TRUE(found) << chat.text();
  chat.until("> ", found);
  chat.type("\x1b[200~pasted\nlines\tof \xc3\xa4\n\x1b[201~");
  chat.type("\r");
  chat.until("fine", found);
  ASSERT_TRUE(found) << chat.text();
  chat.until("> ", found);
  chat.type("up\x1b\rdown\r");  // Alt-Enter
  chat.until("fine", found);
  ASSERT_TRUE(found) << chat.text();
  chat.until("> ", found);
  chat.type("\x1b[A\r");  // the last message again
  chat.until("fine", found);
  ASSERT_TRUE(found) << chat.text();
  chat.until("> ", found);
  chat.type("/save talk.json\r");
  chat.until("Saved", found);
  chat.type("\x04");
  EXPECT_EQ(chat.finish(), 0) << chat.text();
  std::vector<std::string> asked;
  const Json saved = read_json(folder_ / "talk.json")->at("messages");
  for (const Json& message : saved) {
    if (message.at("role") == "user") asked.push_back(message.at("content"));
  }
  EXPECT_EQ(asked, (std::vector<std::string>{"one\ntwo", "alpha\n\nbeta", "pasted\nlines of \xc3\xa4", "up\ndown",
                                             "up\ndown"}));
}

TEST_F(CliTest, CtrlDEndsTheChatAlsoWhereItCameBeforeThePrompt) {
  write_scripted_model(folder_ / "echo", {.reply = {"fine"}, .special = {}});
  for (const std::string& early : {std::string("\x04"), std::string("hi\r\x04")}) {
    Terminal chat({"run", "echo", "--quiet"}, {{"TERM", "xterm"}}, 100, folder_.string());
    chat.type(early);  // the program has not begun to read
    EXPECT_EQ(chat.finish(), 0) << chat.text();
    EXPECT_EQ(chat.text().find("fine") == std::string::npos, early.size() == 1) << chat.text();
  }
  Terminal chat({"run", "echo", "--quiet"}, {{"TERM", "xterm"}}, 100, folder_.string());
  bool found = false;
  chat.until("> ", found);
  chat.type(std::string("\0\x04", 2));  // Ctrl-Space has no meaning
  EXPECT_EQ(chat.finish(), 0) << chat.text();
}

TEST_F(CliTest, ChatTellsOnceOfASystemPromptThatTheTemplateHides) {
  write_scripted_model(folder_ / "deaf",
                       {.reply = {"fine"}, .special = {}, .chat_template = "{{ messages[-1].content + '\n' }}"});
  Terminal chat({"run", "deaf", "--system", "Be brief.", "--quiet"}, kDumb, 100, folder_.string());
  const std::string warning = "does not show the system prompt";
  bool found = false;
  chat.until("> ", found);
  ASSERT_TRUE(found) << chat.text();
  EXPECT_NE(answer_to(chat, "first").find(warning), std::string::npos);
  EXPECT_EQ(answer_to(chat, "second"), "fine");
  answer_to(chat, "/system Be long.");
  EXPECT_NE(answer_to(chat, "third").find(warning), std::string::npos);
  answer_to(chat, "/system");
  EXPECT_EQ(answer_to(chat, "fourth"), "fine");
  chat.type("/exit\r");
  EXPECT_EQ(chat.finish(), 0) << chat.text();
}

TEST_F(CliTest, ChatEndsAtADamagedGenerationConfig) {
  const auto model = copy_model();
  for (const char* text : {"not JSON", "[]"}) {
    std::ofstream(model / "generation_config.json") << text;
    Terminal chat({"run", model.string()}, kDumb);
    EXPECT_EQ(chat.finish(), 1) << chat.text();
    EXPECT_NE(chat.text().find("generation_config.json"), std::string::npos) << chat.text();
  }
}

TEST_F(CliTest, ChatLeavesOutTheOldestTurnsOfAFullContext) {
  write_scripted_model(folder_ / "short", {.reply = {"fine"}, .special = {}, .context = 95});
  Terminal chat({"run", "short", "--system", "Be.", "-n", "4", "--quiet"}, kDumb, 100, folder_.string());
  bool found = false;
  chat.until("> ", found);
  ASSERT_TRUE(found) << chat.text();
  EXPECT_EQ(answer_to(chat, "first"), "fine");
  EXPECT_EQ(answer_to(chat, "second"), "fine");
  EXPECT_EQ(answer_to(chat, "third"), "moracle: the context of 95 tokens is full: the oldest turn is left out\nfine");
  EXPECT_NE(answer_to(chat, std::string(200, 'x')).find("model.context"), std::string::npos);
  EXPECT_EQ(answer_to(chat, "/save talk.json"), "Saved to talk.json.");
  const Json saved = read_json(folder_ / "talk.json")->at("messages");
  EXPECT_EQ(saved[0].at("content"), "Be.");
  EXPECT_EQ(saved[1].at("content"), "second");
  EXPECT_EQ(saved.size(), 5U);
  chat.type("/exit\r");
  EXPECT_EQ(chat.finish(), 0) << chat.text();
}

TEST_F(CliTest, ChatCommandsTellAndRefuse) {
  write_scripted_model(folder_ / "echo", {.reply = {"fine"}, .special = {}});
  Terminal chat({"run", "echo"}, kDumb, 200, folder_.string());
  expect_prompt(chat);
  EXPECT_NE(answer_to(chat, "/help").find("/save FILE"), std::string::npos);
  EXPECT_NE(answer_to(chat, "/hlep").find("unknown command '/hlep'; did you mean '/help'?"), std::string::npos);
  EXPECT_NE(answer_to(chat, "/set temperature 0.7").find("temperature 0.7, top-k"), std::string::npos);
  EXPECT_NE(answer_to(chat, "/set").find("temperature 0.7, top-k"), std::string::npos);
  EXPECT_NE(answer_to(chat, "/set top-p 7").find("at most 1"), std::string::npos);
  EXPECT_NE(answer_to(chat, "/set tempera 1").find("wanted one of max-tokens, temperature"), std::string::npos);
  answer_to(chat, "hi");
  const std::string stats = answer_to(chat, "/stats");
  EXPECT_NE(stats.find("2 tokens, "), std::string::npos) << stats;
  EXPECT_NE(stats.find("of 2048 tokens"), std::string::npos) << stats;
  chat.type("/exit\r");
  EXPECT_EQ(chat.finish(), 0) << chat.text();
}

TEST_F(CliTest, ChatEndsByCtrlDAndByASecondCtrlC) {
  Terminal left({"run", model_path(kChatModel)}, kDumb);
  expect_prompt(left);
  EXPECT_EQ(left.finish_by("\x04"), 0) << left.text();
  Terminal chat({"run", model_path(kChatModel)}, kDumb);
  expect_prompt(chat);
  bool found = false;
  chat.type("half a line\x03");
  chat.until("Ctrl-C again ends the chat.", found);
  ASSERT_TRUE(found) << chat.text();
  expect_prompt(chat);
  EXPECT_EQ(chat.finish_by("\x03"), 130) << chat.text();
}

TEST_F(CliTest, CtrlCEndsAnAnswerAndNotTheChat) {
  Terminal chat({"run", model_path(kChatModel), "-n", "2000", "--ignore-eos", "--temperature", "1", "--backend", "ref",
                 "--threads", "1"},
                kDumb);
  expect_prompt(chat);
  bool found = false;
  chat.type("talk\r");
  chat.until("\r\n", found);
  chat.until(" ", found);  // of the answer
  ASSERT_TRUE(found) << chat.text();
  chat.type("\x03");
  expect_prompt(chat);
  chat.type("/stats\r");
  chat.until("(interrupted)", found);
  EXPECT_TRUE(found) << chat.text();
  chat.type("/exit\r");
  EXPECT_EQ(chat.finish(), 0) << chat.text();
}

TEST_F(CliTest, ProgressIsDrawnOnATerminalAndWipedAtTheEnd) {
  const std::vector<std::string> arguments = {"run", model_path(), "-p", "a", "-n", "1", "--temperature", "0"};
  Terminal terminal(arguments);
  ASSERT_EQ(terminal.finish(), 0) << terminal.text();
  const std::string& text = terminal.text();
  const std::string wipe = "\r\x1b[K";
  const std::size_t full = text.find("loading [" + std::string(32, '#') + "] 100 %  7.1 of 7.1 MB");
  ASSERT_NE(full, std::string::npos) << text;
  const std::size_t end = text.find(wipe, full);
  ASSERT_NE(end, std::string::npos) << "nothing of the bar stays: " << text;
  EXPECT_EQ(text.find('\n', full) > end, true) << "the bar is wiped before anything else is written: " << text;
  const RunOutcome piped = moracle_run(arguments);
  EXPECT_EQ(piped.code, 0) << piped.err;
  EXPECT_EQ(piped.err.find('\x1b'), std::string::npos) << piped.err;
}

}  // namespace
}  // namespace moracle::test
