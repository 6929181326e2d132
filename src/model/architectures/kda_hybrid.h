// Layers of Kimi's delta attention among layers of latent attention: Kimi-Linear and Ling 3.
#pragma once

#include <string>
#include <vector>

#include "model/architectures/architectures.h"

namespace moracle {

// What all delta layers of a model share. Decays are by channel, and outputs are gated by a sigmoid.
struct KdaSizes {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t kernel = 0;
  float least_decay = 0.0F;  // as of DeltaNetShape
  bool low_rank = false;     // gates come through a rank of head_dim: f_a_proj and f_b_proj in place of f_proj
};

// Puts a delta net in place of each layer's attention that `delta` has, under the attention's path.
// `out` is the name of its last linear below that path.
void put_kda_layers(const KdaSizes& sizes, const std::vector<bool>& delta, const CommonConfig& common,
                    const TensorClaims& claims, std::string_view out, ModelSpec& spec);

// Which layers "layer_types" calls linear_attention; empty without the key.
Result<std::vector<bool>> listed_kda_layers(const ModelConfig& config, std::int64_t layers);

}  // namespace moracle
