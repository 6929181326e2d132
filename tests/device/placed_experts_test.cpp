// Experts of one layer on several devices, over fakes: parts of a layer add up, and each device that fails ends the
// call.
#include "moe/placed_experts.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "moe/layer_runner.h"
#include "support/fake_device.h"
#include "support/random_experts.h"

namespace moracle {
namespace {

using test::FakeDevice;

constexpr std::int64_t kTokens = 9;
constexpr std::int64_t kTopK = 2;
constexpr std::int64_t kHidden = 96;
constexpr std::int32_t kExperts = 6;

// Whose expert e is: the host's, or one of two GPUs'.
constexpr std::array<int, kExperts> kOwners{0, 1, 2, 1, 0, 2};

struct Call {
  Call() {
    std::mt19937 rng(5);
    std::normal_distribution<float> normal;
    for (float& value : x) value = normal(rng);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<std::int32_t>(rng() % (kExperts + 1)) - 1;
      weights[i] = 0.25F + 0.5F * static_cast<float>(i % 2);
    }
  }
  [[nodiscard]] ExpertsInput view() const {
    return {.tokens = kTokens, .top_k = kTopK, .x = x.data(), .ids = ids.data(), .weights = weights.data()};
  }

  std::vector<float> x = std::vector<float>(kTokens * kHidden);
  std::vector<std::int32_t> ids = std::vector<std::int32_t>(kTokens * kTopK);
  std::vector<float> weights = std::vector<float>(kTokens * kTopK);
};

CanonicalExperts experts() {
  std::mt19937 rng(1);
  return test::random_experts(
      {.key = {.element = Element::int4, .scale = ScaleType::bf16, .granularity = Granularity::group(32)},
       .experts = kExperts,
       .hidden = kHidden,
       .intermediate = 64},
      rng);
}

// The host's kernel is the reference, the GPUs' the simple one.
const KernelCard& card_of(int owner) {
  if (owner > 0) return *find_implementation("cuda.portable.wna16")->card;
  static const KernelCard& card = **find_ref_card(experts().scheme);
  return card;
}

class PlacedExpertsTest : public ::testing::Test {
 protected:
  Result<> open() {
    for (FakeDevice& fake : fakes_) {
      MORACLE_ASSIGN(std::shared_ptr<GpuDevice> device, GpuDevice::open(fake.api(), 0));
      workspaces_.push_back(std::make_shared<DeviceWorkspace>(device));
      devices_.push_back(std::move(device));
    }
    return Ok{};
  }

  // The experts of one owner, in their order.
  Result<PlacedExperts::Part> part_of(int owner) {
    CanonicalExperts own = experts();
    std::vector<CanonicalExperts::Expert> chosen;
    PlacedExperts::Part part;
    for (const int of : kOwners) {
      part.numbers.push_back(of == owner ? static_cast<std::int32_t>(chosen.size()) : -1);
      if (of == owner) chosen.push_back(own.experts[part.numbers.size() - 1]);
    }
    own.experts = std::move(chosen);
    const auto gpu = static_cast<std::size_t>(owner - 1);
    PackOptions options{.pool = pool_};
    if (owner > 0) options.device = devices_[gpu];
    if (owner > 0) part.elsewhere = workspaces_[gpu];
    MORACLE_ASSIGN(part.pack, find_implementation(card_of(owner).id)->pack_experts(own, options));
    return part;
  }

  // The call over these owners' parts.
  Result<> run(std::initializer_list<int> owners) {
    MORACLE_TRY(open());
    std::vector<PlacedExperts::Part> parts;
    for (const int owner : owners) {
      MORACLE_ASSIGN(parts.emplace_back(), part_of(owner));
    }
    const PlacedExperts placed(std::move(parts), kHidden);
    for (const auto& workspace : workspaces_) {
      MORACLE_TRY(reserve_calls(*workspace, kTokens, kTopK,
                                [&](std::int64_t tokens) { return placed.call_bytes(*workspace, tokens, kTopK); }));
    }
    std::vector<std::byte> workspace(placed.workspace_bytes(kTokens, kTopK, pool_.threads()));
    out_.assign(kTokens * kHidden, 0.5F);
    Stream stream(pool_);
    const RunContext context{.stream = stream, .workspace = workspace};
    const Call call;
    placed.begin(context, call.view(), out_.data());
    placed.finish(context, kTokens, kTopK, out_.data());
    return stream.wait();
  }

