#include "model/plan/placement.h"

#include <algorithm>

#include "base/generic/count.h"
#include "model/spec/spec.h"

namespace moracle {

std::shared_ptr<GpuDevice> Placement::gpu() const {
  return devices.size() > 1 ? devices[1].gpu : nullptr;
}

std::shared_ptr<GpuDevice> Placement::main_gpu() const {
  const auto host = [](DeviceId id) { return id == DeviceId::host; };
  const bool some = host(embedding) || host(head) || std::ranges::any_of(layers, [&](const LayerPlacement& layer) {
                      return host(layer.mixer) || host(layer.mlp) || host(layer.shared);
                    });
  return some ? nullptr : gpu();
}

Placement place_modules(const ModelSpec& spec, const Place& place, GpuModules modules, std::int64_t expert_layers) {
  Placement placement;
  placement.devices.front().machine = place.host;
  DeviceId experts = DeviceId::host;
  if (place.device != nullptr) {
    experts = static_cast<DeviceId>(placement.devices.size());
    placement.devices.push_back({.machine = place.device->machine(), .gpu = place.device});
  }
  const DeviceId others = modules == GpuModules::all ? experts : DeviceId::host;
  placement.embedding = placement.head = others;
  for (const LayerSpec& layer : spec.layers) {
    LayerPlacement& placed = placement.layers.emplace_back();
    placed.mixer = placed.mlp = placed.shared = others;
    if (const auto* const moe = std::get_if<MoeSpec>(&layer.feed_forward); moe != nullptr) {
      placed.experts.assign(count(moe->experts.experts), expert_layers-- > 0 ? experts : DeviceId::host);
    }
  }
  return placement;
}

}  // namespace moracle
