// Sharing a range: everything is done once, no range is longer than it may be, each thread reads its own part
// in order, and a thread without work steals.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/work_stealing.h"

namespace moracle {
namespace {

using Range = std::pair<std::int64_t, std::int64_t>;

template <class Most>
std::vector<Range> shared(int threads, std::int64_t total, const Most& most) {
  ThreadPool pool(threads);
  std::mutex mutex;
  std::vector<Range> ranges;
  std::map<std::int64_t, int> thread_at;                // by where a range begins
  std::map<int, std::int64_t> said;                     // where each thread is to go on
  std::vector<std::pair<int, std::int64_t>> elsewhere;  // threads that did not, and where they were to
  parallel_ranges(pool, total, most, [&](std::int64_t begin, std::int64_t end, std::int64_t after, int thread) {
    const std::lock_guard lock(mutex);
    EXPECT_GE(thread, 0);
    EXPECT_LT(thread, threads);
    EXPECT_LE(end - begin, most(begin));
    EXPECT_GE(after, 0);
    EXPECT_LT(after, total);
    const auto expected = said.find(thread);
    if (expected != said.end() && expected->second != begin) elsewhere.emplace_back(thread, expected->second);
    said.erase(thread);
    if (after < begin || after >= end) said.emplace(thread, after);
    thread_at.emplace(begin, thread);
    ranges.emplace_back(begin, end);
  });
  for (const auto& [thread, at] : said) elsewhere.emplace_back(thread, at);
  // A thread goes on where it said it would, unless another has taken the last index that was left there.
  for (const auto& [thread, at] : elsewhere) {
    const auto taken = thread_at.find(at);
    EXPECT_TRUE(taken != thread_at.end() && taken->second != thread) << thread << " was to go on at " << at;
  }
  std::sort(ranges.begin(), ranges.end());
  return ranges;
}

TEST(ParallelRanges, CoverEverythingOnce) {
  for (const int threads : {1, 2, 5}) {
    for (const std::int64_t total : {0, 1, 7, 64, 1000}) {
      std::int64_t at = 0;
      for (const auto& [begin, end] : shared(threads, total, [&](std::int64_t) { return total; })) {
        EXPECT_EQ(begin, at) << threads << " " << total;
        EXPECT_GT(end, begin);
        at = end;
      }
      EXPECT_EQ(at, total) << threads;
    }
  }
}

TEST(ParallelRanges, OfOneThreadFollowEachOther) {
  ThreadPool pool(1);
  std::int64_t at = 0;
  parallel_ranges(
      pool, 100, [](std::int64_t) { return std::int64_t{100}; },
      [&](std::int64_t begin, std::int64_t end, std::int64_t after, int) {
        EXPECT_EQ(begin, at);
        EXPECT_EQ(after, end < 100 ? end : 99) << "it goes on behind this one; in the end it stays";
        at = end;
      });
  EXPECT_EQ(at, 100);
}

TEST(ParallelRanges, EndWhereTheyMust) {
  // Experts of 10 panels: a range stays in one.
  for (const auto& [begin, end] : shared(2, 200, [](std::int64_t begin) { return 10 - begin % 10; }))
    EXPECT_EQ(begin / 10, (end - 1) / 10) << begin << " " << end;
}

TEST(ParallelRanges, WhoIsDoneTakesFromWhoIsNot) {
  // The first part's owner waits in its first range until another has done all the rest. Where no other comes within
  // a second, it has to go on alone.
  constexpr std::int64_t kTotal = 64;
  ThreadPool pool(2);
  std::atomic<std::int64_t> done{0};
  std::atomic<bool> other_came{false};
  std::mutex mutex;
  std::map<std::int64_t, int> times;
  parallel_ranges(
      pool, kTotal, [](std::int64_t) { return std::int64_t{1}; },
      [&](std::int64_t begin, std::int64_t end, std::int64_t, int) {
        if (begin == 0) {
          const auto start = std::chrono::steady_clock::now();
          bool other = false;
          for (;;) {
            other = other_came;
            const auto limit = std::chrono::seconds(other ? 60 : 1);
            if (done == kTotal - 1 || std::chrono::steady_clock::now() > start + limit) break;
            std::this_thread::yield();
          }
          if (other) {
            EXPECT_EQ(done, kTotal - 1);
          }
        } else {
          other_came = true;
        }
        done += end - begin;
        const std::lock_guard lock(mutex);
        ++times[begin];
      });
  EXPECT_EQ(times.size(), kTotal);
  for (const auto& [begin, count] : times) EXPECT_EQ(count, 1) << begin;
}

TEST(WorkQueues, AreEqualAndTakenFromTheFront) {
  std::array<PerThread, 2> values;
  WorkQueues parts(values, 100);
  const auto any = [](std::int64_t) { return std::int64_t{100}; };
  const WorkRange first = parts.take(1, any);
  EXPECT_EQ(first.begin, 50);
  EXPECT_EQ(first.end, 62) << "a quarter of the part";
  EXPECT_EQ(parts.front(1), 62);
  EXPECT_EQ(parts.front(0), 0);
  EXPECT_EQ(parts.take(0, [](std::int64_t) { return std::int64_t{3}; }).end, 3) << "no more than it may";
}

TEST(WorkQueues, RefillWithHalfOfTheLargest) {
  std::array<PerThread, 3> values;
  WorkQueues parts(values, 30);
  const auto any = [](std::int64_t) { return std::int64_t{30}; };
  while (parts.take(0, any).size() > 0) {
  }
  EXPECT_FALSE(parts.front(0));
  parts.take(1, any);
  ASSERT_TRUE(parts.refill(0, 1)) << "from the third, whose owner has taken nothing";
  EXPECT_EQ(parts.front(0), 25);
  EXPECT_EQ(parts.front(2), 20);
  EXPECT_EQ(parts.take(0, any).begin, 25);
}

TEST(WorkQueues, LeaveAnOwnerItsLastUnlessOneIsIdle) {
  std::array<PerThread, 2> values;
  WorkQueues parts(values, 2);
  const auto any = [](std::int64_t) { return std::int64_t{2}; };
  EXPECT_EQ(parts.take(0, any).begin, 0);
  EXPECT_FALSE(parts.refill(0, 2));
  EXPECT_TRUE(parts.refill(0, 1));
  EXPECT_EQ(parts.take(0, any).begin, 1);
  EXPECT_FALSE(parts.refill(0, 1));
  EXPECT_EQ(parts.take(1, any).size(), 0);
}

}  // namespace
}  // namespace moracle
