// MiMo-V2-Flash: values smaller than keys and scaled, windows in most layers with sinks, key heads and a rope of their
// own, sigmoid routing with a bias.
#include <array>
#include <string>
#include <vector>

#include "model/architectures/architectures.h"
#include "model/spec/parts.h"

namespace moracle {

namespace {

constexpr std::string_view kSliding = "sliding_attention";
constexpr std::array<std::string_view, 2> kKinds{"full_attention", kSliding};
constexpr std::array<std::string_view, 2> kMlpKinds{"sparse", "dense"};

// By layer_types, by the publisher's hybrid_layer_pattern, or all but the first and every sixth.
Result<std::vector<bool>> windowed_layers(const ModelConfig& config, std::int64_t layers) {
  std::vector<bool> windowed;
  MORACLE_ASSIGN(const std::vector<std::string> kinds, config.layer_kinds("layer_types", layers, kKinds));
  for (const std::string& kind : kinds) windowed.push_back(kind == kSliding);
  if (!windowed.empty()) return windowed;
  MORACLE_ASSIGN(windowed, config.layer_flags("hybrid_layer_pattern", layers));
  if (!windowed.empty()) return windowed;
  for (std::int64_t l = 0; l < layers; ++l) windowed.push_back(l != 0 && (l + 1) % 6 != 0);
  return windowed;
}

// By mlp_layer_types, by the publisher's moe_layer_freq, or the first.
Result<std::vector<bool>> dense_layers(const ModelConfig& config, std::int64_t layers) {
  std::vector<bool> dense;
  MORACLE_ASSIGN(const std::vector<std::string> kinds, config.layer_kinds("mlp_layer_types", layers, kMlpKinds));
  for (const std::string& kind : kinds) dense.push_back(kind == "dense");
  if (!dense.empty()) return dense;
  MORACLE_ASSIGN(dense, config.layer_flags("moe_layer_freq", layers));
  dense.flip();
  if (!dense.empty()) return dense;
  dense.assign(static_cast<std::size_t>(layers), false);
  dense.front() = true;
  return dense;
}

// Layers with a window have heads of their own number and size, which the publisher's keys tell.
Result<> read_sizes(const ModelConfig& config, ModelSettings& settings) {
  const JsonReader& reader = config.reader();
  const CommonConfig& common = settings.common;
  MORACLE_ASSIGN(const std::vector<bool> windowed, windowed_layers(config, common.layers));
  MORACLE_ASSIGN(const std::int64_t window,
                 config.either("sliding_window_size", "sliding_window", 128, 1, kMaxPositions));
  CommonConfig own = common;
  MORACLE_ASSIGN(own.heads, reader.integer_or("swa_num_attention_heads", common.heads, 1, kMaxHeads));
  MORACLE_ASSIGN(own.kv_heads, reader.integer_or("swa_num_key_value_heads", 2 * common.kv_heads, 1, kMaxHeads));
  MORACLE_ASSIGN(own.head_dim, reader.integer_or("swa_head_dim", common.head_dim, 2, kMaxHeadDim));
  if (own.heads % own.kv_heads != 0 || own.head_dim % 2 != 0) {
    return config.error("config.range", "swa_num_key_value_heads",
                        "a divisor of " + std::to_string(own.heads) + " heads, of even size",
                        std::to_string(own.kv_heads) + " of size " + std::to_string(own.head_dim));
  }
  for (std::size_t l = 0; l < windowed.size(); ++l) {
    if (!windowed[l]) continue;
    settings.kinds[l] = kSliding;
    settings.windows[l] = window;
    settings.sizes[l] = own;
  }
  return Ok{};
}

// What layers of one kind share.
struct ValueConstants {
  std::int64_t size = 0;
  bool sinks = false;
};

Result<ValueConstants> read_values(const ModelConfig& config, bool windowed) {
  const JsonReader& reader = config.reader();
  ValueConstants values;
  MORACLE_ASSIGN(values.size, reader.integer_or("v_head_dim", 128, 1, kMaxHeadDim));
  if (windowed) {
    MORACLE_ASSIGN(values.size, reader.integer_or("swa_v_head_dim", values.size, 1, kMaxHeadDim));
  }
  const char* const key = windowed ? "add_swa_attention_sink_bias" : "add_full_attention_sink_bias";
  MORACLE_ASSIGN(values.sinks, reader.boolean_or(key, windowed));
  return values;
}

// The publisher keeps theta of layers with a window under a key of its own.
Result<std::optional<RopeSpec>> window_rope(const ModelConfig& config, const ModelSettings& settings,
                                            const AttentionSpec& attention) {
  constexpr const char* kTheta = "swa_rope_theta";
  const JsonReader& reader = config.reader();
  if (reader.has("rope_parameters") || !reader.has(kTheta)) return std::optional<RopeSpec>{};
  Json parameters{{"rope_theta", reader.json().at(kTheta)}};
  if (reader.has("partial_rotary_factor")) {
    parameters["partial_rotary_factor"] = reader.json().at("partial_rotary_factor");
  }
  MORACLE_ASSIGN(RopeSpec rope, read_rope(JsonReader(parameters, reader.file(), ""),
                                          {.rotary_factor = 0.334,
                                           .head_dim = attention.shape.head_dim,
                                           .max_positions = settings.common.max_positions}));
  return std::optional<RopeSpec>(std::move(rope));
}

Result<> finish(const ModelConfig& config, const TensorClaims& claims, const ModelSettings& settings, ModelSpec& spec) {
  constexpr const char* kScale = "attention_value_scale";
  const bool unscaled = config.reader().json().contains(kScale) && !config.reader().has(kScale);
  MORACLE_ASSIGN(const float scale, config.positive(kScale, unscaled ? 1.0 : 0.707, 1e6));
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    auto& attention = std::get<AttentionSpec>(spec.layers[l].mixer);
    const bool windowed = settings.windows[l] > 0;
    MORACLE_ASSIGN(const ValueConstants values, read_values(config, windowed));
    if (values.size != attention.shape.head_dim) attention.shape.value_dim = values.size;
    attention.shape.value_scale = scale;
    attention.v.out = attention.shape.value_width();
    attention.o.in = attention.shape.out_width();
    if (values.sinks) {
      const std::string path = spec.layers[l].path + ".self_attn";
      const std::string other = path + ".sinks";
      attention.sinks = claims.find(other) != nullptr ? other : path + ".attention_sink_bias";
    }
    if (!windowed) continue;
    MORACLE_ASSIGN(const std::optional<RopeSpec> rope, window_rope(config, settings, attention));
    if (rope) attention.rope = add_rope(spec, *rope);
  }
  return Ok{};
}

}  // namespace

