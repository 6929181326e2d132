// From tokens to the events of a reply.
#include "serve/api/reply_text.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "support/test_data.h"

namespace moracle::serve {
namespace {

using Events = std::vector<ReplyEvent>;

class ReplyTextTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto read = Tokenizer::load(test::source_dir() / "examples/models/qwen3moe-gptq-w4g128-sym");
    ASSERT_TRUE(read.ok()) << read.error().message();
    tokenizer_.emplace(*std::move(read));
  }
  static void TearDownTestSuite() { tokenizer_.reset(); }

  static std::vector<std::int32_t> ids_of(const std::string& text) {
    const auto ids = tokenizer_->encode(text, {.add_special_tokens = false});
    EXPECT_TRUE(ids.ok());
    return ids.ok() ? *ids : std::vector<std::int32_t>();
  }
  // All of a reply, its events taken at the end, or token by token.
  static Events events_of(ReplyTextOptions options, const std::string& reply, bool by_token = false) {
    ReplyText text(*tokenizer_, std::move(options));
    Events events;
    const auto take = [&] {
      for (ReplyEvent& event : text.take_events()) events.push_back(std::move(event));
    };
    for (const std::int32_t id : ids_of(reply)) {
      EXPECT_TRUE(text.push(id).ok());
      if (by_token) take();
    }
    EXPECT_TRUE(text.finish().ok());
    text.end({.reason = EndEvent::Reason::length}, "");
    EXPECT_TRUE(text.has_events());
    take();
    EXPECT_FALSE(text.has_events());
    return events;
  }
  static inline std::optional<Tokenizer> tokenizer_;
  const EndEvent end_{.reason = EndEvent::Reason::length};
};

TEST_F(ReplyTextTest, NeighboursOfOneKindAreOneEvent) {
  EXPECT_EQ(events_of({}, "alpha beta gamma"), (Events{TextEvent{"alpha beta gamma"}, end_}));
  const Events pieces = events_of({}, "alpha beta gamma", true);
  ASSERT_GT(pieces.size(), 2U);
  std::string joined;
  for (const ReplyEvent& event : pieces) {
    if (const auto* const text = std::get_if<TextEvent>(&event)) joined += text->text;
  }
  EXPECT_EQ(joined, "alpha beta gamma");
  EXPECT_EQ(pieces.back(), ReplyEvent(end_));
}

TEST_F(ReplyTextTest, AnEchoGoesInFrontOfTheFirstToken) {
  EXPECT_EQ(events_of({.echo = "one "}, "two"), (Events{TextEvent{"one two"}, end_}));
  EXPECT_EQ(events_of({.echo = "one "}, ""), (Events{TextEvent{"one "}, end_}));
  EXPECT_EQ(events_of({}, ""), Events{end_});
}

TEST_F(ReplyTextTest, ReasoningIsToldFromTheAnswer) {
  const ReplyTextOptions options{.format = ReplyFormat(), .prompt = "<think>"};
  EXPECT_EQ(events_of(options, "why not</think>\n\nbecause"),
            (Events{ReasoningEvent{"why not"}, TextEvent{"because"}, end_}));
  ReplyText text(*tokenizer_, options);
  const auto thought = ids_of("why not");
  for (const std::int32_t id : thought) ASSERT_TRUE(text.push(id).ok());
  ASSERT_TRUE(text.finish().ok());
  EXPECT_EQ(text.reasoning_tokens(), std::ssize(thought));
}

TEST_F(ReplyTextTest, NothingFollowsAStopText) {
  ReplyText text(*tokenizer_, {.stop = {"ta g"}});
  for (const std::int32_t id : ids_of("alpha beta gamma delta")) ASSERT_TRUE(text.push(id).ok());
  ASSERT_TRUE(text.finish().ok());
  EXPECT_TRUE(text.stopped());
  EXPECT_EQ(text.stop_text(), "ta g");
  text.end({.by = text.stop_text()}, "");
  EXPECT_EQ(text.take_events(), (Events{TextEvent{"alpha be"}, EndEvent{.by = "ta g"}}));
}

TEST_F(ReplyTextTest, TheRestOfTheTextGoesInFrontOfTheEnd) {
  ReplyText text(*tokenizer_, {});
  text.end({.by = "<|im_end|>"}, "<|im_end|>");
  EXPECT_EQ(text.take_events(), (Events{TextEvent{"<|im_end|>"}, EndEvent{.by = "<|im_end|>"}}));
}

}  // namespace
}  // namespace moracle::serve
