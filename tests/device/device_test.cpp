// Devices, what calls use on them and their errors, over the fake: what no GPU is needed for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <random>

#include "device/gpu_device.h"
#include "device/host_device.h"
#include "device/library.h"
#include "kernels/args/elementwise.h"
#include "kernels/cuda/host/described_gpu.h"
#include "kernels/cuda/host/kernels.h"
#include "kernels/device_ops.h"
#include "kernels/kernel.h"
#include "kernels/pack_memory.h"
#include "moe/layer_runner.h"
#include "support/fake_device.h"
#include "support/random_experts.h"

namespace moracle {
namespace {

using test::FakeDevice;

constexpr std::int64_t kTokens = 5;
constexpr std::int64_t kTopK = 2;

class DeviceTest : public ::testing::Test {
 protected:
  void TearDown() override {
    device_.reset();
    EXPECT_EQ(fake_.live_objects(), 0U) << "something was left on the device";
    EXPECT_EQ(fake_.live_bytes(), 0U);
  }

  void open() {
    auto device = GpuDevice::open(fake_.api(), 0);
    ASSERT_TRUE(device.ok()) << device.error().message();
    device_ = *device;
  }

  static CanonicalExperts experts() {
    std::mt19937 rng(1);
    return test::random_experts(
        {.key = {.element = Element::int4, .scale = ScaleType::bf16, .granularity = Granularity::group(32)},
         .experts = 3,
         .hidden = 96,
         .intermediate = 64},
        rng);
  }

  Result<LayerRunner> pack() { return pack(nullptr); }
  Result<LayerRunner> pack(UploadBuffer* upload) {
    return LayerRunner::pack(*find_implementation("cuda.portable.wna16")->card, experts(),
                             {.pool = pool_, .device = device_, .upload = upload});
  }

  Result<> run(LayerRunner& runner) {
    MORACLE_TRY(runner.reserve(kTokens, kTopK));
    std::mt19937 rng(2);
    std::normal_distribution<float> normal;
    std::vector<float> x(kTokens * 96);
    for (float& value : x) value = normal(rng);
    const std::vector<std::int32_t> ids{0, 1, 1, 2, -1, 0, 2, 1, 0, 2};
    const std::vector<float> weights(ids.size(), 0.5F);
    out_.assign(x.size(), 0.0F);
    runner.run({.tokens = kTokens, .top_k = kTopK, .x = x.data(), .ids = ids.data(), .weights = weights.data()},
               out_.data());
    return runner.status();
  }

