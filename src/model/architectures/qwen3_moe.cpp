// Qwen3-MoE: plain norms, a norm on every head of q and k before rope, softmax routing, no shared expert.
#include <algorithm>
#include <array>

#include "model/architectures/architectures.h"
#include "model/spec/family.h"

namespace moracle {

namespace {

constexpr std::array<std::string_view, 1> kTypes{"qwen3_moe"};

// transformers' Qwen3MoeConfig.
constexpr CommonConfig kDefaults{.hidden = 2048,
                                 .layers = 24,
                                 .heads = 32,
                                 .kv_heads = 4,
                                 .head_dim = 0,
                                 .vocabulary = 151936,
                                 .max_positions = 32768,
                                 .norm_eps = 1e-6,
                                 .tied = false};

constexpr std::string_view kSliding = "sliding_attention";
constexpr std::string_view kFull = "full_attention";

struct Settings {
  CommonConfig common;
  RoutingSpec routing;
  ActivationSpec activation;
  std::int64_t expert_intermediate = 0;
  std::int64_t dense_intermediate = 0;
  std::int64_t sparse_step = 1;
  std::vector<std::int64_t> dense_layers;
  std::int64_t window = 0;
  bool attention_bias = false;
};

Result<Settings> read_settings(const ModelConfig& config) {
  const JsonReader& reader = config.reader();
  Settings s;
  MORACLE_ASSIGN(s.common, config.common(kDefaults));
  MORACLE_ASSIGN(s.activation.fn, config.activation());
  MORACLE_ASSIGN(s.routing.experts, config.either("num_local_experts", "num_experts", 128, 0, kMaxExperts));
  if (s.routing.experts > 0) {
    MORACLE_ASSIGN(s.routing.top_k,
                   reader.integer_or("num_experts_per_tok", 8, 1, std::min(kMaxTopK, s.routing.experts)));
  }
  MORACLE_ASSIGN(const bool renormalize, reader.boolean_or("norm_topk_prob", false));
  s.routing.method = renormalize ? Routing::softmax_topk_renorm : Routing::softmax_topk;
  MORACLE_ASSIGN(s.expert_intermediate, reader.integer_or("moe_intermediate_size", 768, 1, kMaxIntermediate));
  MORACLE_ASSIGN(s.dense_intermediate, reader.integer_or("intermediate_size", 6144, 1, kMaxIntermediate));
  MORACLE_ASSIGN(s.sparse_step, reader.integer_or("decoder_sparse_step", 1, 1, kMaxLayers));
  MORACLE_ASSIGN(s.dense_layers, config.layer_list("mlp_only_layers", s.common.layers));
  MORACLE_ASSIGN(const bool sliding, reader.boolean_or("use_sliding_window", false));
  if (sliding) {
    MORACLE_ASSIGN(s.window, reader.integer_or("sliding_window", 4096, 1, kMaxPositions));
  }
  const std::vector<std::string> kinds(static_cast<std::size_t>(s.common.layers),
                                       std::string(sliding ? kSliding : kFull));
  config.warn_of_kinds("layer_types", kinds, "use_sliding_window gives every layer the same window, or none");
  if (sliding) config.warn_unread("max_window_layers", "use_sliding_window gives every layer the same window");
  MORACLE_ASSIGN(s.attention_bias, reader.boolean_or("attention_bias", false));
  return s;
}

bool is_dense(const Settings& s, std::int64_t layer) {
  return s.routing.experts == 0 || (layer + 1) % s.sparse_step != 0 ||
         std::find(s.dense_layers.begin(), s.dense_layers.end(), layer) != s.dense_layers.end();
}

MoeSpec moe_spec(const std::string& layer, const Settings& s) {
  const std::string experts = layer + ".mlp.experts";
  MoeSpec moe;
  moe.router = {layer + ".mlp.gate"};
  moe.routing = s.routing;
  moe.activation = s.activation;
  moe.experts = {.name = experts,
                 .layouts = expert_layouts({experts}),
                 .experts = s.routing.experts,
                 .hidden = s.common.hidden,
                 .intermediate = s.expert_intermediate};
  return moe;
}

Result<ModelSpec> describe(const ModelConfig& config, const TensorLedger& ledger) {
  MORACLE_ASSIGN(const Settings s, read_settings(config));
  const CommonConfig& common = s.common;
  const std::string root = find_root(ledger);
  ModelSpec spec = common_spec(config, common, ledger, root);
  spec.info.experts = s.routing.experts;
  spec.info.experts_per_token = s.routing.top_k;
  MORACLE_ASSIGN(const RopeSpec rope, parse_rope(config, {.head_dim = common.head_dim,
                                                          .max_positions = common.max_positions,
                                                          .layer_type = "full_attention"}));
  spec.info.max_positions = rope.max_positions;
  std::vector<std::string> mlp_kinds;
  for (std::int64_t l = 0; l < common.layers; ++l) {
    const std::string path = root + "layers." + std::to_string(l);
    AttentionSpec attention = attention_spec(path + ".self_attn", common, s.attention_bias);
    attention.qk_norm = {norm_spec(path + ".self_attn.q_norm", common.head_dim, common.norm_eps),
                         norm_spec(path + ".self_attn.k_norm", common.head_dim, common.norm_eps)};
    attention.window = s.window;
    attention.rope = add_rope(spec, rope);
    LayerSpec layer = layer_spec(path, common);
    layer.mixer = std::move(attention);
    mlp_kinds.emplace_back(is_dense(s, l) ? "dense" : "sparse");
    if (is_dense(s, l)) {
      layer.feed_forward = dense_spec(path + ".mlp", common.hidden, s.dense_intermediate, s.activation);
    } else {
      layer.feed_forward = moe_spec(path, s);
    }
    spec.layers.push_back(std::move(layer));
  }
  config.warn_of_kinds("mlp_layer_types", mlp_kinds, "decoder_sparse_step and mlp_only_layers say which are dense");
  return spec;
}

}  // namespace

const Family kQwen3Moe{kTypes, describe};

}  // namespace moracle
