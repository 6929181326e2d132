// The modules of a model, in the order of its forward pass.
#pragma once

#include <memory>
#include <vector>

#include "model/blocks/blocks.h"
#include "model/model.h"
#include "slots/expert_pool.h"

namespace moracle {

struct TransformerLayer {
  Norm input_norm;
  std::unique_ptr<Mixer> mixer;  // null: the layer has a feed-forward alone
  Norm mixer_norm;
  Norm post_norm;
  std::unique_ptr<FeedForward> feed_forward;  // null: the layer has a mixer alone
  Norm feed_forward_norm;
  bool parallel = false;        // the feed-forward reads what the mixer read
  DeviceArray<float> scalar{};  // [1] or empty: the residual stream is multiplied by it behind the layer

  [[nodiscard]] bool late() const { return feed_forward != nullptr && feed_forward->late(); }
  [[nodiscard]] LayerState state(const Ops& ops) const { return mixer != nullptr ? mixer->state(ops) : LayerState{}; }
};

struct TransformerParts {
  std::vector<std::shared_ptr<const void>> owners{};  // of what all others point to: numbers, operations
  ModelInfo info{};
  Embedding embedding{};
  std::vector<TransformerLayer> layers{};
  Norm final_norm{};
  Multipliers multipliers{};
  std::unique_ptr<PackedLinear> head{};
  std::vector<Rope> ropes{};
  const Ops* ops = nullptr;                                   // of the device
  std::shared_ptr<GpuDevice> device{};                        // where the pass runs; null: on the host's pool
  std::vector<std::shared_ptr<DeviceWorkspace>> elsewhere{};  // of devices that have a part of the layers
  std::shared_ptr<ExpertPool> pool{};                         // of the layers' experts; null: all are in memory
  std::int64_t prefill_chunk = 0;                             // as of Model; 0: what is usual on the device
};

}  // namespace moracle