  FakeDevice fake_;
  std::shared_ptr<GpuDevice> device_;
  ThreadPool pool_{2};
  std::vector<float> out_;
};

TEST_F(DeviceTest, MachineOfTheDevice) {
  open();
  const Machine machine = device_->machine();
  EXPECT_EQ(machine.name, "cuda:0");
  EXPECT_EQ(machine.arch, "sm_90");
  EXPECT_EQ(machine.capability, 90);
  EXPECT_EQ(machine.os_note, "driver for CUDA 13.0, kernels of 13.0");
}

TEST_F(DeviceTest, CapabilitiesThatKernelsServe) {
  for (const int capability : {80, 86, 89, 90, 100, 120}) {
    fake_.capability = capability;
    const auto opened = GpuDevice::open(fake_.api(), 0);
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    EXPECT_EQ((*opened)->machine().capability, capability);
  }
  fake_.capability = 75;
  const auto older = GpuDevice::open(fake_.api(), 0);
  ASSERT_FALSE(older.ok());
  EXPECT_EQ(older.error().message(),
            "cuda:0: wanted a GPU of compute capability 8.0 or newer, which multiplies bf16, found Fake GPU, of 7.5 "
            "[device.capability]; use --device cpu, or a GPU of that capability: `moracle devices` lists them");
}

TEST_F(DeviceTest, AForcedCapabilityIsANumber) {
  ASSERT_EQ(::setenv("MORACLE_CUDA_ARCH", "sm_80", 1), 0);
  const auto opened = GpuDevice::open(fake_.api(), 0);
  ASSERT_EQ(::setenv("MORACLE_CUDA_ARCH", "80", 1), 0);
  const auto forced = GpuDevice::open(fake_.api(), 0);
  ASSERT_EQ(::unsetenv("MORACLE_CUDA_ARCH"), 0);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, "device.arch");
  EXPECT_EQ(opened.error().found, "sm_80");
  EXPECT_TRUE(forced.ok());
}

TEST_F(DeviceTest, GpusThatAreDescribedOnly) {
  const Machine machine = *resolve_machine("rtx4090");
  const auto described = describe_gpu(machine, std::uint64_t{20} << 30U);
  ASSERT_TRUE(described.ok()) << described.error().message();
  EXPECT_EQ((*described)->name(), "rtx4090");
  EXPECT_EQ(*(*described)->room(), std::uint64_t{20} << 30U);
  EXPECT_EQ((*described)->allocate(1, "weights").error().code, "device.call");
  EXPECT_EQ((*described)->make_stream().error().code, "device.call");
  EXPECT_TRUE(device_ops(**described).ok());
  EXPECT_EQ(describe_gpu(*resolve_machine("t4"), 0).error().code, "device.capability");
}

TEST_F(DeviceTest, NumbersThatNoDeviceHas) {
  const auto device = GpuDevice::open(fake_.api(), 7);
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.error().message(),
            "--device: wanted cuda:0 (Fake GPU), found cuda:7 [device.unknown]; `moracle devices` lists the GPUs");
}

TEST_F(DeviceTest, NoDriverOrOneThatIsTooOld) {
  fake_.probe_error = kDeviceNoDriver;
  for (const auto& [driver, found] : {std::pair{0, "none"}, std::pair{12040, "one for CUDA 12.4"}}) {
    fake_.driver = driver;
    const auto device = GpuDevice::open(fake_.api(), 0);
    ASSERT_FALSE(device.ok());
    EXPECT_EQ(device.error().message(),
              std::string("CUDA: wanted an NVIDIA driver of version 580 or newer (CUDA 13.0), found ") + found +
                  " [device.driver]; install the driver, or compute with --device cpu");
  }
}

TEST_F(DeviceTest, NoDevice) {
  fake_.devices = 0;
  const auto device = GpuDevice::open(fake_.api(), 0);
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.error().wanted, "an NVIDIA GPU");
}

TEST_F(DeviceTest, RunsAndLeavesNothing) {
  open();
  auto runner = pack();
  ASSERT_TRUE(runner.ok()) << runner.error().message();
  EXPECT_TRUE(run(*runner).ok());
  for (const float value : out_) EXPECT_TRUE(std::isfinite(value));
}

// The first calls make room; later ones find it.
TEST_F(DeviceTest, NoAllocationInACall) {
  open();
  auto runner = pack();
  ASSERT_TRUE(runner.ok());
  ASSERT_TRUE(runner->reserve(kTokens, kTopK).ok());
  const int before = fake_.calls("allocate") + fake_.calls("allocate_pinned");
  EXPECT_TRUE(run(*runner).ok());
  EXPECT_TRUE(run(*runner).ok());
  EXPECT_EQ(fake_.calls("allocate") + fake_.calls("allocate_pinned"), before);
}

// What packing and one call come to with a device; what is left on it is counted.
TEST_F(DeviceTest, OutOfMemoryAtEveryAllocation) {
  for (const std::string call : {"allocate", "allocate_pinned"}) {
    for (int at = 1;; ++at) {
      FakeDevice fake;
      fake.failure = {.call = call, .at = at, .error = kDeviceOutOfMemory};
      Result<> done = Ok{};
      {
        auto device = GpuDevice::open(fake.api(), 0);
        ASSERT_TRUE(device.ok());
        device_ = *device;
        auto runner = pack();
        done = runner.ok() ? run(*runner) : Result<>(runner.error());
        device_.reset();
      }
      EXPECT_EQ(fake.live_objects(), 0U) << call << " " << at;
      if (fake.calls(call) < at) {
        EXPECT_GE(at, 2) << "the failure was met";
        EXPECT_TRUE(done.ok());
        break;
      }
      ASSERT_FALSE(done.ok()) << call << " " << at;
      EXPECT_EQ(done.error().code, call == "allocate" ? "device.memory" : "device.pinned");
    }
  }
}

