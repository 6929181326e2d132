// Which device has which module of a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/place.h"
#include "machine/machine.h"

namespace moracle {

struct ModelSpec;

// A device by its place in Placement::devices, of which the host is the first.
enum class DeviceId : std::uint8_t { host };

struct PlacedDevice {
  Machine machine{};                 // that kernels are chosen for
  std::shared_ptr<GpuDevice> gpu{};  // null: the host
};

// Neighbours may be on different devices: what passes between them is copied by the forward pass.
struct LayerPlacement {
  DeviceId mixer = DeviceId::host;   // with the norm before it
  DeviceId mlp = DeviceId::host;     // the same; of a mixture the router
  DeviceId shared = DeviceId::host;  // experts that see every token
  std::vector<DeviceId> experts{};   // of each routed expert

  bool operator==(const LayerPlacement&) const = default;
};

struct Placement {
  std::vector<PlacedDevice> devices{{}};
  DeviceId embedding = DeviceId::host;
  DeviceId head = DeviceId::host;  // with the norm before it
  std::vector<LayerPlacement> layers{};

  [[nodiscard]] const PlacedDevice& device(DeviceId id) const { return devices[static_cast<std::size_t>(id)]; }
  [[nodiscard]] const Machine& host() const { return devices.front().machine; }
  // The first GPU; null: the host has every module.
  [[nodiscard]] std::shared_ptr<GpuDevice> gpu() const;
  // The GPU that has every module but, in some layers, the routed experts; null: the host has others, too.
  [[nodiscard]] std::shared_ptr<GpuDevice> main_gpu() const;
};

inline constexpr std::int64_t kAllLayers = INT64_MAX;

// What the GPU of a place has; the host has all else.
enum class GpuModules : std::uint8_t { experts, all };

// All on the host where the place has no GPU. The GPU has the routed experts of the first `expert_layers` layers that
// have any; the host has those of the others.
[[nodiscard]] Placement place_modules(const ModelSpec& spec, const Place& place, GpuModules modules,
                                      std::int64_t expert_layers);

}  // namespace moracle