  void TearDown() override { EXPECT_EQ(left(), 0U); }

  // What the devices hold once nobody uses them.
  std::size_t left() {
    workspaces_.clear();
    devices_.clear();
    return fakes_[0].live_objects() + fakes_[1].live_objects();
  }

  std::array<FakeDevice, 2> fakes_;
  std::vector<std::shared_ptr<GpuDevice>> devices_;
  std::vector<std::shared_ptr<DeviceWorkspace>> workspaces_;
  ThreadPool pool_{2};
  std::vector<float> out_;
};

// What an owner's kernel gives of all experts, of which ids leave out the others'.
std::vector<float> whole(int owner, ThreadPool& pool) {
  FakeDevice fake;
  std::vector<float> out(kTokens * kHidden);
  {
    const auto device = GpuDevice::open(fake.api(), 0);
    auto runner = LayerRunner::pack(card_of(owner), experts(), {.pool = pool, .device = *device});
    EXPECT_TRUE(runner.ok() && runner->reserve(kTokens, kTopK).ok());
    Call call;
    for (std::int32_t& id : call.ids) {
      if (id >= 0 && kOwners[static_cast<std::size_t>(id)] != owner) id = -1;
    }
    runner->run(call.view(), out.data());
    EXPECT_TRUE(runner->status().ok());
  }
  return out;
}

TEST_F(PlacedExpertsTest, PartsOfALayerAddUp) {
  std::vector<float> expected = whole(0, pool_);
  for (const int owner : {1, 2}) {
    const std::vector<float> part = whole(owner, pool_);
    for (std::size_t i = 0; i < part.size(); ++i) expected[i] += part[i];
  }
  const Result<> done = run({1, 0, 2});
  ASSERT_TRUE(done.ok()) << done.error().message();
  EXPECT_EQ(out_, expected);
}

TEST_F(PlacedExpertsTest, PartsElsewhereAreAll) {
  std::vector<float> expected = whole(1, pool_);
  const std::vector<float> part = whole(2, pool_);
  for (std::size_t i = 0; i < part.size(); ++i) expected[i] += part[i];
  const Result<> done = run({1, 2});
  ASSERT_TRUE(done.ok()) << done.error().message();
  EXPECT_EQ(out_, expected);
}

// A layer whose caller is on a GPU has its experts on the host.
class ExpertsOnTheHost : public ::testing::Test {
 protected:
  // The call from a stream of the fake's GPU.
  Result<> run(FakeDevice& fake) {
    MORACLE_ASSIGN(const std::shared_ptr<GpuDevice> gpu, GpuDevice::open(fake.api(), 0));
    const auto workspace = std::make_shared<DeviceWorkspace>(std::make_shared<const HostDevice>(Machine{}, pool_));
    std::vector<PlacedExperts::Part> parts(1);
    parts.front().elsewhere = workspace;
    MORACLE_ASSIGN(parts.front().pack, find_implementation(card_of(0).id)->pack_experts(experts(), {.pool = pool_}));
    const PlacedExperts placed(std::move(parts), kHidden);
    MORACLE_TRY(reserve_calls(*workspace, kTokens, kTopK,
                              [&](std::int64_t tokens) { return placed.call_bytes(*workspace, tokens, kTopK); }));
    const Call call;
    MORACLE_ASSIGN(const Buffer x, gpu->allocate(call.x.size() * 4, "inputs"));
    MORACLE_ASSIGN(const Buffer ids, gpu->allocate(call.ids.size() * 4, "ids"));
    MORACLE_ASSIGN(const Buffer weights, gpu->allocate(call.weights.size() * 4, "weights"));
    MORACLE_ASSIGN(const Buffer out, gpu->allocate(call.x.size() * 4, "outputs"));
    MORACLE_ASSIGN(Stream stream, gpu->make_stream());
    stream.to_device(x.data(), call.x.data(), x.size());
    stream.to_device(ids.data(), call.ids.data(), ids.size());
    stream.to_device(weights.data(), call.weights.data(), weights.size());
    const RunContext context{.stream = stream, .workspace = {}};
    const ExpertsInput input{.tokens = kTokens,
                             .top_k = kTopK,
                             .x = reinterpret_cast<const float*>(x.data()),
                             .ids = reinterpret_cast<const std::int32_t*>(ids.data()),
                             .weights = reinterpret_cast<const float*>(weights.data())};
    placed.begin(context, input, reinterpret_cast<float*>(out.data()));
    placed.finish(context, kTokens, kTopK, reinterpret_cast<float*>(out.data()));
    out_.assign(call.x.size(), 0.0F);
    stream.to_host(out_.data(), out.data(), out.size());
    return stream.wait();
  }

