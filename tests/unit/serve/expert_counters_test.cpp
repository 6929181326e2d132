// Streams of /v1/routing: what each hears, and when.
#include "serve/expert_counters.h"

#include <gtest/gtest.h>

namespace moracle::serve {
namespace {

struct Stream final : Exchange {
  void reply(HttpReply /*reply*/) override { ADD_FAILURE() << "a stream is asked for"; }
  void begin_stream(HeaderList /*headers*/) override { ADD_FAILURE() << "it is open"; }
  void write(std::string piece) override { events.push_back(Json::parse(piece.substr(6))); }
  void end() override { ended = true; }
  void on_disconnect(std::function<void(std::string_view)> callback) override { disconnected = std::move(callback); }
  void on_backlog(std::function<void(bool)> /*callback*/) override {}

  std::vector<Json> events;
  std::function<void(std::string_view)> disconnected;
  bool ended = false;
};

class ExpertCountersTest : public ::testing::Test {
 protected:
  ExpertCountersTest() { counters_.set_shape(2, 3); }
  std::shared_ptr<Stream> watch(const std::string& request = "", const std::string& key = "") {
    auto stream = std::make_shared<Stream>();
    EXPECT_FALSE(counters_.full());
    counters_.watch(stream, request, key);
    return stream;
  }
  // Request "a" of key "k" runs.
  void report(std::uint64_t steps, bool runs = false) {
    counters_.report({.steps = steps, .all = {1, 2, 3, 4, 5, 6}},
                     [&](const std::string& request, const std::string& key, ExpertCounters::Counts& counts) {
                       if (!runs || request != "a" || key != "k") return false;
                       counts[1] += 7;
                       return true;
                     });
  }
  ExpertCounters counters_;
};

TEST_F(ExpertCountersTest, TellsWhatIsNew) {
  const auto stream = watch();
  report(1);
  report(1);
  ASSERT_EQ(stream->events.size(), 1U);
  EXPECT_EQ(stream->events[0]["all"], Json::parse("[[1,2,3],[4,5,6]]"));
  EXPECT_EQ(stream->events[0]["request"], nullptr);
  EXPECT_EQ(stream->events[0]["experts"], 3);
  report(2);
  EXPECT_EQ(stream->events.size(), 2U);
}

TEST_F(ExpertCountersTest, ARequestIsToldWhileItRunsAndOnceBehindItsEnd) {
  const auto own = watch("a", "k");
  const auto other = watch("a", "l");
  report(1, true);
  EXPECT_EQ(own->events.back()["request"], Json::parse(R"({"id":"a","running":true,"counts":[[0,7,0],[0,0,0]]})"));
  EXPECT_EQ(other->events.back()["request"], nullptr) << "of another key";
  counters_.keep("a", "k", {0, 8, 0, 0, 0, 1});
  report(1);
  report(1);
  ASSERT_EQ(own->events.size(), 2U);
  EXPECT_EQ(own->events.back()["request"], Json::parse(R"({"id":"a","running":false,"counts":[[0,8,0],[0,0,1]]})"));
  EXPECT_EQ(other->events.size(), 1U);
}

TEST_F(ExpertCountersTest, HoldsTheLatestRepliesAlone) {
  for (std::size_t i = 0; i <= ExpertCounters::kKept; ++i)
    counters_.keep("r" + std::to_string(i), "", {0, 0, 0, 0, 0, 0});
  const auto first = watch("r0");
  const auto last = watch("r" + std::to_string(ExpertCounters::kKept));
  report(1);
  EXPECT_EQ(first->events.back()["request"], nullptr);
  EXPECT_EQ(last->events.back()["request"]["running"], false);
}

TEST_F(ExpertCountersTest, StreamsThatLeftMakeRoom) {
  std::vector<std::shared_ptr<Stream>> streams;
  for (std::size_t i = 0; i < ExpertCounters::kWatchers; ++i) streams.push_back(watch());
  EXPECT_TRUE(counters_.full());
  streams[3]->disconnected("disconnect");
  watch();
  report(1);
  EXPECT_TRUE(streams[3]->events.empty());
  EXPECT_EQ(streams[4]->events.size(), 1U);
  counters_.end();
  EXPECT_TRUE(streams[4]->ended);
  EXPECT_FALSE(counters_.watched());
}

}  // namespace
}  // namespace moracle::serve
