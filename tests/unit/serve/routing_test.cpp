// Streams of /v1/routing: what each hears, and when.
#include "serve/routing_board.h"

#include <gtest/gtest.h>

namespace moracle::serve {
namespace {

struct Stream final : Exchange {
  void reply(HttpReply /*reply*/) override { ADD_FAILURE() << "a stream is asked for"; }
  void begin_stream(HeaderList /*headers*/) override { ADD_FAILURE() << "it is open"; }
  void write(std::string piece) override { events.push_back(Json::parse(piece.substr(6))); }
  void end() override { ended = true; }
  void on_gone(std::function<void(std::string_view)> callback) override { gone = std::move(callback); }
  void on_lag(std::function<void(bool)> /*callback*/) override {}

  std::vector<Json> events;
  std::function<void(std::string_view)> gone;
  bool ended = false;
};

class RoutingBoardTest : public ::testing::Test {
 protected:
  RoutingBoardTest() { board_.set_shape(2, 3); }
  std::shared_ptr<Stream> watch(const std::string& request = "", const std::string& key = "") {
    auto stream = std::make_shared<Stream>();
    EXPECT_FALSE(board_.full());
    board_.watch(stream, request, key);
    return stream;
  }
  // Request "a" of key "k" runs.
  void tell(std::uint64_t steps, bool runs = false) {
    board_.tell({.steps = steps, .all = {1, 2, 3, 4, 5, 6}},
                [&](const std::string& request, const std::string& key, RoutingBoard::Counts& counts) {
                  if (!runs || request != "a" || key != "k") return false;
                  counts[1] += 7;
                  return true;
                });
  }
  RoutingBoard board_;
};

TEST_F(RoutingBoardTest, TellsWhatIsNew) {
  const auto stream = watch();
  tell(1);
  tell(1);
  ASSERT_EQ(stream->events.size(), 1U);
  EXPECT_EQ(stream->events[0]["all"], Json::parse("[[1,2,3],[4,5,6]]"));
  EXPECT_EQ(stream->events[0]["request"], nullptr);
  EXPECT_EQ(stream->events[0]["experts"], 3);
  tell(2);
  EXPECT_EQ(stream->events.size(), 2U);
}

TEST_F(RoutingBoardTest, ARequestIsToldWhileItRunsAndOnceBehindItsEnd) {
  const auto own = watch("a", "k");
  const auto other = watch("a", "l");
  tell(1, true);
  EXPECT_EQ(own->events.back()["request"], Json::parse(R"({"id":"a","running":true,"counts":[[0,7,0],[0,0,0]]})"));
  EXPECT_EQ(other->events.back()["request"], nullptr) << "of another key";
  board_.keep("a", "k", {0, 8, 0, 0, 0, 1});
  tell(1);
  tell(1);
  ASSERT_EQ(own->events.size(), 2U);
  EXPECT_EQ(own->events.back()["request"], Json::parse(R"({"id":"a","running":false,"counts":[[0,8,0],[0,0,1]]})"));
  EXPECT_EQ(other->events.size(), 1U);
}

TEST_F(RoutingBoardTest, HoldsTheLatestRepliesAlone) {
  for (std::size_t i = 0; i <= RoutingBoard::kKept; ++i) board_.keep("r" + std::to_string(i), "", {0, 0, 0, 0, 0, 0});
  const auto first = watch("r0");
  const auto last = watch("r" + std::to_string(RoutingBoard::kKept));
  tell(1);
  EXPECT_EQ(first->events.back()["request"], nullptr);
  EXPECT_EQ(last->events.back()["request"]["running"], false);
}

TEST_F(RoutingBoardTest, StreamsThatLeftMakeRoom) {
  std::vector<std::shared_ptr<Stream>> streams;
  for (std::size_t i = 0; i < RoutingBoard::kWatchers; ++i) streams.push_back(watch());
  EXPECT_TRUE(board_.full());
  streams[3]->gone("disconnect");
  watch();
  tell(1);
  EXPECT_TRUE(streams[3]->events.empty());
  EXPECT_EQ(streams[4]->events.size(), 1U);
  board_.end();
  EXPECT_TRUE(streams[4]->ended);
  EXPECT_FALSE(board_.watched());
}

}  // namespace
}  // namespace moracle::serve
