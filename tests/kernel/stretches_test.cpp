// Sharing a row of panels: everything is done once, no stretch is longer than it may be, and they get shorter.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/cpu/stretches.h"

namespace moracle::cpu {
namespace {

using Stretch = std::pair<std::int64_t, std::int64_t>;

template <class Most>
std::vector<Stretch> shared(int threads, std::int64_t total, const Most& most) {
  ThreadPool pool(threads);
  std::mutex mutex;
  std::vector<Stretch> stretches;
  std::map<int, std::int64_t> expected;  // where each thread is to go on
  share_stretches(pool, total, most, [&](std::int64_t begin, std::int64_t end, std::int64_t after, int thread) {
    const std::lock_guard lock(mutex);
    EXPECT_GE(thread, 0);
    EXPECT_LT(thread, threads);
    stretches.emplace_back(begin, end);
    // A thread goes on where it said it would, as long as there is enough for all.
    const auto said = expected.find(thread);
    if (said != expected.end() && total - said->second > 8 * threads) {
      EXPECT_EQ(begin, said->second);
    }
    EXPECT_GE(after, end);
    expected[thread] = after;
  });
  std::sort(stretches.begin(), stretches.end());
  return stretches;
}

TEST(Stretches, CoverEverythingOnce) {
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

TEST(Stretches, GetShorter) {
  const auto stretches = shared(2, 800, [](std::int64_t) { return std::int64_t{800}; });
  EXPECT_EQ(stretches.front(), Stretch(0, 100)) << "an eighth of what two threads have to do";
  for (std::size_t i = 1; i < stretches.size(); ++i)
    EXPECT_LE(stretches[i].second - stretches[i].first, stretches[i - 1].second - stretches[i - 1].first);
  EXPECT_EQ(stretches.back(), Stretch(799, 800));
}

TEST(Stretches, EndWhereTheyMust) {
  // Experts of 10 panels: a stretch stays in one.
  for (const auto& [begin, end] : shared(2, 200, [](std::int64_t begin) { return 10 - begin % 10; }))
    EXPECT_EQ(begin / 10, (end - 1) / 10) << begin << " " << end;
}

}  // namespace
}  // namespace moracle::cpu
