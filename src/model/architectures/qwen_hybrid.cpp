#include "model/architectures/qwen_hybrid.h"

#include <algorithm>
#include <array>

namespace moracle {

namespace {

constexpr std::array<std::string_view, 2> kLayerKinds{"linear_attention", "full_attention"};

struct Settings {
  CommonConfig common;
  RoutingSpec routing;
  ActivationSpec activation;
  std::vector<std::string> kinds;  // of layers
  DeltaNetSpec delta;              // sizes alone
  std::int64_t expert_intermediate = 0;
  std::int64_t shared_intermediate = 0;
  std::int64_t dense_intermediate = 0;
  std::int64_t sparse_step = 1;
  std::vector<std::int64_t> dense_layers;
  bool attention_bias = false;
  bool attention_gate = true;
};

Result<DeltaNetSpec> delta_sizes(const ModelConfig& config) {
  const JsonReader& reader = config.reader();
  DeltaNetSpec d;
  MORACLE_ASSIGN(d.key_heads, reader.integer_or("linear_num_key_heads", 16, 1, kMaxHeads));
  MORACLE_ASSIGN(d.value_heads, reader.integer_or("linear_num_value_heads", 32, 1, kMaxHeads));
  MORACLE_ASSIGN(d.key_dim, reader.integer_or("linear_key_head_dim", 128, 1, kMaxHeadDim));
  MORACLE_ASSIGN(d.value_dim, reader.integer_or("linear_value_head_dim", 128, 1, kMaxHeadDim));
  MORACLE_ASSIGN(d.kernel, reader.integer_or("linear_conv_kernel_dim", 4, 1, kMaxConvolution));
  return d;
}

// "layer_types", else every full_attention_interval-th layer attends.
Result<std::vector<std::string>> layer_kinds(const ModelConfig& config, std::int64_t layers) {
  MORACLE_ASSIGN(std::vector<std::string> kinds, config.layer_kinds("layer_types", layers, kLayerKinds));
  constexpr const char* kInterval = "full_attention_interval";
  MORACLE_ASSIGN(const std::int64_t interval, config.reader().integer_or(kInterval, 4, 1, kMaxLayers));
  std::vector<std::string> regular;
  for (std::int64_t l = 0; l < layers; ++l) regular.emplace_back(kLayerKinds[(l + 1) % interval == 0 ? 1 : 0]);
  if (kinds.empty()) return regular;
  if (kinds != regular) config.warn_unread(kInterval, "layer_types says what each layer is, and otherwise");
  return kinds;
}

Result<Settings> read_settings(const ModelConfig& config, const QwenHybrid& family) {
  const JsonReader& reader = config.reader();
  Settings s;
  MORACLE_ASSIGN(s.common, config.common(family.common));
  MORACLE_ASSIGN(s.activation.fn, config.activation());
  MORACLE_ASSIGN(s.kinds, layer_kinds(config, s.common.layers));
  MORACLE_ASSIGN(s.delta, delta_sizes(config));
  const bool may_be_dense = family.dense_intermediate != 0;
  MORACLE_ASSIGN(s.routing.experts,
                 config.either("num_experts", "num_local_experts", family.experts, may_be_dense ? 0 : 1, kMaxExperts));
  if (s.routing.experts > 0) {
    MORACLE_ASSIGN(s.routing.top_k,
                   reader.integer_or("num_experts_per_tok", family.top_k, 1, std::min(kMaxTopK, s.routing.experts)));
  }
  if (family.reads_norm_topk_prob) {
    MORACLE_ASSIGN(const bool renormalize, reader.boolean_or("norm_topk_prob", true));
    s.routing.method = renormalize ? Routing::softmax_topk_renorm : Routing::softmax_topk;
  }
  MORACLE_ASSIGN(s.expert_intermediate, reader.integer_or("moe_intermediate_size", 512, 1, kMaxIntermediate));
  MORACLE_ASSIGN(s.shared_intermediate, reader.integer_or("shared_expert_intermediate_size", 512, 1, kMaxIntermediate));
  if (may_be_dense) {
    MORACLE_ASSIGN(s.dense_intermediate,
                   reader.integer_or("intermediate_size", family.dense_intermediate, 1, kMaxIntermediate));
    MORACLE_ASSIGN(s.sparse_step, reader.integer_or("decoder_sparse_step", 1, 1, kMaxLayers));
    MORACLE_ASSIGN(s.dense_layers, config.layer_list("mlp_only_layers", s.common.layers));
  }
  MORACLE_ASSIGN(s.attention_bias, reader.boolean_or("attention_bias", false));
  MORACLE_ASSIGN(s.attention_gate, reader.boolean_or("attn_output_gate", true));
  config.warn_of_window();
  return s;
}

// Over each head; like every norm of these models but the one inside the delta net.
NormSpec zero_centred(std::string path, const CommonConfig& common) {
  NormSpec norm = norm_spec(std::move(path), common.head_dim, common.norm_eps);
  norm.one_plus = true;
  return norm;
}

AttentionSpec attention(const std::string& path, const Settings& s, std::size_t rope) {
  AttentionSpec spec = attention_spec(path, s.common, s.attention_bias);
  spec.element_gate = s.attention_gate;
  if (s.attention_gate) spec.q.out *= 2;
  spec.qk_norm = {zero_centred(path + ".q_norm", s.common), zero_centred(path + ".k_norm", s.common)};
  spec.rope = rope;
  return spec;
}

DeltaNetSpec delta_net(const std::string& path, const Settings& s, bool grouped) {
  DeltaNetSpec spec = s.delta;
  const std::int64_t values = spec.value_heads * spec.value_dim;
  const std::int64_t channels = 2 * spec.key_heads * spec.key_dim + values;
  const auto projection = [&](const char* name, std::int64_t out, std::vector<std::string> fused) {
    return LinearSpec{.path = path + name, .fused = std::move(fused), .out = out, .in = s.common.hidden};
  };
  const std::string qkvz = ".in_proj_qkvz";
  const std::string ba = ".in_proj_ba";
  if (grouped) {
    spec.qkv = projection(qkvz.c_str(), channels + values, {});
    spec.b = projection(ba.c_str(), 2 * spec.value_heads, {});
  } else {
    spec.qkv = projection(".in_proj_qkv", channels, {path + qkvz});
    spec.z = projection(".in_proj_z", values, {path + qkvz});
    spec.b = projection(".in_proj_b", spec.value_heads, {path + ba});
    spec.a = projection(".in_proj_a", spec.value_heads, {path + ba});
  }
  spec.out = {.path = path + ".out_proj", .out = s.common.hidden, .in = values};
  spec.conv = path + ".conv1d";
  spec.a_log = path + ".A_log";
  spec.dt_bias = path + ".dt_bias";
  spec.norm = norm_spec(path + ".norm", spec.value_dim, s.common.norm_eps);
  return spec;
}

MoeSpec moe(const std::string& path, const Settings& s) {
  MoeSpec spec;
  spec.router = {path + ".gate"};
  spec.routing = s.routing;
  spec.activation = s.activation;
  spec.experts = {.name = path + ".experts",
                  .layouts = expert_layouts({path + ".experts"}),
                  .experts = s.routing.experts,
                  .hidden = s.common.hidden,
                  .intermediate = s.expert_intermediate};
  spec.shared =
      SharedExpertSpec{.mlp = dense_spec(path + ".shared_expert", s.common.hidden, s.shared_intermediate, s.activation),
                       .gate = {.path = path + ".shared_expert_gate", .out = 1, .in = s.common.hidden}};
  return spec;
}

bool is_dense(const Settings& s, std::int64_t layer) {
  return s.routing.experts == 0 || (layer + 1) % s.sparse_step != 0 ||
         std::find(s.dense_layers.begin(), s.dense_layers.end(), layer) != s.dense_layers.end();
}

}  // namespace

Result<ModelSpec> describe_qwen_hybrid(const ModelConfig& config, const TensorLedger& ledger,
                                       const QwenHybrid& family) {
  MORACLE_ASSIGN(const Settings s, read_settings(config, family));
  const CommonConfig& common = s.common;
  const std::string root = find_root(ledger);
  ModelSpec spec = common_spec(config, common, ledger, root);
  spec.final_norm.one_plus = true;
  spec.info.experts = s.routing.experts;
  spec.info.experts_per_token = s.routing.top_k;
  // The "mrope_section" of Qwen3.5 splits the frequencies by axis of an image; text has one position on all axes.
  MORACLE_ASSIGN(const RopeSpec rope, parse_rope(config, {.rotary_factor = 0.25,
                                                          .head_dim = common.head_dim,
                                                          .max_positions = common.max_positions,
                                                          .layer_type = "full_attention"}));
  spec.info.max_positions = rope.max_positions;
  std::vector<std::string> mlp_kinds;
  for (std::int64_t l = 0; l < common.layers; ++l) {
    const std::string path = root + "layers." + std::to_string(l);
    LayerSpec layer = layer_spec(path, common);
    layer.input_norm.one_plus = true;
    layer.post_norm.one_plus = true;
    if (s.kinds[static_cast<std::size_t>(l)] == "full_attention") {
      layer.mixer = attention(path + ".self_attn", s, add_rope(spec, rope));
    } else {
      layer.mixer = delta_net(path + ".linear_attn", s, family.grouped_projections);
    }
    mlp_kinds.emplace_back(is_dense(s, l) ? "dense" : "sparse");
    if (is_dense(s, l)) {
      layer.feed_forward = dense_spec(path + ".mlp", common.hidden, s.dense_intermediate, s.activation);
    } else {
      layer.feed_forward = moe(path + ".mlp", s);
    }
    spec.layers.push_back(std::move(layer));
  }
  config.warn_of_kinds("mlp_layer_types", mlp_kinds, "decoder_sparse_step and mlp_only_layers say which are dense");
  return spec;
}

}  // namespace moracle
