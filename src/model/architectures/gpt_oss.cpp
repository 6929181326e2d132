// gpt-oss: plain norms, attention sinks, every other layer with a sliding window, yarn, biases everywhere, softmax over
// the chosen experts only, a clamped activation.
#include <algorithm>
#include <array>

#include "model/architectures/architectures.h"
#include "model/spec/family.h"

namespace moracle {

namespace {

constexpr std::array<std::string_view, 1> kTypes{"gpt_oss"};
constexpr std::string_view kSliding = "sliding_attention";
constexpr std::array<std::string_view, 2> kLayerKinds{kSliding, "full_attention"};

// transformers' GptOssConfig.
constexpr CommonConfig kDefaults{.hidden = 2880,
                                 .layers = 36,
                                 .heads = 64,
                                 .kv_heads = 8,
                                 .head_dim = 64,
                                 .vocabulary = 201088,
                                 .max_positions = 131072,
                                 .norm_eps = 1e-5,
                                 .tied = false};
constexpr YarnSpec kYarn{.factor = 32.0, .original_positions = 4096.0, .truncate = false};

struct Settings {
  CommonConfig common;
  RoutingSpec routing{.method = Routing::topk_softmax};
  ActivationSpec activation{.fn = ActivationFn::swigluoai};
  std::int64_t intermediate = 0;
  std::vector<std::string> kinds;  // of layers
  std::int64_t window = 0;
  bool attention_bias = true;
};

Result<Settings> read_settings(const ModelConfig& config) {
  const JsonReader& reader = config.reader();
  Settings s;
  MORACLE_ASSIGN(s.common, config.common(kDefaults));
  MORACLE_TRY(config.only("hidden_act", "silu"));  // what the clamped form is built on
  MORACLE_ASSIGN(s.activation.alpha, config.positive("swiglu_alpha", 1.702, 1e6));
  MORACLE_ASSIGN(s.activation.limit, config.positive("swiglu_limit", 7.0, 1e6));
  MORACLE_ASSIGN(s.routing.experts, config.either("num_experts", "num_local_experts", 128, 1, kMaxExperts));
  MORACLE_ASSIGN(s.routing.top_k, config.either("num_experts_per_tok", "experts_per_token", 4, 1,
                                                std::min(kMaxTopK, s.routing.experts)));
  MORACLE_ASSIGN(s.intermediate, reader.integer_or("intermediate_size", 2880, 1, kMaxIntermediate));
  MORACLE_ASSIGN(s.kinds, config.layer_kinds("layer_types", s.common.layers, kLayerKinds));
  for (std::int64_t l = static_cast<std::int64_t>(s.kinds.size()); l < s.common.layers; ++l) {
    s.kinds.emplace_back(kLayerKinds[static_cast<std::size_t>(l % 2)]);
  }
  MORACLE_ASSIGN(s.window, reader.integer_or("sliding_window", 128, 1, kMaxPositions));
  MORACLE_ASSIGN(s.attention_bias, reader.boolean_or("attention_bias", true));
  return s;
}

MoeSpec moe_spec(const std::string& path, const Settings& s) {
  MoeSpec moe;
  moe.router = {path + ".router"};
  moe.routing = s.routing;
  moe.activation = s.activation;
  moe.experts = {.name = path + ".experts",
                 // Published stacked, rows of gate and up alternating: as blocks of codes, or transposed.
                 .layouts = expert_layouts({path + ".experts"}, true, true),
                 .experts = s.routing.experts,
                 .hidden = s.common.hidden,
                 .intermediate = s.intermediate};
  moe.bias = true;
  return moe;
}

Result<ModelSpec> describe(const ModelConfig& config, const TensorLedger& ledger) {
  MORACLE_ASSIGN(const Settings s, read_settings(config));
  const CommonConfig& common = s.common;
  const std::string root = find_root(ledger);
  ModelSpec spec = common_spec(config, common, ledger, root);
  spec.info.experts = s.routing.experts;
  spec.info.experts_per_token = s.routing.top_k;
  for (std::int64_t l = 0; l < common.layers; ++l) {
    const std::string path = root + "layers." + std::to_string(l);
    const std::string& kind = s.kinds[static_cast<std::size_t>(l)];
    MORACLE_ASSIGN(const RopeSpec rope, parse_rope(config, {.theta = 150000.0,
                                                            .head_dim = common.head_dim,
                                                            .max_positions = common.max_positions,
                                                            .layer_type = kind,
                                                            .yarn = kYarn}));
    spec.info.max_positions = std::max(spec.info.max_positions, rope.max_positions);
    AttentionSpec attention = attention_spec(path + ".self_attn", common, s.attention_bias);
    attention.window = kind == kSliding ? s.window : 0;
    attention.rope = add_rope(spec, rope);
    attention.sinks = path + ".self_attn.sinks";
    LayerSpec layer = layer_spec(path, common);
    layer.mixer = std::move(attention);
    layer.feed_forward = moe_spec(path + ".mlp", s);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace

const Family kGptOss{kTypes, describe};

}  // namespace moracle
