#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>

namespace moracle {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, RunsEachIndexOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.threads(), std::max(1, GetParam()));
  for (const std::int64_t count : {0, 1, 2, 3, 7, 64, 1000}) {
    std::vector<int> runs(static_cast<std::size_t>(count), 0);  // plain: two runs of one index would race
    pool.parallel_for(count, [&](std::int64_t index, int thread) {
      ASSERT_GE(thread, 0);
      ASSERT_LT(thread, pool.threads());
      ++runs[static_cast<std::size_t>(index)];
    });
    EXPECT_EQ(std::count(runs.begin(), runs.end(), 1), count);
  }
}

TEST_P(ThreadPoolTest, WhatAJobWroteIsSeenByTheNext) {
  ThreadPool pool(GetParam());
  std::vector<std::int64_t> values(37, 0);
  constexpr std::int64_t kJobs = 300;
  for (std::int64_t job = 0; job < kJobs; ++job) {
    // Each job reads its neighbour's value of the job before.
    std::vector<std::int64_t> next(values.size());
    pool.parallel_for(static_cast<std::int64_t>(values.size()), [&](std::int64_t index, int) {
      const auto at = static_cast<std::size_t>(index);
      next[at] = values[(at + 1) % values.size()] + 1;
    });
    values = next;
  }
  EXPECT_EQ(std::accumulate(values.begin(), values.end(), std::int64_t{0}), 37 * kJobs);
}

TEST_P(ThreadPoolTest, WakesParkedWorkers) {
  ThreadPool pool(GetParam());
  for (int job = 0; job < 5; ++job) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // longer than the workers spin
    std::atomic<int> runs = 0;
    pool.parallel_for(100, [&](std::int64_t, int) { runs.fetch_add(1); });
    EXPECT_EQ(runs.load(), 100);
  }
}

// Jobs far shorter than the time a thread needs to wake: most workers come late, and none may see an old job.
TEST_P(ThreadPoolTest, ShortJobsDoNotWaitForLateWorkers) {
  ThreadPool pool(GetParam());
  for (std::int64_t job = 0; job < 20000; ++job) {
    std::int64_t values[2] = {-1, -1};
    pool.parallel_for(2, [&](std::int64_t index, int) { values[index] = job + index; });
    ASSERT_EQ(values[0], job);
    ASSERT_EQ(values[1], job + 1);
  }
}

TEST_P(ThreadPoolTest, ThreadNumbersAreExclusive) {
  ThreadPool pool(GetParam());
  std::vector<std::int64_t> per_thread(static_cast<std::size_t>(pool.threads()), 0);  // plain, as scratch memory is
  pool.parallel_for(10000, [&](std::int64_t, int thread) { ++per_thread[static_cast<std::size_t>(thread)]; });
  EXPECT_EQ(std::accumulate(per_thread.begin(), per_thread.end(), std::int64_t{0}), 10000);
}

TEST_P(ThreadPoolTest, EndsIdleAndUnused) {
  for (int i = 0; i < 20; ++i) {
    ThreadPool pool(GetParam());
    if (i % 2 == 0) pool.parallel_for(3, [](std::int64_t, int) {});
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 8));

}  // namespace
}  // namespace moracle