TEST_F(DeviceTest, LimitOnBytesNamesWhatIsFree) {
  fake_.most_bytes = 1024;
  open();
  const auto runner = pack();
  ASSERT_FALSE(runner.ok());
  EXPECT_EQ(runner.error().where, "cuda:0");
  EXPECT_TRUE(runner.error().wanted.ends_with(" KiB for packed weights")) << runner.error().wanted;
  EXPECT_EQ(runner.error().found, "1.0 KiB free of 1.0 KiB");
}

TEST_F(DeviceTest, BoundOnMemoryNamesWhatIsLeft) {
  open();
  fake_.most_bytes = 100 << 10;
  ASSERT_TRUE(device_->limit_memory(0).ok());
  EXPECT_EQ(*device_->room(), 100352U) << "less a fiftieth";
  ASSERT_TRUE(device_->limit_memory(4096).ok());
  EXPECT_EQ(*device_->room(), 4096U);
  {
    const auto first = device_->allocate(3072, "the first");
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(*device_->room(), 1024U);
    const auto second = device_->allocate(1025, "the second");
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, "device.memory");
    EXPECT_EQ(second.error().found, "1.0 KiB free of 8.0 GiB");
    EXPECT_TRUE(device_->allocate(1024, "the rest").ok());
  }
  EXPECT_EQ(*device_->room(), 4096U) << "what is released is there again";
  fake_.failure = {.call = "allocate", .at = fake_.calls("allocate") + 1, .error = 700};
  EXPECT_FALSE(device_->allocate(4096, "all").ok());
  EXPECT_EQ(*device_->room(), 4096U) << "what failed was not given out";
}

TEST_F(DeviceTest, FailedCopyEndsTheLoad) {
  open();
  fake_.failure = {.call = "copy", .at = 2, .error = 700};
  const auto runner = pack();
  ASSERT_FALSE(runner.ok());
  EXPECT_EQ(runner.error().code, "device.call");
  EXPECT_EQ(runner.error().wanted, "copy");
}

// Copies that come late find what their block held only if its slot was not packed again before.
TEST_F(DeviceTest, BlocksOfTheUploadBufferStayUntilTheyAreCopied) {
  open();
  auto runner = pack();
  ASSERT_TRUE(runner.ok() && run(*runner).ok());
  const std::vector<float> expected = out_;
  for (const std::size_t limit : {std::size_t{256} << 20U, std::size_t{32} << 10U, std::size_t{4} << 10U}) {
    UploadBuffer upload(*device_, limit);
    fake_.late_copies = true;
    runner = pack(&upload);
    fake_.late_copies = false;
    ASSERT_TRUE(runner.ok()) << runner.error().message();
    ASSERT_TRUE(run(*runner).ok());
    EXPECT_EQ(out_, expected) << "a buffer of " << limit << " bytes";
  }
}

// It passes in parts, through a buffer that stays within its limit.
TEST_F(DeviceTest, AnExpertLargerThanTheUploadBuffer) {
  constexpr std::size_t kLimit = std::size_t{4} << 10U;
  open();
  std::optional<UploadBuffer> upload(std::in_place, *device_, kLimit);
  auto runner = pack(&*upload);
  ASSERT_TRUE(runner.ok()) << runner.error().message();
  EXPECT_GT(runner->packed().expert(0).size(), 2 * kLimit);
  EXPECT_EQ(fake_.peak_pinned_bytes(), kLimit);
  upload.reset();
  ASSERT_TRUE(run(*runner).ok());
  const std::vector<float> in_parts = out_;
  runner = pack();
  ASSERT_TRUE(runner.ok() && run(*runner).ok());
  EXPECT_EQ(out_, in_parts);
}

