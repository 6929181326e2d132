#include "model/plan/placement.h"

#include "base/generic/count.h"
#include "model/spec/spec.h"

namespace moracle {

std::shared_ptr<GpuDevice> Placement::gpu() const {
  return devices.size() > 1 ? devices[1].gpu : nullptr;
}

Placement place_experts(const ModelSpec& spec, const Place& place) {
  Placement placement;
  placement.devices.front().machine = place.host;
  DeviceId experts = DeviceId::host;
  if (place.device != nullptr) {
    experts = static_cast<DeviceId>(placement.devices.size());
    placement.devices.push_back({.machine = place.device->machine(), .gpu = place.device});
  }
  for (const LayerSpec& layer : spec.layers) {
    LayerPlacement& placed = placement.layers.emplace_back();
    if (const auto* const moe = std::get_if<MoeSpec>(&layer.feed_forward); moe != nullptr) {
      placed.experts.assign(count(moe->experts.experts), experts);
    }
  }
  return placement;
}

}  // namespace moracle
