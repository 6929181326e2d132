// Which device a plan gives each module, and that each is decided for it.
#include "model/plan/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "model/load/plan.h"
#include "support/fake_device.h"
#include "support/test_data.h"

namespace moracle::test {
namespace {

// Before anything asks which object there is: cards of a device lack none.
const int kNamed = ::setenv("MORACLE_CUDA_LIBRARY", MORACLE_HOST_OBJECT, 1);
constexpr DeviceId kGpu{1};

std::unique_ptr<LoadPlan> plan_of(const char* name, const Place& place) {
  const auto checkpoint = Checkpoint::open(data_dir() / name);
  if (!checkpoint.ok()) {
    ADD_FAILURE() << checkpoint.error().message();
    return nullptr;
  }
  auto plan = LoadPlan::make(*checkpoint, place, {});
  EXPECT_TRUE(plan.ok()) << plan.error().message();
  return plan.ok() ? std::move(*plan) : nullptr;
}

// Of the two, the second has a dense layer and shared experts.
TEST(Placement, RoutedExpertsAreTheGpus) {
  ASSERT_EQ(kNamed, 0);
  for (const char* const name : {"checkpoints/qwen3moe-gptq-w4g128-sym", "families/glm4_moe-grouped"}) {
    SCOPED_TRACE(name);
    FakeDevice fake;
    const auto device = GpuDevice::open(fake.api(), 0);
    ASSERT_TRUE(device.ok());
    const auto plan = plan_of(name, {.host = probe_machine(), .device = *device});
    ASSERT_NE(plan, nullptr);
    const Plan& opened = plan->opened();
    const Placement& placement = opened.placement();
    ASSERT_EQ(placement.devices.size(), 2U);
    EXPECT_EQ(placement.gpu(), *device);
    EXPECT_EQ(placement.main_gpu(), nullptr);
    EXPECT_EQ(placement.device(kGpu).machine.name, "cuda:0");
    ASSERT_EQ(placement.layers.size(), opened.spec().layers.size());
    for (std::size_t l = 0; l < placement.layers.size(); ++l) {
      const auto* const moe = std::get_if<MoeSpec>(&opened.spec().layers[l].feed_forward);
      const std::size_t experts = moe == nullptr ? 0 : static_cast<std::size_t>(moe->experts.experts);
      EXPECT_EQ(placement.layers[l], (LayerPlacement{.experts = std::vector<DeviceId>(experts, kGpu)})) << l;
    }
    int on_gpu = 0;
    for (std::size_t i = 0; i < opened.modules().size(); ++i) {
      const ModuleReport& module = opened.modules()[i];
      const bool experts = module.kind == "experts";
      EXPECT_EQ(opened.opened(i).device, experts ? kGpu : DeviceId::host) << module.name;
      if (!module.decision) continue;
      ASSERT_NE(module.decision->winner, nullptr) << module.name;
      EXPECT_EQ(module.decision->winner->device == DeviceKind::cuda, experts) << module.name;
      on_gpu += experts ? 1 : 0;
    }
    EXPECT_GT(on_gpu, 0);
  }
}

TEST(Placement, AGpuHasTheWholeModel) {
  FakeDevice fake;
  const auto device = GpuDevice::open(fake.api(), 0);
  ASSERT_TRUE(device.ok());
  const auto checkpoint = Checkpoint::open(data_dir() / "families" / "glm4_moe-grouped");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  const auto plan = LoadPlan::make(*checkpoint, {.host = probe_machine(), .device = *device}, {}, GpuModules::all);
  ASSERT_TRUE(plan.ok()) << plan.error().message();
  const Plan& opened = (*plan)->opened();
  EXPECT_EQ(opened.placement().main_gpu(), *device);
  for (std::size_t i = 0; i < opened.modules().size(); ++i) {
    EXPECT_EQ(opened.opened(i).device, kGpu) << opened.modules()[i].name;
    if (opened.modules()[i].decision) {
      EXPECT_EQ(opened.modules()[i].decision->winner->device, DeviceKind::cuda) << opened.modules()[i].name;
    }
  }
}

// Of the last layer alone the host has the routed experts, which are decided for it.
TEST(Placement, TheHostHasExpertsOfTheLastLayers) {
  FakeDevice fake;
  const auto device = GpuDevice::open(fake.api(), 0);
  ASSERT_TRUE(device.ok());
  const auto checkpoint = Checkpoint::open(data_dir() / "checkpoints" / "qwen3moe-gptq-w4g128-sym");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  Policy policy;
  policy.pinned = "portable";  // of the GPU's experts
  const auto plan =
      LoadPlan::make(*checkpoint, {.host = probe_machine(), .device = *device}, policy, GpuModules::all, 1);
  ASSERT_TRUE(plan.ok()) << plan.error().message();
  const Plan& opened = (*plan)->opened();
  EXPECT_EQ(opened.placement().main_gpu(), *device);
  std::vector<DeviceId> experts;
  for (std::size_t i = 0; i < opened.modules().size(); ++i) {
    const ModuleReport& module = opened.modules()[i];
    const DeviceId where = opened.opened(i).device;
    if (module.kind == "experts") {
      experts.push_back(where);
      EXPECT_EQ(module.decision->winner->device, where == kGpu ? DeviceKind::cuda : DeviceKind::cpu) << module.name;
    } else {
      EXPECT_EQ(where, kGpu) << module.name;
    }
  }
  ASSERT_GT(experts.size(), 1U);
  EXPECT_EQ(experts.front(), kGpu);
  EXPECT_EQ(std::ranges::count(experts, DeviceId::host), std::ssize(experts) - 1);
  const std::string said = "cuda:0 has room for the routed experts of 1 of " + std::to_string(experts.size()) +
                           " layers: the host computes those of the others";
  EXPECT_TRUE(std::ranges::count((*plan)->warnings(), said)) << said;
}

TEST(Placement, WithoutAGpuAllIsTheHosts) {
  const auto plan = plan_of("checkpoints/qwen3moe-gptq-w4g128-sym", {.host = probe_machine()});
  ASSERT_NE(plan, nullptr);
  const Placement& placement = plan->opened().placement();
  EXPECT_EQ(placement.devices.size(), 1U);
  EXPECT_EQ(placement.gpu(), nullptr);
  EXPECT_EQ(placement.main_gpu(), nullptr);
  EXPECT_EQ(placement.host().fingerprint(), probe_machine().fingerprint());
  for (const LayerPlacement& layer : placement.layers) {
    EXPECT_TRUE(std::ranges::all_of(layer.experts, [](DeviceId id) { return id == DeviceId::host; }));
  }
}

}  // namespace
}  // namespace moracle::test