// Whichever part's copy fails.
TEST_F(DeviceTest, AnExpertLargerThanTheUploadBufferThatFails) {
  for (int at = 1;; ++at) {
    FakeDevice fake;
    fake.failure = {.call = "copy", .at = at, .error = 700};
    auto device = GpuDevice::open(fake.api(), 0);
    ASSERT_TRUE(device.ok());
    device_ = *device;
    Result<> packed = Ok{};
    {
      UploadBuffer upload(*device_, std::size_t{4} << 10U);
      const auto runner = pack(&upload);
      if (!runner.ok()) packed = runner.error();
    }
    device_.reset();
    device->reset();
    EXPECT_EQ(fake.live_objects(), 0U) << at;
    if (fake.calls("copy") < at) {
      EXPECT_TRUE(packed.ok());
      EXPECT_GT(at, 3 * 2) << "more than two parts an expert";
      break;
    }
    ASSERT_FALSE(packed.ok()) << at;
    EXPECT_EQ(packed.error().code, "device.call");
  }
}

TEST_F(DeviceTest, LayersShareTheUploadBuffer) {
  open();
  const auto staging = [&] { return fake_.calls("allocate_pinned"); };
  {
    UploadBuffer upload(*device_);
    ASSERT_TRUE(pack(&upload).ok());
    EXPECT_EQ(staging(), 1);
    ASSERT_TRUE(pack(&upload).ok());
    EXPECT_EQ(staging(), 1);
  }
  ASSERT_TRUE(pack().ok());
  EXPECT_EQ(staging(), 2) << "a pack without one makes its own";
}

TEST_F(DeviceTest, PersistentScratchGrowsToTheLargestAndIsOnes) {
  open();
  const auto scratch = std::make_shared<PersistentScratch>(device_);
  EXPECT_EQ(scratch->data(), nullptr);
  for (const std::size_t bytes : {64U, 256U, 128U}) ASSERT_TRUE(scratch->reserve(bytes).ok());
  ASSERT_EQ(scratch->size(), 256U);
  EXPECT_EQ(std::count(scratch->data(), scratch->data() + 256, std::byte{0xFF}), 256);
  EXPECT_EQ(fake_.calls("allocate"), 2);
}

TEST_F(DeviceTest, FailedCopyInACall) {
  open();
  auto runner = pack();
  ASSERT_TRUE(runner.ok());
  fake_.failure = {.call = "copy", .at = fake_.calls("copy") + 1, .error = 700};
  const Result<> done = run(*runner);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().wanted, "copy");
  for (const float value : out_) EXPECT_TRUE(std::isnan(value)) << "no answer may look like one";
  EXPECT_TRUE(run(*runner).ok()) << "the next call is another";
}

TEST_F(DeviceTest, KernelErrorThatOnlyTheWaitReports) {
  open();
  auto runner = pack();
  ASSERT_TRUE(runner.ok());
  fake_.kernel_error = 719;
  const Result<> done = run(*runner);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(
      done.error().message(),
      "cuda:0 (Fake GPU): wanted wait after kernel experts of int4 weights, found error 719: an error of the test "
      "[device.call]");
  for (const float value : out_) EXPECT_TRUE(std::isnan(value));
}

