// The routed experts of a layer, on the device of their caller or on others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/generic/function_ref.h"
#include "device/workspace.h"
#include "kernels/expert_store.h"
#include "kernels/kernel.h"

namespace moracle {

// What calls take on a device that is not their caller's.
struct CallBytes {
  std::size_t device = 0;
  std::size_t staging = 0;     // memory of the host that inputs and outputs pass through
  std::size_t persistent = 0;  // on the device from call to call, once for all layers
};

// Parts of a layer add up: a part leaves out what others have, as ids of -1. A part elsewhere gets the call's inputs
// copied to its device and gives its sums back, by way of the host, which waits for the inputs where the caller is a
// GPU. A caller on a GPU has all parts elsewhere, or one of its own alone.
class PlacedExperts {
 public:
  struct Part {
    std::unique_ptr<PackedExperts> pack{};
    std::shared_ptr<DeviceWorkspace> elsewhere{};  // null: on the device of the caller's stream
    // By the layer's number of an expert its number in the pack, -1: another part has it. Empty: the pack has all.
    std::vector<std::int32_t> numbers{};
  };

  PlacedExperts() = default;
  // All of them, on the caller's device.
  PlacedExperts(std::unique_ptr<PackedExperts> pack);  // NOLINT(google-explicit-constructor): the plain case
  // All of them on another device.
  PlacedExperts(std::unique_ptr<PackedExperts> pack, std::shared_ptr<DeviceWorkspace> elsewhere, std::int64_t hidden);
  // Each on a device of its own.
  PlacedExperts(std::vector<Part> parts, std::int64_t hidden) : parts_(std::move(parts)), hidden_(hidden) {}

  // Where experts of the caller's device are read when they are asked for; null: they are in memory. Of the packs.
  void set_read(LayerExperts* experts) { read_ = experts; }
  [[nodiscard]] LayerExperts* read() const { return read_; }
  [[nodiscard]] std::span<const Part> parts() const { return parts_; }
  [[nodiscard]] std::size_t bytes() const;
  // On the caller's device, as of PackedExperts.
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens, std::int64_t top_k, int threads) const;
  // On another one.
  [[nodiscard]] CallBytes call_bytes(const DeviceWorkspace& of, std::int64_t tokens, std::int64_t top_k) const;

  // out[tokens, hidden] = sum over the chosen experts, once finish() has returned: begin() enqueues what is elsewhere
  // and computes the caller's part, finish() waits and adds. The input is read by begin() alone. What fails elsewhere
  // fails the caller's stream, and `out` is NaN.
  void begin(const RunContext& context, const ExpertsInput& input, float* out) const;
  void finish(const RunContext& context, std::int64_t tokens, std::int64_t top_k, float* out) const;

 private:
  void begin_elsewhere(const RunContext& context, const ExpertsInput& input) const;

  std::vector<Part> parts_;  // at most one on the caller's device
  std::int64_t hidden_ = 0;
  LayerExperts* read_ = nullptr;
};

// A pack where the kernels of its card compute: those of a GPU on `gpu`, others with the caller.
[[nodiscard]] PlacedExperts place(const KernelCard& card, std::unique_ptr<PackedExperts> pack, std::int64_t hidden,
                                  std::shared_ptr<DeviceWorkspace> gpu);

// Makes room on a device for calls of up to `tokens` tokens, where bytes(n) is what calls of n tokens take. Errors:
// "device.batch"; "device.memory" with the largest call for which there is room; those of DeviceWorkspace::reserve.
Result<> reserve_calls(DeviceWorkspace& workspace, std::int64_t tokens, std::int64_t top_k,
                       FunctionRef<CallBytes(std::int64_t)> bytes);

}  // namespace moracle
