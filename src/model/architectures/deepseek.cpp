// DeepSeek-V3 and V2, and what is built like them: plain norms, latent attention, the first layers dense, shared
// experts; V3 routes by sigmoid scores in groups, V2 by softmax.
#include <algorithm>
#include <array>
#include <cmath>

#include "model/architectures/architectures.h"
#include "model/spec/family.h"

namespace moracle {

namespace {

constexpr std::array<std::string_view, 2> kV3Types{"deepseek_v3", "kimi_k2"};
constexpr std::array<std::string_view, 1> kV2Types{"deepseek_v2"};

// The norms inside attention do not follow rms_norm_eps: they have the norm class's own default.
constexpr double kLatentNormEps = 1e-6;

// What the two config classes of transformers differ in.
struct Generation {
  CommonConfig common;
  std::int64_t dense_intermediate;
  std::int64_t expert_intermediate;
  std::int64_t dense_layers;
  std::int64_t shared_experts;
  Result<RoutingSpec> (*routing)(const ModelConfig& config);
};

Result<RoutingSpec> v3_routing(const ModelConfig& config) {
  return sigmoid_bias_routing(config, {.experts = 256, .top_k = 8, .factor = 2.5F, .groups = 8, .top_groups = 4});
}

Result<RoutingSpec> v2_routing(const ModelConfig& config) {
  const JsonReader& reader = config.reader();
  MORACLE_TRY(config.only("scoring_func", "softmax"));
  // Published implementations disagree on whether the factor still applies then; no published model asks for it.
  MORACLE_TRY(config.only("norm_topk_prob", false));
  MORACLE_ASSIGN(const std::string method, reader.string_or("topk_method", "greedy"));
  if (method != "greedy" && method != "group_limited_greedy") {
    return config.error("config.unsupported", "topk_method", "greedy or group_limited_greedy", method);
  }
  RoutingSpec routing{.method = Routing::softmax_topk, .renormalize = false};
  MORACLE_ASSIGN(routing.experts, config.either("num_experts", "n_routed_experts", 64, 1, kMaxExperts));
  MORACLE_ASSIGN(routing.top_k, reader.integer("num_experts_per_tok", 1, std::min(kMaxTopK, routing.experts)));
  MORACLE_ASSIGN(routing.factor, config.positive("routed_scaling_factor", 1.0, 1e6));
  if (method == "greedy") return routing;
  routing.method = Routing::grouped_softmax;
  MORACLE_ASSIGN(routing.groups, reader.integer("n_group", 1, routing.experts));
  MORACLE_ASSIGN(routing.top_groups, reader.integer("topk_group", 1, routing.groups));
  return routing;
}

constexpr Generation kV3{
    .common = {.hidden = 7168, .layers = 61, .heads = 128, .head_dim = 64, .vocabulary = 129280, .max_positions = 4096},
    .dense_intermediate = 18432,
    .expert_intermediate = 2048,
    .dense_layers = 3,
    .shared_experts = 1,
    .routing = v3_routing};
constexpr Generation kV2{
    .common = {.hidden = 4096, .layers = 32, .heads = 32, .head_dim = 64, .vocabulary = 102400, .max_positions = 2048},
    .dense_intermediate = 11008,
    .expert_intermediate = 1407,
    .dense_layers = 0,
    .shared_experts = 2,
    .routing = v2_routing};

struct Settings {
  CommonConfig common;
  RoutingSpec routing;
  ActivationSpec activation;
  std::int64_t dense_intermediate = 0;
  std::int64_t expert_intermediate = 0;
  std::int64_t dense_layers = 0;
  std::int64_t sparse_step = 1;
  std::int64_t shared_experts = 0;
  LatentAttentionSpec attention;  // its sizes
  std::int64_t q_rank = 0;        // 0: queries are projected at once
  bool attention_bias = false;
};

Result<> read_attention(const ModelConfig& config, Settings& s) {
  const JsonReader& reader = config.reader();
  LatentAttentionSpec& a = s.attention;
  a.heads = s.common.heads;
  MORACLE_ASSIGN(a.nope, reader.integer_or("qk_nope_head_dim", 128, 1, kMaxHeadDim));
  MORACLE_ASSIGN(a.rotary, reader.integer_or("qk_rope_head_dim", 64, 2, kMaxHeadDim));
  MORACLE_ASSIGN(a.value, reader.integer_or("v_head_dim", 128, 1, kMaxHeadDim));
  MORACLE_ASSIGN(a.latent, reader.integer_or("kv_lora_rank", 512, 1, kMaxHidden));
  MORACLE_ASSIGN(a.interleaved, reader.boolean_or("rope_interleave", true));
  // A null rank is a value of its own, not an absent one.
  const bool direct = reader.json().contains("q_lora_rank") && !reader.has("q_lora_rank");
  if (!direct) {
    MORACLE_ASSIGN(s.q_rank, reader.integer_or("q_lora_rank", 1536, 1, kMaxHidden));
  }
  MORACLE_ASSIGN(s.attention_bias, reader.boolean_or("attention_bias", false));
  return Ok{};
}

Result<Settings> read_settings(const ModelConfig& config, const Generation& generation) {
  const JsonReader& reader = config.reader();
  Settings s;
  CommonConfig defaults = generation.common;
  MORACLE_ASSIGN(defaults.kv_heads, reader.integer_or("num_attention_heads", defaults.heads, 1, kMaxHeads));
  MORACLE_ASSIGN(s.common, config.common(defaults));
  if (s.common.kv_heads != s.common.heads) {
    return config.error("config.unsupported", "num_key_value_heads",
                        "num_attention_heads = " + std::to_string(s.common.heads) + ": the latent serves every head",
                        std::to_string(s.common.kv_heads));
  }
  MORACLE_ASSIGN(s.activation.fn, config.activation());
  MORACLE_TRY(config.only("mlp_bias", false));
  config.warn_of_window();
  MORACLE_ASSIGN(s.routing, generation.routing(config));
  MORACLE_ASSIGN(s.dense_intermediate,
                 reader.integer_or("intermediate_size", generation.dense_intermediate, 1, kMaxIntermediate));
  MORACLE_ASSIGN(s.expert_intermediate,
                 reader.integer_or("moe_intermediate_size", generation.expert_intermediate, 1, kMaxIntermediate));
  MORACLE_ASSIGN(s.dense_layers, reader.integer_or("first_k_dense_replace", generation.dense_layers, 0, kMaxLayers));
  MORACLE_ASSIGN(s.sparse_step, reader.integer_or("moe_layer_freq", 1, 1, kMaxLayers));
  MORACLE_ASSIGN(s.shared_experts, reader.integer_or("n_shared_experts", generation.shared_experts, 0, kMaxExperts));
  MORACLE_TRY(read_attention(config, s));
  return s;
}

LatentAttentionSpec attention_of(const std::string& path, const Settings& s) {
  LatentAttentionSpec a = s.attention;
  const std::int64_t hidden = s.common.hidden;
  const std::int64_t q_size = a.heads * (a.nope + a.rotary);
  a.kv_a = {.path = path + ".kv_a_proj_with_mqa", .out = a.latent + a.rotary, .in = hidden, .bias = s.attention_bias};
  if (s.q_rank == 0) {
    a.q = {.path = path + ".q_proj", .out = q_size, .in = hidden};
  } else {
    // One module in engines that fuse what reads the same input.
    const std::vector<std::string> fused{path + ".fused_qkv_a_proj"};
    a.q_a = {.path = path + ".q_a_proj", .fused = fused, .out = s.q_rank, .in = hidden, .bias = s.attention_bias};
    a.q_norm = norm_spec(path + ".q_a_layernorm", s.q_rank, kLatentNormEps);
    a.q = {.path = path + ".q_b_proj", .out = q_size, .in = s.q_rank};
    a.kv_a.fused = fused;
  }
  a.kv_norm = norm_spec(path + ".kv_a_layernorm", a.latent, kLatentNormEps);
  a.kv_b = {.path = path + ".kv_b_proj", .out = a.heads * (a.nope + a.value), .in = a.latent};
  a.o = {.path = path + ".o_proj", .out = hidden, .in = a.heads * a.value, .bias = s.attention_bias};
  return a;
}

MoeSpec moe_spec(const std::string& path, const Settings& s) {
  MoeSpec moe;
  moe.router = {path + ".gate"};
  const bool sigmoid = s.routing.method != Routing::softmax_topk && s.routing.method != Routing::grouped_softmax;
  if (sigmoid) moe.correction_bias = {path + ".gate.e_score_correction_bias"};
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

Result<ModelSpec> describe(const ModelConfig& config, const TensorLedger& ledger, const Generation& generation) {
  MORACLE_ASSIGN(Settings s, read_settings(config, generation));
  const CommonConfig& common = s.common;
  const std::string root = find_root(ledger);
  ModelSpec spec = common_spec(config, common, ledger, root);
  spec.info.experts = s.routing.experts;
  spec.info.experts_per_token = s.routing.top_k;
  spec.harmless.layers = root + "layers.";
  MORACLE_ASSIGN(const RopeSpec rope, parse_rope(config, {.head_dim = s.attention.rotary,
                                                          .max_positions = common.max_positions,
                                                          .layer_type = "full_attention"}));
  if (rope.rotary_dims != s.attention.rotary) {
    return config.error("config.unsupported", "partial_rotary_factor", "1", "another number");
  }
  spec.info.max_positions = rope.max_positions;
  s.attention.scale = rope.score_scale / std::sqrt(static_cast<float>(s.attention.nope + s.attention.rotary));
  s.attention.rope = add_rope(spec, rope);
  std::vector<std::string> mlp_kinds;
  for (std::int64_t l = 0; l < common.layers; ++l) {
    const std::string path = root + "layers." + std::to_string(l);
    LayerSpec layer = layer_spec(path, common);
    layer.mixer = attention_of(path + ".self_attn", s);
    const bool dense = l < s.dense_layers || l % s.sparse_step != 0;
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

Result<ModelSpec> describe_v3(const ModelConfig& config, const TensorLedger& ledger) {
  return describe(config, ledger, kV3);
}

Result<ModelSpec> describe_v2(const ModelConfig& config, const TensorLedger& ledger) {
  return describe(config, ledger, kV2);
}

}  // namespace

const Family kDeepseekV3{kV3Types, describe_v3};
const Family kDeepseekV2{kV2Types, describe_v2};

}  // namespace moracle
