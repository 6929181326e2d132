// Mixtral: plain norms, optional sliding window, softmax routing with renormalized weights in every layer.
#include <algorithm>
#include <array>

#include "model/architectures/architectures.h"
#include "model/spec/family.h"

namespace moracle {

namespace {

constexpr std::array<std::string_view, 1> kTypes{"mixtral"};

// transformers' MixtralConfig.
constexpr CommonConfig kDefaults{.hidden = 4096,
                                 .layers = 32,
                                 .heads = 32,
                                 .kv_heads = 8,
                                 .head_dim = 0,
                                 .vocabulary = 32000,
                                 .max_positions = 131072,
                                 .norm_eps = 1e-5,
                                 .tied = false};

Result<ModelSpec> describe(const ModelConfig& config, const TensorLedger& ledger) {
  const JsonReader& reader = config.reader();
  MORACLE_ASSIGN(const CommonConfig common, config.common(kDefaults));
  ActivationSpec activation;
  MORACLE_ASSIGN(activation.fn, config.activation());
  RoutingSpec routing{.method = Routing::softmax_topk_renorm};
  MORACLE_ASSIGN(routing.experts, config.either("num_experts", "num_local_experts", 8, 1, kMaxExperts));
  MORACLE_ASSIGN(routing.top_k, reader.integer_or("num_experts_per_tok", 2, 1, std::min(kMaxTopK, routing.experts)));
  MORACLE_ASSIGN(const std::int64_t intermediate, reader.integer_or("intermediate_size", 14336, 1, kMaxIntermediate));
  std::int64_t window = 0;
  if (reader.has("sliding_window")) {
    MORACLE_ASSIGN(window, reader.integer("sliding_window", 1, kMaxPositions));
  }
  const std::vector<std::string> kinds(static_cast<std::size_t>(common.layers),
                                       window > 0 ? "sliding_attention" : "full_attention");
  config.warn_of_kinds("layer_types", kinds, "sliding_window gives every layer the same window, or none");
  const Result<bool> asked = reader.boolean_or("use_sliding_window", window > 0);
  if (!asked.ok() || *asked != (window > 0)) {
    config.warn("use_sliding_window is not read: sliding_window is null, or the window of every layer");
  }
  const std::string root = find_root(ledger);
  ModelSpec spec = common_spec(config, common, ledger, root);
  spec.info.experts = routing.experts;
  spec.info.experts_per_token = routing.top_k;
  MORACLE_ASSIGN(const RopeSpec rope, parse_rope(config, {.theta = 1e6,
                                                          .head_dim = common.head_dim,
                                                          .max_positions = common.max_positions,
                                                          .layer_type = "full_attention"}));
  spec.info.max_positions = rope.max_positions;
  for (std::int64_t l = 0; l < common.layers; ++l) {
    const std::string path = root + "layers." + std::to_string(l);
    AttentionSpec attention = attention_spec(path + ".self_attn", common, false);
    attention.window = window;
    attention.rope = add_rope(spec, rope);
    MoeSpec moe;
    moe.router = {path + ".block_sparse_moe.gate", path + ".mlp.gate"};
    moe.routing = routing;
    moe.experts.name = path + ".block_sparse_moe.experts";
    moe.experts.layouts = expert_layouts({path + ".block_sparse_moe.experts", path + ".mlp.experts"});
    moe.experts.experts = routing.experts;
    moe.experts.hidden = common.hidden;
    moe.experts.intermediate = intermediate;
    moe.activation = activation;
    LayerSpec layer = layer_spec(path, common);
    layer.mixer = std::move(attention);
    layer.feed_forward = std::move(moe);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace

const Family kMixtral{kTypes, describe};

}  // namespace moracle
