// The oracle's decisions, one entry per distinct question, not per layer.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json_fwd.h"
#include "oracle/decide.h"

namespace moracle {

struct ExplainedLayer {
  std::string name;  // "model.layers.3.mlp.experts"
  Problem problem;
  Decision decision;
  std::string also{};  // what was asked beside the problem
};

// Layers that asked the same question got the same answer.
struct ExplainedGroup {
  std::vector<std::string> names;  // in the order given
  Problem problem;
  Decision decision;
  std::string also{};
};
[[nodiscard]] std::vector<ExplainedGroup> group_layers(std::span<const ExplainedLayer> layers);

// {"a.0.x", "a.1.x", "a.3.x", "b"} -> {"a.{0-1,3}.x", "b"}: the first number that is a whole component of the path is
// folded, whatever the order of the names.
[[nodiscard]] std::vector<std::string> compress_names(std::span<const std::string> names);

// [{"names", "scheme": {"weight", "activation"}, "backend", "if_built", "trace", "warnings"}]; "activation" is null
// where activations stay at 16 bits, "backend" is null without a winner, "if_built" is best_if_built's backend.
[[nodiscard]] Json explain_json(std::span<const ExplainedGroup> groups);

}  // namespace moracle
