// Model families: one file and one line in the registry each.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "format/format.h"
#include "format/rules/spelling.h"
#include "model/spec/config.h"
#include "model/spec/spec.h"

namespace moracle {

struct Family {
  std::span<const std::string_view> model_types;
  // Turns config.json into a spec. `ledger` tells which of several spellings of a name the checkpoint uses.
  Result<ModelSpec> (*describe)(const ModelConfig& config, const TensorLedger& ledger);
};

[[nodiscard]] std::span<const Family* const> families();
// Errors: "config.unsupported" at /model_type, listing the known types.
Result<const Family*> find_family(const ModelConfig& config);

// --- Parts that families share -------------------------------------------------------------------------------------

// What precedes "embed_tokens", "layers" and "norm" in this checkpoint: one of kRoots (spelling.h), else whatever
// precedes the only ones that are stored.
[[nodiscard]] std::string find_root(const TensorLedger& ledger);

// Embedding, head and final norm, and the sizes of `info`. A head that is stored goes before the config's word for it.
[[nodiscard]] ModelSpec common_spec(const ModelConfig& config, const CommonConfig& common, const TensorLedger& ledger,
                                    const std::string& root);

// A norm over `size` elements.
[[nodiscard]] NormSpec norm_spec(std::string path, std::int64_t size, double eps);

// q, k, v and o projections below `path` ("model.layers.0.self_attn"), with biases where `bias`.
[[nodiscard]] AttentionSpec attention_spec(const std::string& path, const CommonConfig& common, bool bias);

// Routing by sigmoid scores, with a bias that only chooses and, where "n_group" asks for it, in groups (DeepSeek-V3,
// arXiv 2412.19437, section 2.1.2). `defaults` are the config class's.
[[nodiscard]] Result<RoutingSpec> sigmoid_bias_routing(const ModelConfig& config, const RoutingSpec& defaults);

// A layer with the usual names of its two norms, below `path` ("model.layers.0").
[[nodiscard]] LayerSpec layer_spec(const std::string& path, const CommonConfig& common);

// gate, up and down projections below `path` ("model.layers.0.mlp").
[[nodiscard]] DenseSpec dense_spec(const std::string& path, std::int64_t hidden, std::int64_t intermediate,
                                   ActivationSpec activation);

// Index of the rope in the spec, added if it is not there yet.
std::size_t add_rope(ModelSpec& spec, const RopeSpec& rope);

}  // namespace moracle
