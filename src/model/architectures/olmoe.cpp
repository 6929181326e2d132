// OLMoE: plain norms, a norm over the whole of q and of k before heads are split, softmax routing in every layer.
#include <algorithm>
#include <array>

#include "model/architectures/architectures.h"
#include "model/spec/family.h"

namespace moracle {

namespace {

constexpr std::array<std::string_view, 1> kTypes{"olmoe"};

// transformers' OlmoeConfig.
constexpr CommonConfig kDefaults{.hidden = 2048,
                                 .layers = 16,
                                 .heads = 16,
                                 .kv_heads = 16,
                                 .head_dim = 0,
                                 .vocabulary = 50304,
                                 .max_positions = 4096,
                                 .norm_eps = 1e-5,
                                 .tied = false};

struct Settings {
  CommonConfig common;
  RoutingSpec routing;
  ActivationSpec activation;
  std::int64_t intermediate = 0;
  bool attention_bias = false;
  float clip = 0.0F;
};

Result<Settings> read_settings(const ModelConfig& config) {
  const JsonReader& reader = config.reader();
  Settings s;
  CommonConfig defaults = kDefaults;
  // Plain multi-head attention unless the config says otherwise.
  MORACLE_ASSIGN(defaults.kv_heads, reader.integer_or("num_attention_heads", defaults.heads, 1, kMaxHeads));
  MORACLE_ASSIGN(s.common, config.common(defaults));
  MORACLE_ASSIGN(s.activation.fn, config.activation());
  MORACLE_ASSIGN(s.routing.experts, config.either("num_local_experts", "num_experts", 64, 1, kMaxExperts));
  MORACLE_ASSIGN(s.routing.top_k,
                 reader.integer_or("num_experts_per_tok", 8, 1, std::min(kMaxTopK, s.routing.experts)));
  MORACLE_ASSIGN(const bool renormalize, reader.boolean_or("norm_topk_prob", false));
  s.routing.method = renormalize ? Routing::softmax_topk_renorm : Routing::softmax_topk;
  MORACLE_ASSIGN(s.intermediate, reader.integer_or("intermediate_size", 2048, 1, kMaxIntermediate));
  MORACLE_ASSIGN(s.attention_bias, reader.boolean_or("attention_bias", false));
  config.warn_of_window();
  if (reader.has("clip_qkv")) {
    MORACLE_ASSIGN(s.clip, config.positive("clip_qkv", 0.0, 1e6));
  }
  return s;
}

MoeSpec moe_spec(const std::string& path, const Settings& s) {
  MoeSpec moe;
  moe.router = {path + ".gate"};
  moe.routing = s.routing;
  moe.activation = s.activation;
  moe.experts = {.name = path + ".experts",
                 .layouts = expert_layouts({path + ".experts"}),
                 .experts = s.routing.experts,
                 .hidden = s.common.hidden,
                 .intermediate = s.intermediate};
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
  for (std::int64_t l = 0; l < common.layers; ++l) {
    const std::string path = root + "layers." + std::to_string(l);
    AttentionSpec attention = attention_spec(path + ".self_attn", common, s.attention_bias);
    attention.qk_norm = {norm_spec(path + ".self_attn.q_norm", attention.q.out, common.norm_eps),
                         norm_spec(path + ".self_attn.k_norm", attention.k.out, common.norm_eps)};
    attention.clip = s.clip;
    attention.rope = add_rope(spec, rope);
    LayerSpec layer = layer_spec(path, common);
    layer.mixer = std::move(attention);
    layer.feed_forward = moe_spec(path + ".mlp", s);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace

const Family kOlmoe{kTypes, describe};

}  // namespace moracle
