// The threads that layers of the C interface run on: a host's, our own, and calls from many at once.
#include <sched.h>

#include <functional>
#include <thread>
#include <vector>

#include "unit/api/c_layer.h"

namespace moracle::test {
namespace {

moracle_experts_options on(const PoolPtr& pool) {
  moracle_experts_options options = no_options();
  options.pool = pool.get();
  return options;
}

// The host's threads, and faults of a host: tasks left out, made twice, made out of range, one after the other.
TEST_F(CExpertsCall, AHostsThreads) {
  const ParallelFor threads = [](void*, std::int64_t count, moracle_task task, void* work) {
    std::vector<std::jthread> all;
    for (std::int64_t i = 0; i < count; ++i) all.emplace_back([=] { task(work, i); });
  };
  const ParallelFor in_turn = [](void*, std::int64_t count, moracle_task task, void* work) {
    for (std::int64_t i = count - 1; i >= 0; --i) task(work, i);
  };
  const ParallelFor none = [](void*, std::int64_t, moracle_task, void*) {};
  const ParallelFor twice = [](void*, std::int64_t count, moracle_task task, void* work) {
    for (std::int64_t i = -3; i < count + 3; ++i) {
      task(work, i);
      task(work, i);
    }
  };
  for (const ParallelFor host : {threads, in_turn, none, twice}) {
    const PoolPtr pool = open_pool(host, nullptr);
    const auto experts = open_experts(checkpoint_, on(pool), 1);
    EXPECT_EQ(info_of(experts).threads, 3);
    EXPECT_EQ(run(experts, input_), expected_);
  }
}

TEST_F(CExpertsCall, PoolsOfOurOwn) {
  const auto open = [](std::int32_t threads, const std::vector<std::int32_t>& cpus, moracle_error** error) {
    moracle_pool_options options{};
    options.size = sizeof options;
    options.threads = threads;
    options.cpus = cpus.empty() ? nullptr : cpus.data();
    options.cpu_count = cpus.size();
    moracle_pool* handle = nullptr;
    const moracle_status status = moracle_pool_open(&options, &handle, error);
    const PoolPtr pool(handle == nullptr ? nullptr : handle);
    return status;
  };
  EXPECT_EQ(open(2, {}, nullptr), MORACLE_OK);
  EXPECT_EQ(code_of(MORACLE_INVALID, [&](auto** e) { return open(-1, {}, e); }), "argument.range");
  EXPECT_EQ(code_of(MORACLE_INVALID, [&](auto** e) { return open(5000, {}, e); }), "argument.range");
  EXPECT_EQ(code_of(MORACLE_INVALID, [&](auto** e) { return open(0, {-1}, e); }), "argument.range");
  EXPECT_EQ(code_of(MORACLE_INVALID, [&](auto** e) { return open(0, {100000}, e); }), "argument.range");
  cpu_set_t usable;
  ASSERT_EQ(sched_getaffinity(0, sizeof usable, &usable), 0);
  for (std::int32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(static_cast<std::size_t>(cpu), &usable)) continue;
    EXPECT_EQ(open(0, {cpu, cpu}, nullptr), MORACLE_OK);
    break;
  }
}

// A host that takes up other work in its parallel_for, as pools that steal work do: calls on the same pool from there
// would wait for themselves; those on another are answered.
TEST_F(CExpertsCall, AHostsThreadsDoNotNest) {
  struct Host {
    std::function<void()> other;  // work that is taken up, once
    static void run(void* context, std::int64_t count, moracle_task task, void* work) {
      if (const auto taken = std::exchange(static_cast<Host*>(context)->other, nullptr)) taken();
      for (std::int64_t i = 0; i < count; ++i) task(work, i);
    }
  } host;
  const PoolPtr pool = open_pool(&Host::run, &host);
  const auto experts = open_experts(checkpoint_, on(pool), 1);
  int calls = 0;
  const auto nested = [&] {
    ++calls;
    std::vector<float> out;
    const moracle_experts_call call = input_.call(out);
    EXPECT_EQ(code_of(MORACLE_INVALID, [&](auto** e) { return moracle_experts_run(experts.get(), &call, e); }),
              "argument.nested");
    const moracle_experts_options options = on(pool);
    moracle_experts* opened = nullptr;
    EXPECT_EQ(code_of(MORACLE_INVALID,
                      [&](auto** e) { return moracle_experts_open(checkpoint_.get(), 0, &options, &opened, e); }),
              "argument.nested");
    EXPECT_EQ(run(experts_, input_), expected_);
  };
  host.other = nested;
  EXPECT_EQ(run(experts, input_), expected_);
  EXPECT_EQ(calls, 1);
  host.other = nested;
  const auto again = open_experts(checkpoint_, on(pool), 1);  // packs on the pool
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(run(again, input_), expected_);
}

// A host whose threads call all at once from its own parallel work, where a nested parallel_for stays on its thread.
TEST_F(CExpertsCall, FromWithinAHostsOwnWork) {
  const ParallelFor inline_run = [](void*, std::int64_t count, moracle_task task, void* work) {
    for (std::int64_t i = 0; i < count; ++i) task(work, i);
  };
  const ParallelFor never = [](void*, std::int64_t, moracle_task, void*) {
    ADD_FAILURE() << "a pool of one thread called it";
  };
  for (const PoolPtr& pool : {open_pool(inline_run, nullptr, 4), open_pool(never, nullptr, 1)}) {
    const auto experts = open_experts(checkpoint_, on(pool), 1);
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([&] { EXPECT_EQ(run(experts, input_), expected_); });
  }
}

// Calls from many threads take turns; a handle may be closed while a call runs, and layers outlive their checkpoint.
TEST_F(CExpertsCall, ManyThreads) {
  auto checkpoint = open_checkpoint(checkpoint_folder(kQwen));
  const auto first = open_experts(checkpoint, no_options(), 1);
  auto second = open_experts(checkpoint, no_options(), 1);
  checkpoint.reset();
  moracle_experts* const raced = second.release();
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < 20; ++turn) {
        EXPECT_EQ(run(first, input_), expected_);
        std::vector<float> out;
        const moracle_experts_call call = input_.call(out);
        const moracle_status status = moracle_experts_run(raced, &call, nullptr);
        EXPECT_TRUE(status == MORACLE_INVALID || (status == MORACLE_OK && out == expected_)) << status;
      }
    });
  }
  threads.emplace_back([&] { EXPECT_EQ(moracle_experts_close(raced), MORACLE_OK); });
}

}  // namespace
}  // namespace moracle::test