// transformers' MiMoV2FlashConfig. A window counts the position of its query, as in the publisher's code.
constexpr Architecture kMimoV2Flash{
    .model_types = {"mimo_v2_flash"},
    .common = {.hidden = 4096,
               .layers = 48,
               .heads = 64,
               .kv_heads = 4,
               .head_dim = 192,
               .vocabulary = 152576,
               .max_positions = 131072,
               .norm_eps = 1e-5},
    .norm_eps = "layernorm_epsilon",
    .attention = {.output_bias = false, .windows = Windows::by_hook, .sizes = read_sizes},
    .rope = {.theta = 5e6, .rotary_factor = 0.334},
    .router = {.scores = Scores::sigmoid,
               .experts = {{"n_routed_experts", "num_local_experts"}, 256},
               .top_k = {{"num_experts_per_tok"}, 8},
               .grouped = true,
               .factor_key = "routed_scaling_factor"},
    .moe = {.correction = {".gate.e_score_correction_bias"}, .intermediate = {{"moe_intermediate_size"}, 2048}},
    .dense = {.intermediate = {{"intermediate_size"}, 16384}, .read = dense_layers},
    .demands = {{{"scoring_func", "sigmoid"}, {"topk_method", "noaux_tc"}, {"n_shared_experts", 0}}},
    .hook = finish};

}  // namespace moracle
