// The models whose shapes `synth` knows, as their publishers' configurations give them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace moracle {

struct SynthArchitecture {
  // Latent attention in place of q, k and v.
  struct LatentSizes {
    std::int64_t q_rank = 0, kv_rank = 0, nope = 0, rope = 0, value = 0;
  };
  // A gated delta net in layers of kind "linear_attention".
  struct DeltaSizes {
    std::int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0, kernel = 0;
  };
  // Experts that every token takes; no module: none.
  struct SharedExperts {
    std::string module{};
    std::int64_t intermediate = 0;
    std::string gate{};  // module of a sigmoid gate on their output; empty: none
  };

  std::string name{};
  std::string model_type{};
  std::string class_name{};
  std::int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, vocabulary = 0, positions = 0;
  std::int64_t dense_intermediate = 0, experts = 0, top_k = 0, intermediate = 0;
  double rope_theta = 0, epsilon = 0;
  std::int64_t bos = 0, eos = 0;
  bool qk_norm = false;
  bool attention_bias = false;             // of q, k, v and o
  bool sinks = false;                      // a logit a head that takes its share of the softmax
  std::vector<std::string> layer_kinds{};  // that take turns; none: the configuration does not tell
  bool element_gate = false;               // q_proj gives a gate beside each head
  bool zero_centred_norms = false;         // a stored 0 multiplies by 1
  std::optional<LatentSizes> latent{};
  std::optional<DeltaSizes> delta{};
  std::string moe{};            // module below a layer
  std::string router = "gate";  // below it
  bool router_bias = false;
  bool router_correction = false;  // a bias that chooses experts and does not weigh them
  // All experts in one tensor, with biases, rows of gate and up alternating; else a module an expert, with these names.
  bool stacked = false;
  std::string gate_name{}, up_name{}, down_name{};
  std::int64_t first_dense = 0;  // layers without experts, at the beginning
  SharedExperts shared{};
  bool experts_alone = false;  // only routed experts are published quantized
  Json config{};               // what this architecture's config.json has besides
};

[[nodiscard]] const std::vector<SynthArchitecture>& synth_architecture_rows();

}  // namespace moracle