TEST_F(DeviceTest, ALaterKernelLeavesAnErrorPending) {
  open();
  auto stream = device_->make_stream();
  ASSERT_TRUE(stream.ok());
  std::vector<float> x(4, 1.0F);
  std::vector<float> sum(4, 2.0F);
  const AddArgs args{.count = 4, .x = x.data(), .sum = sum.data()};
  fake_.kernel_error = 719;
  stream->launch("add", fake_.kernels().add, args);
  stream->launch("add", fake_.kernels().add, args);
  const Result<> waited = stream->wait();
  ASSERT_FALSE(waited.ok());
  EXPECT_EQ(waited.error().found, "error 719: an error of the test");
  EXPECT_EQ(sum[0], 2.0F) << "no kernel runs behind one that failed";
  stream->launch("add", fake_.kernels().add, args);
  EXPECT_TRUE(stream->wait().ok()) << "an error is told once";
  EXPECT_EQ(sum[0], 3.0F);
}

TEST_F(DeviceTest, RefusedLaunchNamesTheKernel) {
  open();
  auto runner = pack();
  ASSERT_TRUE(runner.ok());
  fake_.failure = {.call = "kernel", .at = 1, .error = 98};
  const Result<> done = run(*runner);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().wanted, "experts of int4 weights");
}

TEST_F(DeviceTest, CapturedWorkRunsWhenTheGraphIsLaunched) {
  open();
  auto stream = device_->make_stream();
  ASSERT_TRUE(stream.ok());
  auto memory = device_->allocate(64, "test");
  ASSERT_TRUE(memory.ok());
  std::vector<std::byte> host(64);
  auto graph = stream->capture([&] { stream->fill(memory->data(), 7, 64); });
  ASSERT_TRUE(graph.ok()) << graph.error().message();
  stream->fill(memory->data(), 1, 64);
  stream->to_host(host.data(), memory->data(), 64);
  ASSERT_TRUE(stream->wait().ok());
  EXPECT_EQ(host[0], std::byte{1});
  stream->launch(*graph);
  stream->to_host(host.data(), memory->data(), 64);
  ASSERT_TRUE(stream->wait().ok());
  EXPECT_EQ(host[63], std::byte{7});
}

TEST_F(DeviceTest, CaptureThatCannotBeginOrEnd) {
  for (const char* const call : {"begin_capture", "end_capture"}) {
    FakeDevice fake;
    fake.failure = {.call = call, .at = 1, .error = 900};
    auto device = GpuDevice::open(fake.api(), 0);
    ASSERT_TRUE(device.ok());
    auto stream = (*device)->make_stream();
    ASSERT_TRUE(stream.ok());
    const auto graph = stream->capture([] {});
    ASSERT_FALSE(graph.ok()) << call;
    EXPECT_EQ(graph.error().code, "device.call");
    EXPECT_TRUE(stream->wait().ok()) << "the stream goes on";
  }
}

// Each call fails as CUDA's does, and its capture gives no graph.
TEST_F(DeviceTest, CaptureThatAnotherCallBreaks) {
  open();
  auto stream = device_->make_stream();
  ASSERT_TRUE(stream.ok());
  const auto status_of = [](const auto& memory) { return memory.ok() ? Result<>(Ok{}) : Result<>(memory.error()); };
  const std::vector<std::function<Result<>()>> calls{
      [&] { return stream->wait(); },
      [&] { return status_of(device_->allocate(64, "test")); },
      [&] { return status_of(device_->allocate_staging(64, "test")); },
  };
  for (const auto& call : calls) {
    Result<> inside = Ok{};
    const auto graph = stream->capture([&] { inside = call(); });
    ASSERT_FALSE(inside.ok());
    EXPECT_EQ(inside.error().found, "error 900: an error of the test");
    ASSERT_FALSE(graph.ok());
    EXPECT_EQ(graph.error().found, "error 901: an error of the test");
    EXPECT_TRUE(stream->wait().ok()) << "the stream goes on";
    EXPECT_TRUE(status_of(device_->allocate(64, "test")).ok());
  }
}

