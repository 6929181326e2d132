// A device that has too little memory, loses it, or fails at any call while experts load and run on it; a load that
// is ended. Each time one sentence, and nothing left on the device, no thread.
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <string>

#include "base/generic/quantity.h"
#include "model/load/device_room.h"
#include "model/load/memory_plan.h"
#include "support/fake_device.h"
#include "support/process_entries.h"
#include "support/test_data.h"

namespace moracle::test {
namespace {

// Before anything asks which object there is: cards of a device lack none.
const int kNamed = ::setenv("MORACLE_CUDA_LIBRARY", MORACLE_HOST_OBJECT, 1);
constexpr std::int64_t kTokens = 5;

std::filesystem::path folder(const char* name = "qwen3moe-gptq-w4g128-sym") {
  return data_dir() / "checkpoints" / name;
}

// Routed experts on the device, all else on the host.
Result<std::unique_ptr<Model>> load_experts_on(const std::shared_ptr<GpuDevice>& device, ThreadPool& pool,
                                               const char* model = "qwen3moe-gptq-w4g128-sym",
                                               const LoadOptions& options = {}) {
  MORACLE_ASSIGN(const auto checkpoint, Checkpoint::open(folder(model)));
  MORACLE_ASSIGN(const auto plan, LoadPlan::make(checkpoint, {probe_machine(), device}, {}, GpuModules::experts));
  return load_model(*plan, pool, options);
}

// Opens, runs one call, and lets go of all.
Result<> attempt(const std::shared_ptr<GpuDevice>& device, const char* name, const LoadOptions& options) {
  ThreadPool pool(3);
  MORACLE_ASSIGN(const auto model, load_experts_on(device, pool, name, options));
  MORACLE_ASSIGN(const auto state, model->new_sequence());
  std::vector<std::int32_t> ids(kTokens);
  std::iota(ids.begin(), ids.end(), 0);
  const std::vector<Batch::Span> spans{{.begin = 0, .count = kTokens}};
  std::vector<SequenceState*> states{state.get()};
  std::vector<float> logits;
  MORACLE_TRY(model->reserve(kTokens));
  return model->forward({.ids = ids, .positions = ids, .spans = spans}, states, LogitRows::last_of_each, logits);
}

// On a device of this fake that goes with the attempt; whatever came out, nothing is left.
Result<> attempt_on(FakeDevice& fake, const char* model,
                    const std::function<bool(const LoadProgress&)>& progress = {}) {
  const std::size_t threads = threads_now();
  Result<> done = Ok{};
  {
    const auto device = GpuDevice::open(fake.api(), 0);
    if (!device.ok()) return device.error();
    done = attempt(*device, model, {.progress = progress});
  }
  EXPECT_EQ(fake.live_objects(), 0U);
  EXPECT_EQ(fake.live_bytes(), 0U);
  EXPECT_EQ(threads_left(threads), threads);
  if (!done.ok()) {
    EXPECT_EQ(done.error().message().find('\n'), std::string::npos) << "one sentence";
  }
  return done;
}

MemoryPlan plan_on(FakeDevice& fake, std::int64_t tokens) {
  const auto device = GpuDevice::open(fake.api(), 0);
  const auto checkpoint = Checkpoint::open(folder());
  const auto plan = LoadPlan::make(*checkpoint, {probe_machine(), *device}, {});
  auto memory = memory_plan(**plan, {.context = 64, .batch_tokens = tokens, .threads = 3});
  EXPECT_TRUE(memory.ok()) << memory.error().message();
  return memory.ok() ? *memory : MemoryPlan{};
}

// Room for the weights of a layer less than there are, and for a call of one token.
TEST(DeviceRoom, IsAskedForBeforeAnythingIsTaken) {
  ASSERT_EQ(kNamed, 0);
  FakeDevice fake;
  const MemoryOnDevice whole = plan_on(fake, 1).on_device;
  ASSERT_GT(whole.layers, 1);
  EXPECT_EQ(whole.layers_held, whole.layers);
  EXPECT_TRUE(whole.fits());
  fake.most_bytes = whole.total() - 1;
  const MemoryOnDevice less = plan_on(fake, 1).on_device;
  EXPECT_EQ(less.layers_held, less.layers - 1);
  EXPECT_EQ(less.call_tokens, 0);
  EXPECT_FALSE(less.fits());
  EXPECT_EQ(less.least, fake.most_bytes + 1);

  const auto device = GpuDevice::open(fake.api(), 0);
  ASSERT_TRUE(device.ok());
  ThreadPool pool(3);
  const auto refused = load_experts_on(*device, pool);
  ASSERT_FALSE(refused.ok());
  const Error& error = refused.error();
  EXPECT_EQ(error.code, "device.memory");
  EXPECT_EQ(error.where, "cuda:0");
  EXPECT_EQ(error.wanted, human_bytes(less.least) + " for the experts of " + std::to_string(less.layers) +
                              " layers and a call of one token");
  ASSERT_EQ(error.details.size(), 3U) << error.message();
  EXPECT_NE(error.details[0].find("KV cache"), std::string::npos) << error.details[0];
  EXPECT_NE(error.details[1].find("cuda:0: weights"), std::string::npos) << error.details[1];
  EXPECT_NE(error.details[1].find("workspace"), std::string::npos) << error.details[1];
  EXPECT_EQ(error.details[2], "cuda:0 has room for the experts of " + std::to_string(less.layers - 1) + " of " +
                                  std::to_string(less.layers) + " layers");
  EXPECT_EQ(fake.calls("allocate") + fake.calls("allocate_pinned"), 0);
  EXPECT_EQ(fake.live_objects(), 0U);
}

// The largest call that the plan has room for can be reserved, and no larger one.
TEST(DeviceRoom, OfCallsIsTold) {
  constexpr std::int64_t kRoom = 40;
  FakeDevice fake;
  fake.most_bytes = plan_on(fake, kRoom).on_device.total();
  const MemoryOnDevice room = plan_on(fake, 512).on_device;
  EXPECT_FALSE(room.fits());
  EXPECT_GE(room.call_tokens, kRoom);
  EXPECT_EQ(room_text(room), "all experts, and calls of up to " + std::to_string(room.call_tokens) + " tokens");
  const auto device = GpuDevice::open(fake.api(), 0);
  ASSERT_TRUE(device.ok());
  ThreadPool pool(3);
  const auto model = load_experts_on(*device, pool);
  ASSERT_TRUE(model.ok()) << model.error().message();
  const Result<> refused = (*model)->reserve(512);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, "device.memory");
  EXPECT_NE(refused.error().wanted.find("of a call of 512 tokens"), std::string::npos) << refused.error().wanted;
  EXPECT_NE(refused.error().advice.find("--context " + std::to_string(room.call_tokens) + ";"), std::string::npos)
      << refused.error().advice;
  EXPECT_FALSE((*model)->reserve(room.call_tokens + 1).ok());
  EXPECT_TRUE((*model)->reserve(room.call_tokens).ok());
}

// Another program takes all that is free once the load has begun.
TEST(DeviceRoom, ThatIsGoneWhenTheWeightsCome) {
  FakeDevice fake;
  const Result<> done = attempt_on(fake, "qwen3moe-gptq-w4g128-sym", [&](const LoadProgress&) {
    fake.most_bytes = fake.live_bytes();
    return true;
  });
  ASSERT_FALSE(done.ok());
  const std::string text = done.error().message();
  EXPECT_TRUE(text.starts_with("cuda:0: wanted ")) << text;
  EXPECT_NE(text.find(", found 0 B free of 8.0 GiB, though 8.0 GiB were when the load began, and the plan takes "),
            std::string::npos)
      << text;
  const std::string what_to_do =
      "[device.memory]; another program has taken memory since: end it and load again, or use --device cpu";
  EXPECT_TRUE(text.ends_with(what_to_do)) << text;
}

struct FailingCall {
  const char* model;
  const char* call;
  int error;
  const char* code;
  int step = 1;  // from one call that fails to the next that is tried
};
void PrintTo(const FailingCall& one, std::ostream* out) {
  *out << one.model << ", " << one.call;
}
class DeviceFailures : public ::testing::TestWithParam<FailingCall> {};

TEST_P(DeviceFailures, LeaveNothing) {
  const FailingCall& one = GetParam();
  for (int at = 1;; at += one.step) {
    SCOPED_TRACE(at);
    FakeDevice fake;
    fake.failure = {.call = one.call, .at = at, .error = one.error};
    const Result<> done = attempt_on(fake, one.model);
    if (fake.calls(one.call) < at) {
      EXPECT_TRUE(done.ok()) << done.error().message();
      EXPECT_GT(at, 1) << "never called";
      break;
    }
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().code, one.code) << done.error().message();
    if (HasFailure()) break;
  }
}

