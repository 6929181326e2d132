#include "support/test_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "support/fake_device.h"

namespace moracle::test {

namespace {

const char* gpu_name() {
  const char* const name = std::getenv("MORACLE_TEST_DEVICE");
  return name != nullptr && *name != '\0' ? name : nullptr;
}

std::shared_ptr<GpuDevice> make_device() {
  static FakeDevice fake;
  auto device = gpu_name() != nullptr ? open_device(gpu_name()) : GpuDevice::open(fake.api(), 0);
  if (!device.ok()) {
    ADD_FAILURE() << device.error().message();
    std::abort();
  }
  return *device;
}

}  // namespace

bool has_gpu() {
  return gpu_name() != nullptr;
}

std::shared_ptr<GpuDevice> test_device() {
  static const std::shared_ptr<GpuDevice> device = make_device();
  return device;
}

std::shared_ptr<GpuDevice> device_for(const KernelCard& card) {
  return card.device == DeviceKind::cuda ? test_device() : nullptr;
}

Machine machine_for(const KernelCard& card) {
  return card.device == DeviceKind::cuda ? test_device()->machine() : probe_machine();
}

Table table_of(const Scheme& scheme) {
  const auto found = table_for(scheme);
  EXPECT_TRUE(found.ok()) << to_string(scheme);
  Table table = **found;
  table.missing = nullptr;
  return table;
}

bool runs_here(const KernelCard& card) {
  if (card.device != DeviceKind::cuda) return (probe_machine().cpu_features & card.cpu_features) == card.cpu_features;
  const int capability = device_for(card)->machine().capability;
  return std::ranges::any_of(card.devices, [&](const DeviceRule& rule) {
    return rule.min_capability <= capability && capability <= rule.max_capability;
  });
}

}  // namespace moracle::test
