// A weight of a checkpoint of which headers alone have been read: all that a decision needs, and how the rest is read.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "scheme/canonical.h"

namespace moracle {

// Where the bias of a matrix [out, in] is stored: elements `begin`, `begin + stride`, ... of a tensor of one dimension.
struct StoredBias {
  TensorView tensor{};  // of stacked experts, the part of one
  std::int64_t begin = 0;
  std::int64_t stride = 1;
};

struct StoredLinear {
  // Without what is a value and not a size: the second level is 1 and the group index empty, whatever is stored.
  MatrixSpec spec{};
  std::optional<QuantKey> activation{};
  // As the config says; where it says nothing, as the stored group index has it.
  bool act_order = false;
  std::string excluded_by{};  // as of ModuleScheme; empty where no format was asked
  std::optional<StoredBias> bias{};
  // The weight with its second level, its group index and the scale of its activations, but without the bias. Gets
  // `spec`. Refers to nothing but the checkpoint.
  std::function<Result<CanonicalLinear>(MatrixSpec)> open{};

  [[nodiscard]] Scheme scheme() const { return {spec.key, activation}; }
  // Errors: "value.nan", "value.range", "value.zero_scales", "value.zero_point", "quant.act_order" and their like,
  // naming tensor and element.
  [[nodiscard]] Result<CanonicalLinear> read() const;
};

// The same for the routed experts of one layer; see CanonicalExperts.
struct StoredExperts {
  struct Expert {
    StoredLinear gate, up, down;  // as of CanonicalExperts
    [[nodiscard]] bool gated() const { return up.open != nullptr; }
  };
  std::string name;
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  Scheme scheme{};
  bool zero_points = false;
  bool act_order = false;
  bool bias = false;
  bool interleaved = false;
  std::vector<Expert> experts{};

  // `act_order` of what is read is that of the stored group indices.
  [[nodiscard]] Result<CanonicalExperts> read() const;
};

}  // namespace moracle
