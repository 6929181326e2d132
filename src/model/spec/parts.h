// What descriptions of models are put together from.
#pragma once

#include <string>
#include <string_view>

#include "format/format.h"
#include "format/rules/spelling.h"
#include "model/spec/config.h"
#include "model/spec/spec.h"

namespace moracle {

// What precedes `embedding` ("embed_tokens"), "layers" and "norm" in this checkpoint: one of kRoots (spelling.h), else
// whatever precedes the only ones that are stored.
[[nodiscard]] std::string find_root(const TensorClaims& claims, std::string_view embedding);

// Embedding, of the path `embedding`, head and final norm, and the sizes of `info`. A head that is stored goes before
// the config's word for it.
[[nodiscard]] ModelSpec common_spec(const ModelConfig& config, const CommonConfig& common, const TensorClaims& claims,
                                    const std::string& root, std::string_view embedding);

// A norm over `size` elements.
[[nodiscard]] NormSpec norm_spec(std::string path, std::int64_t size, double eps);

// q, k, v and o projections below `path` ("model.layers.0.self_attn"), with biases where `bias`.
[[nodiscard]] AttentionSpec attention_spec(const std::string& path, const CommonConfig& common, bool bias);

// gate, up and down projections below `path` ("model.layers.0.mlp"); up and down where the activation has no gate.
[[nodiscard]] DenseSpec dense_spec(const std::string& path, std::int64_t hidden, std::int64_t intermediate,
                                   ActivationSpec activation);

// The same where gate and up are rows of one module: `both` and `down` are its and down's path.
[[nodiscard]] DenseSpec halved_spec(const std::string& both, const std::string& down, std::int64_t hidden,
                                    std::int64_t intermediate, ActivationSpec activation);

// The same of an expert that sees every token, stored under one of `paths`; the names under the others are its as well.
[[nodiscard]] DenseSpec shared_spec(const std::vector<std::string>& paths, const TensorClaims& claims,
                                    std::int64_t hidden, std::int64_t intermediate, ActivationSpec activation);

// Index of the rope in the spec, added if it is not there yet.
std::size_t add_rope(ModelSpec& spec, const RopeSpec& rope);

}  // namespace moracle
