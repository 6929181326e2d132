// A host with threads of its own, by OpenMP as torch and vLLM have them: a layer on these gives the bits of our own
// pool, and its time is told beside that.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <moracle/moracle.hpp>
#include <thread>
#include <vector>

#include "support/test_data.h"

namespace moracle::test {
namespace {

constexpr int kThreads = 2;
constexpr std::int64_t kTokens = 256;
constexpr std::int64_t kTopK = 4;

void on_openmp(void* /*context*/, std::int64_t count, moracle_task task, void* work) {
#pragma omp parallel for num_threads(kThreads) schedule(static, 1)
  for (std::int64_t i = 0; i < count; ++i) task(work, i);
}

class HostThreads : public ::testing::Test {
 protected:
  Experts open(const moracle_executor* executor) {
    const auto pool = Pool::open({.threads = kThreads, .executor = executor});
    EXPECT_TRUE(pool) << pool.error().message;
    auto layer = checkpoint_->experts(0, {}, {}, pool->handle());
    EXPECT_TRUE(layer) << layer.error().message;
    return std::move(*layer);
  }
  // Milliseconds of one call.
  double time(const Experts& layer, std::vector<float>& out) {
    const auto begin = std::chrono::steady_clock::now();
    const auto error = layer.run(kTokens, kTopK, x_, ids_, weights_, out);
    EXPECT_FALSE(error) << error->message;
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  }

  const Expected<Checkpoint> checkpoint_ =
      Checkpoint::open((data_dir() / "checkpoints" / "qwen3moe-gptq-w4g128-sym").string());
  std::vector<float> x_, weights_;
  std::vector<std::int32_t> ids_;
};

// Times are the least of each, taken in turns: what else the machine does only adds.
TEST_F(HostThreads, GiveTheBitsOfOurOwnPool) {
  moracle_executor openmp{};
  openmp.size = sizeof openmp;
  openmp.threads = kThreads;
  openmp.parallel_for = &on_openmp;
  const Experts own = open(nullptr);
  const Experts host = open(&openmp);
  const auto info = own.info();
  ASSERT_TRUE(info);
  for (std::int64_t i = 0; i < kTokens * info->hidden; ++i) x_.push_back(static_cast<float>(i % 13 - 6) / 8);
  for (std::int64_t i = 0; i < kTokens * kTopK; ++i) {
    ids_.push_back(static_cast<std::int32_t>(i * 5 % info->experts));
    weights_.push_back(0.25F);
  }
  std::vector<float> by_own(x_.size()), by_host(x_.size());
  constexpr int kRounds = 5;
  constexpr int kCalls = 20;
  const auto quiet = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };  // the other's threads park
  double least_own = 1e9, least_host = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    quiet();
    for (int call = 0; call < kCalls; ++call) least_own = std::min(least_own, time(own, by_own));
    quiet();
    for (int call = 0; call < kCalls; ++call) least_host = std::min(least_host, time(host, by_host));
  }
  double beside = 1e9;  // our pool between regions of the host's own
  for (int call = 0; call < kCalls; ++call) {
    on_openmp(nullptr, kThreads, [](void*, std::int64_t) {}, nullptr);
    beside = std::min(beside, time(own, by_own));
  }
  std::cout << "least milliseconds of a call: own pool " << least_own << ", the host's threads " << least_host
            << ", own pool between the host's regions " << beside << "\n";
  EXPECT_EQ(by_host, by_own);
}

}  // namespace
}  // namespace moracle::test
