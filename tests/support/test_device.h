// The device that tests of device kernels use: a GPU where MORACLE_TEST_DEVICE names one, else the fake.
#pragma once

#include <memory>
#include <vector>

#include "device/gpu_device.h"
#include "kernels/kernel.h"

namespace moracle::test {

[[nodiscard]] std::shared_ptr<GpuDevice> test_device();
// Whether that is a GPU: only its figures say anything of kernels.
[[nodiscard]] bool has_gpu();

// What a card needs to be run by a test: null for cards of the host.
[[nodiscard]] std::shared_ptr<GpuDevice> device_for(const KernelCard& card);
// The machine that a card is decided for, and the table of a scheme in which no card lacks a device.
[[nodiscard]] Machine machine_for(const KernelCard& card);
[[nodiscard]] Table table_of(const Scheme& scheme);
// Whether a card can be run here: the CPU has its instructions, or it is for the device.
[[nodiscard]] bool runs_here(const KernelCard& card);

}  // namespace moracle::test