  ThreadPool pool_{2};
  std::vector<float> out_;
};

TEST_F(ExpertsOnTheHost, GetTheirInputsFromAGpu) {
  std::vector<float> expected(kTokens * kHidden);
  auto runner = LayerRunner::pack(card_of(0), experts(), {.pool = pool_});
  ASSERT_TRUE(runner.ok() && runner->reserve(kTokens, kTopK).ok());
  runner->run(Call().view(), expected.data());
  for (const bool late : {false, true}) {
    FakeDevice fake;
    fake.late_copies = late;  // what is not waited for is not there
    const Result<> done = run(fake);
    ASSERT_TRUE(done.ok()) << done.error().message();
    EXPECT_EQ(out_, expected) << late;
    EXPECT_EQ(fake.live_objects(), 0U);
  }
}

TEST_F(ExpertsOnTheHost, AnyCallOfTheGpuThatFailsEndsTheCall) {
  for (const char* const call : {"allocate", "make_stream", "copy", "wait"}) {
    for (int at = 1;; ++at) {
      SCOPED_TRACE(std::string(call) + " " + std::to_string(at));
      FakeDevice fake;
      fake.failure = {.call = call, .at = at, .error = 700};
      const Result<> done = run(fake);
      EXPECT_EQ(fake.live_objects(), 0U);
      if (fake.calls(call) < at) {
        EXPECT_TRUE(done.ok());
        EXPECT_GT(at, 1) << "never called";
        break;
      }
      ASSERT_FALSE(done.ok());
      EXPECT_EQ(done.error().code, "device.call");
    }
  }
}

// Whichever call of either device fails: one sentence, no answer, and nothing is left.
TEST_F(PlacedExpertsTest, AnyCallThatFailsEndsTheCall) {
  for (std::size_t fake = 0; fake < fakes_.size(); ++fake) {
    for (const char* const call :
         {"allocate", "allocate_pinned", "make_stream", "make_event", "copy", "kernel", "wait"}) {
      for (int at = 1;; ++at) {
        SCOPED_TRACE(std::string(call) + " " + std::to_string(at) + " of device " + std::to_string(fake));
        for (FakeDevice& each : fakes_) each.failure = {};
        const int before = fakes_[fake].calls(call);
        fakes_[fake].failure = {.call = call, .at = before + at, .error = 700};
        out_.clear();
        const Result<> done = run({0, 1, 2});
        EXPECT_EQ(left(), 0U);
        if (fakes_[fake].calls(call) < before + at) {
          EXPECT_TRUE(done.ok());
          EXPECT_GT(at, 1) << "never called";
          break;
        }
        ASSERT_FALSE(done.ok());
        EXPECT_EQ(done.error().code, "device.call");
        for (const float value : out_) ASSERT_TRUE(std::isnan(value)) << "no answer may look like one";
      }
    }
  }
}

}  // namespace
}  // namespace moracle