constexpr const char* kStreamed = "qwen3moe-gptq-w4g128-sym";
constexpr const char* kSimple = "mixtral-awq-w4g32";
INSTANTIATE_TEST_SUITE_P(, DeviceFailures,
                         ::testing::Values(FailingCall{kStreamed, "allocate", kDeviceOutOfMemory, "device.memory"},
                                           FailingCall{kSimple, "allocate", kDeviceOutOfMemory, "device.memory"},
                                           FailingCall{kStreamed, "allocate_pinned", kDeviceOutOfMemory,
                                                       "device.pinned"},
                                           FailingCall{kStreamed, "make_stream", kDeviceOutOfMemory, "device.call"},
                                           FailingCall{kStreamed, "make_event", kDeviceOutOfMemory, "device.call"},
                                           FailingCall{kStreamed, "fill", 700, "device.call"},
                                           FailingCall{kStreamed, "kernel", 700, "device.call"},
                                           FailingCall{kStreamed, "copy", 700, "device.call", 5},
                                           FailingCall{kStreamed, "wait", 700, "device.call", 11}),
                         [](const auto& info) {
                           return std::string(info.param.model == kSimple ? "simple_" : "streamed_") + info.param.call;
                         });

// Wherever it is ended, no copy is under way whose memory goes.
TEST(DeviceLoad, ThatIsEndedLeavesNothing) {
  int ended = 0;
  for (bool whole = false; !whole; ++ended) {
    SCOPED_TRACE(ended);
    FakeDevice fake;
    int left = ended;
    bool asked_to_end = false;
    const Result<> done = attempt_on(fake, kStreamed, [&](const LoadProgress& progress) {
      whole = progress.bytes_done == progress.bytes_total;
      fake.late_copies = !whole;
      EXPECT_EQ(fake.waiting_copies(), 0U);
      EXPECT_FALSE(asked_to_end);
      asked_to_end = left-- == 0;
      return !asked_to_end;
    });
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().code, "interrupted");
    EXPECT_EQ(fake.waiting_copies(), 0U);
    if (HasFailure()) break;
  }
  EXPECT_GT(ended, 10);
}

}  // namespace
}  // namespace moracle::test
