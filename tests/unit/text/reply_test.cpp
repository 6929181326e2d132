// Reasoning and answer told apart, however the reply is cut into pieces.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/reply/reply_reader.h"

namespace moracle {
namespace {

struct Parts {
  std::string reasoning, answer;
  bool operator==(const Parts&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Parts& parts) {
  return out << "reasoning '" << parts.reasoning << "', answer '" << parts.answer << "'";
}

// A reader makes text and reasoning alone, none of it empty.
void add(const ReplyEvent& event, Parts& parts) {
  const auto* const text = std::get_if<TextEvent>(&event);
  const auto* const reasoning = std::get_if<ReasoningEvent>(&event);
  ASSERT_TRUE(text != nullptr || reasoning != nullptr);
  EXPECT_FALSE((text != nullptr ? text->text : reasoning->text).empty());
  (text != nullptr ? parts.answer : parts.reasoning) += text != nullptr ? text->text : reasoning->text;
}

// A tokenizer that knows these texts as tokens, from id 1 on.
Tokenizer tokenizer_of(const std::vector<std::string>& added) {
  Json tokens = Json::array();
  for (std::size_t i = 0; i < added.size(); ++i) {
    tokens.push_back({{"id", i + 1},
                      {"content", added[i]},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false},
                      {"special", true}});
  }
  const Json json = {{"version", "1.0"},
                     {"added_tokens", tokens},
                     {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", Json::array()}}}};
  auto made = Tokenizer::from_json(json, "tokenizer.json");
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message());
  return *made;
}

ReplyFormat think_in_text() {
  return {};
}
ReplyFormat channels_in_text() {
  return ReplyFormat::of(tokenizer_of({}), "<|start|>assistant<|channel|>final<|message|>");
}
const std::vector<std::string> kHarmony = {"<|start|>", "<|channel|>", "<|message|>", "<|end|>"};
ReplyFormat channels_as_tokens() {
  return ReplyFormat::of(tokenizer_of(kHarmony), "");
}

using Pieces = std::vector<std::string>;

Parts read(const ReplyFormat& format, const std::string& prompt, const Pieces& pieces) {
  ReplyReader reader(format, prompt);
  Parts parts;
  const ReplyReader::Emit emit = [&](ReplyEvent&& event) { add(event, parts); };
  for (const std::string& piece : pieces) reader.text(piece, emit);
  reader.finish(emit);
  return parts;
}

// The reply whole, letter by letter, and cut at every place: all must give the same.
Parts read_cut(const ReplyFormat& format, const std::string& prompt, const std::string& reply) {
  const Parts whole = read(format, prompt, {reply});
  Pieces letters;
  for (const char c : reply) letters.emplace_back(1, c);
  EXPECT_EQ(read(format, prompt, letters), whole) << "letter by letter: " << reply;
  for (std::size_t at = 1; at < reply.size(); ++at)
    EXPECT_EQ(read(format, prompt, {reply.substr(0, at), reply.substr(at)}), whole) << "cut at " << at << ": " << reply;
  return whole;
}

TEST(ReplyReader, ThinkIsToldFromTheAnswer) {
  const auto parts = [](const std::string& reply, const std::string& prompt = "") {
    return read_cut(think_in_text(), prompt, reply);
  };
  EXPECT_EQ(parts("<think>\nTwo and two.\n</think>\n\nFour.\n"), (Parts{"Two and two.", "Four.\n"}));
  EXPECT_EQ(parts("\n <think>a\n\nb</think>c"), (Parts{"a\n\nb", "c"}));
  EXPECT_EQ(parts("<think></think>\n\nFour."), (Parts{"", "Four."}));
  EXPECT_EQ(parts("<think>cut off  "), (Parts{"cut off", ""}));
  EXPECT_EQ(parts("<think>a < b </thin"), (Parts{"a < b </thin", ""}));
  EXPECT_EQ(parts("Four.</think>"), (Parts{"", "Four.</think>"}));
  EXPECT_EQ(parts("<th"), (Parts{"", "<th"}));
  EXPECT_EQ(parts(" And <think> is a tag </think>."), (Parts{"", " And <think> is a tag </think>."}));
  EXPECT_EQ(parts("<think>a</think>The tag <think> opens"), (Parts{"a", "The tag <think> opens"}));
  EXPECT_EQ(parts("  \n"), (Parts{"", "  \n"}));
  EXPECT_EQ(parts(""), Parts{});
}

TEST(ReplyReader, ThePromptMayHaveOpenedReasoning) {
  const auto parts = [](const std::string& prompt, const std::string& reply) {
    return read_cut(think_in_text(), prompt, reply);
  };
  const std::string turn = "<|im_start|>assistant\n";
  EXPECT_EQ(parts(turn + "<think>\n", "Two and two.\n</think>\n\nFour."), (Parts{"Two and two.", "Four."}));
  EXPECT_EQ(parts(turn + "<think>", "never closed"), (Parts{"never closed", ""}));
  EXPECT_EQ(parts(turn + "<think>\n\n</think>\n\n", "Four."), (Parts{"", "Four."}));
  EXPECT_EQ(parts("user\nwhat is <think>?" + turn, "A tag."), (Parts{"", "A tag."}));
}

constexpr const char* kTurn = "<|start|>user<|message|>hi<|end|><|start|>assistant";

TEST(ReplyReader, ChannelsAreToldApart) {
  const auto parts = [](const std::string& reply, const std::string& prompt = kTurn) {
    return read_cut(channels_in_text(), prompt, reply);
  };
  EXPECT_EQ(
      parts("<|channel|>analysis<|message|>Greet.<|end|><|start|>assistant<|channel|>final<|message|>Hello!<|return|>"),
      (Parts{"Greet.", "Hello!"}));
  EXPECT_EQ(parts("<|channel|>final<|message|>Hello!"), (Parts{"", "Hello!"}));
  EXPECT_EQ(parts("<|channel|>analysis<|message|>cut"), (Parts{"cut", ""}));
  EXPECT_EQ(parts("<|channel|>anal"), Parts{});
  EXPECT_EQ(parts("<|message|>Hello!"), (Parts{"", "Hello!"}));
  EXPECT_EQ(parts("Hello, plainly."), (Parts{"", "Hello, plainly."}));
  EXPECT_EQ(parts("to be or not"), (Parts{"", "to be or not"}));
  EXPECT_EQ(parts(" t"), (Parts{"", " t"}));
  // A preamble of the commentary is for the user, too; a second message of a kind is set off.
  EXPECT_EQ(parts("<|channel|>commentary<|message|>First a plan.<|end|>"
                  "<|start|>assistant<|channel|>final<|message|>Done."),
            (Parts{"", "First a plan.\n\nDone."}));
  EXPECT_EQ(parts("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>"),
            (Parts{"a\n\nb", ""}));
  // A call of a tool, in both places where its recipient may stand.
  EXPECT_EQ(parts("<|channel|>commentary to=functions.time <|constrain|>json<|message|>{}<|call|>"),
            (Parts{"", "to=functions.time {}"}));
  EXPECT_EQ(parts(" to=functions.time<|channel|>commentary <|constrain|>json<|message|>{}<|call|>"),
            (Parts{"", "to=functions.time {}"}));
}

TEST(ReplyReader, ThePromptMayHaveOpenedAChannel) {
  const auto parts = [](const std::string& prompt, const std::string& reply) {
    return read_cut(channels_in_text(), prompt, reply);
  };
  EXPECT_EQ(parts("<|start|>assistant<|channel|>analysis<|message|>", "hm<|end|>"), (Parts{"hm", ""}));
  EXPECT_EQ(parts("<|start|>assistant<|channel|>ana", "lysis<|message|>hm<|end|>"), (Parts{"hm", ""}));
  EXPECT_EQ(parts("<|start|>user<|message|>hi<|end|>", "<|start|>assistant<|channel|>final<|message|>ho"),
            (Parts{"", "ho"}));
  EXPECT_EQ(parts("a plain text", " goes on"), (Parts{"", " goes on"}));
}

TEST(ReplyReader, HostileRepliesLoseNoTextAndEnd) {
  const std::string long_header(100'000, 'x');
  const Parts parts = read(channels_in_text(), kTurn, {"<|channel|>" + long_header, "y<|message|>z"});
  EXPECT_NE(parts.answer.find(long_header), std::string::npos);
  EXPECT_NE(parts.answer.find('z'), std::string::npos);
  EXPECT_EQ(read_cut(channels_in_text(), kTurn, "<|start|><|start|><|channel|><|message|><|end|><|end|>"), Parts{});
  EXPECT_EQ(read_cut(channels_in_text(), kTurn, "<|channel|>final<|message|>a<|message|>b").answer, "a\n\nb");
  EXPECT_EQ(read_cut(channels_in_text(), kTurn, "<|channel|>final<|message|>a<|end|>stray").answer, "a\n\nstray");
  EXPECT_EQ(read_cut(think_in_text(), "", "<think><think><think></think></think>"),
            (Parts{"<think><think>", "</think>"}));
  EXPECT_EQ(read_cut(think_in_text(), "", "<think>\xff\xc3</think>\x1b[2J").answer, "\x1b[2J");
}

TEST(ReplyReader, AMarkThatIsATokenCountsAsTokenAlone) {
  const ReplyFormat format = channels_as_tokens();
  EXPECT_EQ(format.kind(), ReplyFormat::Kind::channels);
  EXPECT_EQ(format.mark_of(2), "<|channel|>");
  EXPECT_EQ(format.mark_of(0), "");
  ReplyReader reader(format, kTurn);
  Parts parts;
  const ReplyReader::Emit emit = [&](ReplyEvent&& event) { add(event, parts); };
  reader.mark("<|channel|>", emit);
  reader.text("ana", emit);
  reader.text("lysis", emit);
  reader.mark("<|message|>", emit);
  reader.text("It asks for <|end|> and <|channel|>.", emit);
  reader.mark("<|end|>", emit);
  reader.mark("<|start|>", emit);
  reader.text("assistant", emit);
  reader.mark("<|channel|>", emit);
  reader.text("final", emit);
  reader.mark("<|message|>", emit);
  reader.text("The marks are <|channel|>", emit);
  reader.text(" and others.", emit);
  reader.finish(emit);
  EXPECT_EQ(parts, (Parts{"It asks for <|end|> and <|channel|>.", "The marks are <|channel|> and others."}));

  ReplyReader think(ReplyFormat::of(tokenizer_of({"<think>", "</think>"}), ""), "");
  parts = {};
  think.text("\n", emit);
  think.mark("<think>", emit);
  think.text("the tag </think> ends it", emit);
  think.mark("</think>", emit);
  think.text("\n\nFour.", emit);
  think.finish(emit);
  EXPECT_EQ(parts, (Parts{"the tag </think> ends it", "Four."}));
}

TEST(ReplyFormat, IsFoundByTokensAndByTheTemplate) {
  const auto format = [](const std::vector<std::string>& tokens, const char* chat_template) {
    return ReplyFormat::of(tokenizer_of(tokens), chat_template);
  };
  EXPECT_EQ(format({}, "").open(), "<think>");
  EXPECT_EQ(format({}, "{{ '<seed:think>' }}").close(), "</seed:think>");
  EXPECT_EQ(format({"[THINK]", "[/THINK]"}, "<think>").open(), "[THINK]");
  EXPECT_EQ(format({}, "◁think▷").close(), "◁/think▷");
  EXPECT_EQ(format({}, "<|channel|>").kind(), ReplyFormat::Kind::think) << "one mark alone is none of harmony";
  EXPECT_EQ(format(kHarmony, "").kind(), ReplyFormat::Kind::channels);
}

}  // namespace
}  // namespace moracle
