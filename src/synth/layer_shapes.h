// The shapes and schemes that benchmarks know by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "oracle/problem.h"
#include "scheme/routing.h"

namespace moracle {

// The experts of one MoE layer: w13 [experts, 2 * intermediate, hidden], w2 [experts, hidden, intermediate].
struct LayerShape {
  std::string name;
  std::int64_t experts = 0;
  std::int64_t hidden = 0;        // K
  std::int64_t intermediate = 0;  // N
  std::int64_t top_k = 0;
  ActivationSpec activation{};
  Routing routing = Routing::softmax_topk_renorm;
  bool bias = false;
};

[[nodiscard]] std::vector<std::string> layer_shape_names();

// A name, or "E=128,K=2048,N=768,topk=8". Errors: "shape.unknown", "shape.range".
Result<LayerShape> parse_layer_shape(const std::string& text);

struct NamedScheme {
  std::string name;
  Scheme scheme{};
  bool act_order = false;
};

[[nodiscard]] std::vector<std::string> scheme_names();

// Errors: "scheme.unknown" listing the names.
Result<NamedScheme> find_scheme(const std::string& name);

// Columns that share a scale in a row of `cols`; 0 unquantized.
[[nodiscard]] std::int64_t group_columns(const QuantKey& key, std::int64_t cols);

// Bytes of one matrix as published: codes and scales (tensor and block granularities count each scale once); zero
// points and indices are not counted.
[[nodiscard]] std::int64_t published_bytes(const QuantKey& key, std::int64_t rows, std::int64_t cols);

// What the oracle is asked for a layer of this shape and scheme.
[[nodiscard]] Problem layer_problem(const LayerShape& shape, const NamedScheme& scheme);

}  // namespace moracle