TEST_F(DeviceTest, BatchThatWasNotReserved) {
  open();
  std::vector<float> x(64 * 96);
  std::vector<float> out(x.size());
  const std::vector<std::int32_t> ids(64, 0);
  const std::vector<float> weights(64, 1.0F);
  const ExpertsInput input{.tokens = 64, .top_k = 1, .x = x.data(), .ids = ids.data(), .weights = weights.data()};
  const KernelImplementation& kernel = *find_implementation("cuda.portable.wna16");
  auto packed = kernel.pack_experts(experts(), {.pool = pool_, .device = device_});
  ASSERT_TRUE(packed.ok());
  Stream host(pool_);
  {
    const PlacedExperts placed =
        place(*kernel.card, std::move(*packed), 96, std::make_shared<DeviceWorkspace>(device_));
    placed.begin({.stream = host, .workspace = {}}, input, out.data());
    placed.finish({.stream = host, .workspace = {}}, input.tokens, input.top_k, out.data());
  }
  const Result<> status = host.wait();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, "device.batch");
  EXPECT_TRUE(std::isnan(out[0]));

  packed = kernel.pack_experts(experts(), {.pool = pool_, .device = device_});
  ASSERT_TRUE(packed.ok());
  auto stream = device_->make_stream();
  ASSERT_TRUE(stream.ok());
  (*packed)->run({.stream = *stream, .workspace = {}}, input, out.data());
  const Result<> enqueued = stream->wait();
  ASSERT_FALSE(enqueued.ok());
  EXPECT_EQ(enqueued.error().code, "device.batch");
  EXPECT_TRUE(stream->wait().ok()) << "an error is told once";
  EXPECT_EQ(fake_.calls("kernel"), 0);
  packed->reset();
}

TEST_F(DeviceTest, NumbersOfAnotherType) {
  open();
  auto packed = find_implementation("cuda.portable.wna16")->pack_experts(experts(), {.pool = pool_, .device = device_});
  ASSERT_TRUE(packed.ok());
  auto stream = device_->make_stream();
  ASSERT_TRUE(stream.ok());
  float out = 0.0F;
  (*packed)->run({.stream = *stream, .workspace = {}},
                 {.tokens = 1, .top_k = 1, .x = ConstActivations(&out, Element::bf16)}, &out);
  const Result<> status = stream->wait();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, "device.type");
  packed->reset();
}

// Memory of the host is zeroed pages, which go back with their owner.
TEST(HostDevice, GivesMemoryAndStreams) {
  ThreadPool pool(1);
  const HostDevice host(probe_machine(), pool);
  EXPECT_EQ(host.name(), probe_machine().name);
  EXPECT_EQ(host.table("kernels"), nullptr);
  Result<Buffer> memory = host.allocate(std::size_t{3} << 20U, "test");
  const Result<StagingBuffer> staging = host.allocate_staging(64, "test");
  ASSERT_TRUE(memory.ok() && staging.ok());
  EXPECT_EQ(memory->data()[memory->size() - 1], std::byte{0});
  auto stream = host.make_stream();
  ASSERT_TRUE(stream.ok());
  staging->data()[5] = std::byte{9};
  stream->to_device(memory->data(), staging->data(), 64);
  ASSERT_TRUE(stream->wait().ok());
  EXPECT_EQ(memory->data()[5], std::byte{9});
  const Buffer moved = std::move(*memory);
  EXPECT_EQ(memory->data(), nullptr);
  EXPECT_EQ(moved.size(), std::size_t{3} << 20U);
  EXPECT_EQ(host.allocate(0, "test")->size(), 0U);
  const Result<Buffer> most = host.allocate(SIZE_MAX / 2, "test");
  ASSERT_FALSE(most.ok());
  EXPECT_EQ(most.error().code, "memory.allocate");
}

