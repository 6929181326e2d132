#include "base/thread_pool.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string>

#include "support/subprocess.h"

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

// Whichever thread the body throws on, at whichever index: one exception comes out, everybody is done, the pool goes
// on.
TEST_P(ThreadPoolTest, AnExceptionEndsTheJobAndComesOut) {
  ThreadPool pool(GetParam());
  constexpr std::int64_t kCount = 40;
  for (std::int64_t bad = 0; bad < kCount; ++bad) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      std::vector<int> runs(static_cast<std::size_t>(kCount), 0);
      bool thrown = false;
      try {
        // What the body refers to dies with this scope: no worker may be in it any more.
        const std::string place = "index " + std::to_string(bad);
        pool.parallel_for(kCount, [&](std::int64_t index, int) {
          ++runs[static_cast<std::size_t>(index)];
          if (index == bad) throw std::runtime_error(place);
        });
      } catch (const std::runtime_error& error) {
        thrown = true;
        EXPECT_EQ(error.what(), "index " + std::to_string(bad));
      }
      ASSERT_TRUE(thrown);
      ASSERT_EQ(runs[static_cast<std::size_t>(bad)], 1);
      ASSERT_LE(*std::max_element(runs.begin(), runs.end()), 1);
      std::vector<int> after(static_cast<std::size_t>(kCount), 0);
      pool.parallel_for(kCount, [&](std::int64_t index, int) { ++after[static_cast<std::size_t>(index)]; });
      ASSERT_EQ(std::count(after.begin(), after.end(), 1), kCount);
    }
  }
}

TEST_P(ThreadPoolTest, ExceptionsOfAllThreadsAtOnceAreOne) {
  ThreadPool pool(GetParam());
  for (int repeat = 0; repeat < 200; ++repeat) {
    EXPECT_THROW(pool.parallel_for(64, [](std::int64_t, int) { throw std::bad_alloc(); }), std::bad_alloc);
  }
  EXPECT_EQ(pool.shortfall(), "");
}

// No further index is handed out: of a job too long to end, only what had begun is run.
TEST_P(ThreadPoolTest, AnExceptionStopsHandingOut) {
  ThreadPool pool(GetParam());
  std::atomic<std::int64_t> runs = 0;
  EXPECT_THROW(pool.parallel_for(std::int64_t{1} << 40,
                                 [&](std::int64_t index, int) {
                                   runs.fetch_add(1);
                                   if (index == 3) throw std::runtime_error("enough");
                                 }),
               std::runtime_error);
  EXPECT_GE(runs.load(), 1);
}

#if defined(__SANITIZE_THREAD__)
constexpr bool kSanitizerThreads = true;
#elif defined(__has_feature)
constexpr bool kSanitizerThreads = __has_feature(thread_sanitizer);
#else
constexpr bool kSanitizerThreads = false;
#endif

// Runs in a child process, whose exit code tells what it found: a pool of `wanted` threads where the user may have
// `limit` tasks.
int outcome_under_limit(int wanted, rlim_t limit) {
  const pid_t child = fork();
  if (child == 0) {
    const uid_t user = test::user_without_processes();  // root is not held to the limit
    const bool root = geteuid() == 0;
    if (root && setresuid(user, user, user) != 0) _exit(100);
    const struct rlimit most{limit, limit};
    if (setrlimit(RLIMIT_NPROC, &most) != 0) _exit(101);
    const std::filesystem::directory_iterator tasks("/proc/self/task");  // sanitizers have threads of their own
    const auto own = static_cast<int>(std::distance(begin(tasks), end(tasks)));
    ThreadPool pool(wanted);
    const int possible = std::clamp(1 + static_cast<int>(limit) - own, 1, wanted);
    // Of a user with other processes nobody knows where the limit bites, nor when a sanitizer starts a thread.
    if (pool.threads() > possible || (root && !kSanitizerThreads && pool.threads() < possible)) _exit(102);
    std::vector<int> runs(100, 0);
    pool.parallel_for(100, [&](std::int64_t index, int) { ++runs[static_cast<std::size_t>(index)]; });
    if (std::count(runs.begin(), runs.end(), 1) != 100) _exit(103);
    if (static_cast<int>(pool.per_thread().size()) != pool.threads()) _exit(104);
    const std::string warning = pool.shortfall();
    if (warning.empty() != (pool.threads() == wanted)) _exit(105);
    const std::string numbers = fmt::format("wanted {} threads, found {}", wanted, pool.threads());
    const bool told = warning.find(numbers) != std::string::npos && warning.find("ulimit -u") != std::string::npos;
    _exit(warning.empty() || told ? 0 : 106);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(ThreadPoolLimits, WorksWithTheThreadsItGets) {
  for (const rlim_t limit : {rlim_t{1}, rlim_t{2}, rlim_t{3}, rlim_t{4}, rlim_t{16}}) {
    EXPECT_EQ(outcome_under_limit(4, limit), 0) << limit;
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 4, 8));

}  // namespace
}  // namespace moracle
