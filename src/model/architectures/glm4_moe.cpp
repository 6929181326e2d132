// GLM-4-MoE (GLM-4.5 and its successors): plain norms, half of each head rotated, optional norms on heads of q and k,
// the first layers dense, sigmoid routing with a correction bias, shared experts.
#include <array>

#include "model/architectures/architectures.h"
#include "model/spec/family.h"

namespace moracle {

namespace {

constexpr std::array<std::string_view, 1> kTypes{"glm4_moe"};

// transformers' Glm4MoeConfig.
constexpr CommonConfig kDefaults{.hidden = 4096,
                                 .layers = 46,
                                 .heads = 96,
                                 .kv_heads = 8,
                                 .head_dim = 0,
                                 .vocabulary = 151552,
                                 .max_positions = 131072,
                                 .norm_eps = 1e-5,
                                 .tied = false};

struct Settings {
  CommonConfig common;
  RoutingSpec routing;
  ActivationSpec activation;
  std::int64_t expert_intermediate = 0;
  std::int64_t dense_intermediate = 0;
  std::int64_t dense_layers = 0;
  std::int64_t shared_experts = 0;
  bool attention_bias = false;
  bool qk_norm = false;
};

Result<Settings> read_settings(const ModelConfig& config) {
  const JsonReader& reader = config.reader();
  Settings s;
  MORACLE_ASSIGN(s.common, config.common(kDefaults));
  MORACLE_ASSIGN(s.activation.fn, config.activation());
  MORACLE_ASSIGN(s.routing, sigmoid_bias_routing(config, {.experts = 128, .top_k = 8}));
  MORACLE_ASSIGN(s.expert_intermediate, reader.integer_or("moe_intermediate_size", 1408, 1, kMaxIntermediate));
  MORACLE_ASSIGN(s.dense_intermediate, reader.integer_or("intermediate_size", 10944, 1, kMaxIntermediate));
  MORACLE_ASSIGN(s.dense_layers, reader.integer_or("first_k_dense_replace", 1, 0, kMaxLayers));
  MORACLE_ASSIGN(s.shared_experts, reader.integer_or("n_shared_experts", 1, 0, kMaxExperts));
  MORACLE_ASSIGN(s.attention_bias, reader.boolean_or("attention_bias", false));
  MORACLE_ASSIGN(s.qk_norm, reader.boolean_or("use_qk_norm", false));
  config.warn_of_window();
  return s;
}

AttentionSpec attention(const std::string& path, const Settings& s) {
  AttentionSpec spec = attention_spec(path, s.common, s.attention_bias);
  spec.o.bias = false;
  if (s.qk_norm) {
    spec.qk_norm = {norm_spec(path + ".q_norm", s.common.head_dim, s.common.norm_eps),
                    norm_spec(path + ".k_norm", s.common.head_dim, s.common.norm_eps)};
  }
  return spec;
}

MoeSpec moe_spec(const std::string& path, const Settings& s) {
  MoeSpec moe;
  moe.router = {path + ".gate"};
  moe.correction_bias = {path + ".gate.e_score_correction_bias"};
  moe.routing = s.routing;
  moe.activation = s.activation;
  moe.experts = {.name = path + ".experts",
                 .layouts = expert_layouts({path + ".experts"}),
                 .experts = s.routing.experts,
                 .hidden = s.common.hidden,
                 .intermediate = s.expert_intermediate};
  if (s.shared_experts > 0) {
    moe.shared.emplace();
    moe.shared->mlp =
        dense_spec(path + ".shared_experts", s.common.hidden, s.expert_intermediate * s.shared_experts, s.activation);
  }
  return moe;
}

Result<ModelSpec> describe(const ModelConfig& config, const TensorLedger& ledger) {
  MORACLE_ASSIGN(const Settings s, read_settings(config));
  const CommonConfig& common = s.common;
  const std::string root = find_root(ledger);
  ModelSpec spec = common_spec(config, common, ledger, root);
  spec.info.experts = s.routing.experts;
  spec.info.experts_per_token = s.routing.top_k;
  spec.harmless.layers = root + "layers.";
  MORACLE_ASSIGN(const RopeSpec rope, parse_rope(config, {.rotary_factor = 0.5,
                                                          .head_dim = common.head_dim,
                                                          .max_positions = common.max_positions,
                                                          .layer_type = "full_attention"}));
  spec.info.max_positions = rope.max_positions;
  std::vector<std::string> mlp_kinds;
  for (std::int64_t l = 0; l < common.layers; ++l) {
    const std::string path = root + "layers." + std::to_string(l);
    AttentionSpec mixer = attention(path + ".self_attn", s);
    mixer.rope = add_rope(spec, rope);
    LayerSpec layer = layer_spec(path, common);
    layer.mixer = std::move(mixer);
    const bool dense = l < s.dense_layers;
    mlp_kinds.emplace_back(dense ? "dense" : "sparse");
    if (dense) {
      layer.feed_forward = dense_spec(path + ".mlp", common.hidden, s.dense_intermediate, s.activation);
    } else {
      layer.feed_forward = moe_spec(path + ".mlp", s);
    }
    spec.layers.push_back(std::move(layer));
  }
  config.warn_of_kinds("mlp_layer_types", mlp_kinds, "first_k_dense_replace says which layers are dense");
  return spec;
}

}  // namespace

const Family kGlm4Moe{kTypes, describe};

}  // namespace moracle