// A stream of the host has done what was enqueued when the call returns; its graph is run when it is launched.
TEST(HostStream, IsInOrderAndCaptured) {
  ThreadPool pool(1);
  Stream stream(pool);
  EXPECT_TRUE(stream.on_host());
  std::vector<std::byte> from(8, std::byte{3});
  std::vector<std::byte> to(8);
  stream.to_device(to.data(), from.data(), to.size());
  EXPECT_EQ(to, from);
  auto graph = stream.capture([&] { stream.fill(to.data(), 9, 4); });
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(to, from);
  stream.launch(*graph);
  EXPECT_EQ(to[3], std::byte{9});
  EXPECT_EQ(to[4], std::byte{3});
  EXPECT_TRUE(stream.wait().ok());
  stream.fail({.code = "first"});
  stream.fail({.code = "second"});
  const Result<> status = stream.wait();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, "first");
  EXPECT_TRUE(stream.wait().ok());
}

TEST_F(DeviceTest, NoTokens) {
  open();
  auto runner = pack();
  ASSERT_TRUE(runner.ok());
  ASSERT_TRUE(runner->reserve(0, kTopK).ok());
  runner->run({.tokens = 0, .top_k = kTopK}, nullptr);
  EXPECT_TRUE(runner->status().ok());
  EXPECT_EQ(fake_.calls("kernel"), 0);
}

TEST(DeviceKernels, NeedADevice) {
  ThreadPool pool(1);
  std::mt19937 rng(1);
  const auto linear = test::random_linear({.rows = 16, .cols = 32}, rng);
  const auto packed = find_implementation("cuda.portable.dense")->pack_linear(linear, {.pool = pool});
  ASSERT_FALSE(packed.ok());
  EXPECT_EQ(packed.error().code, "device.none");
  const auto sized =
      find_implementation("cuda.portable.dense")->pack_linear(linear, {.pool = pool, .layout_only = true});
  ASSERT_TRUE(sized.ok());
  EXPECT_GE((*sized)->bytes(), 16U * 64U * 2U);
}

TEST(DeviceNames, AreCudaAndANumber) {
  EXPECT_TRUE(names_device("cuda"));
  EXPECT_TRUE(names_device("cuda:12"));
  EXPECT_FALSE(names_device("cpu"));
  EXPECT_FALSE(names_device("h200"));
  for (const char* const name : {"cuda:", "cuda:x", "cuda:-1", "cuda:1x"}) {
    const auto device = open_device(name);
    ASSERT_FALSE(device.ok());
    EXPECT_EQ(device.error().code, "device.unknown") << name;
  }
}

TEST(DeviceLibrary, FilesThatAreNone) {
  const auto missing = open_device_library("/nonexistent/libmoracle_cuda.so");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, "device.library");
  const auto other = open_device_library("/proc/self/exe");
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, "device.library");
}

#ifdef MORACLE_CUDA_OBJECT
// It loads without a driver, and says so when it is asked.
TEST(DeviceLibrary, TheObjectOfThisBuild) {
  const auto object = open_device_library(MORACLE_CUDA_OBJECT);
  ASSERT_TRUE(object.ok()) << object.error().message();
  const auto devices = probe_devices(**object);
  if (devices.ok()) GTEST_SKIP() << "this machine has " << devices->front().name;
  EXPECT_EQ(devices.error().code, "device.driver");
  EXPECT_NE(devices.error().found.find("error "), std::string::npos) << devices.error().found;
}
#endif

#ifdef MORACLE_TEST_OBJECTS
// Objects built for this test: one of another version, one of another size, one that exports nothing.
TEST(DeviceLibrary, ObjectsOfAnotherVersion) {
  const std::filesystem::path folder = MORACLE_TEST_OBJECTS;
  for (const char* const name : {"libobject_of_version.so", "libobject_of_size.so"}) {
    const auto object = open_device_library(folder / name);
    ASSERT_FALSE(object.ok()) << name;
    EXPECT_EQ(object.error().code, "device.version");
    EXPECT_EQ(object.error().advice, "use the object that was built with this program");
  }
  const auto empty = open_device_library(folder / "libobject_without.so");
  ASSERT_FALSE(empty.ok());
  EXPECT_NE(empty.error().wanted.find("moracle_device_api"), std::string::npos);
}
#endif

}  // namespace
}  // namespace moracle
