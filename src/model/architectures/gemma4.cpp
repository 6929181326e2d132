// Gemma 4, the text part of its mixtures: norms before and behind both parts, norms on heads of q, k and v, heads of
// their own number and size in layers without a window, whose values are their keys; a dense part and experts side by
// side, each with its norms; a scaled embedding, scaled layers, capped logits.
#include <cmath>
#include <string>

#include "format/rules/spelling.h"
#include "model/architectures/architectures.h"
#include "model/spec/parts.h"

namespace moracle {

namespace {

// Layers without a window have "global" sizes, which newer files keep as those of single layers.
Result<> read_sizes(const ModelConfig& config, ModelSettings& settings) {
  const JsonReader& reader = config.reader();
  if (!reader.has("rope_parameters")) {
    return config.error("config.missing", "rope_parameters", "an entry for each kind of layers", "none");
  }
  MORACLE_ASSIGN(const bool alike, reader.boolean_or("attention_k_eq_v", false));
  MORACLE_ASSIGN(const std::int64_t head_dim, reader.integer_or("global_head_dim", 512, 2, kMaxHeadDim));
  MORACLE_ASSIGN(const std::int64_t kv_heads,
                 reader.integer_or("num_global_key_value_heads", settings.common.kv_heads, 1, kMaxHeads));
  const Json single = reader.has("per_layer_config") ? reader.json().at("per_layer_config") : Json::object();
  for (std::size_t l = 0; l < settings.sizes.size(); ++l) {
    CommonConfig& sizes = settings.sizes[l];
    if (settings.windows[l] == 0) {
      sizes.head_dim = head_dim;
      if (alike) sizes.kv_heads = kv_heads;
    }
    const auto entry = single.is_object() ? single.find(std::to_string(l)) : single.end();
    if (entry != single.end() && entry->is_object()) {
      const JsonReader own(*entry, reader.file(), reader.pointer("per_layer_config") + "/" + std::to_string(l));
      MORACLE_ASSIGN(sizes.head_dim, own.integer_or("head_dim", sizes.head_dim, 2, kMaxHeadDim));
      MORACLE_ASSIGN(sizes.kv_heads, own.integer_or("num_key_value_heads", sizes.kv_heads, 1, kMaxHeads));
    }
    if (sizes.heads % sizes.kv_heads == 0 && sizes.head_dim % 2 == 0) continue;
    return config.error("config.range", "num_global_key_value_heads",
                        "a divisor of " + std::to_string(sizes.heads) + " heads, of even size",
                        std::to_string(sizes.kv_heads) + " of size " + std::to_string(sizes.head_dim));
  }
  return Ok{};
}

// A dense part in the place of shared experts, and what both parts have of their own.
void finish_mixture(const ModelSettings& settings, const std::string& layer, MoeSpec& moe) {
  const CommonConfig& common = settings.common;
  moe.router = {layer + ".router.proj"};
  moe.routing.scaled_experts = true;
  moe.experts.name = layer + ".experts";
  moe.experts.layouts = expert_layouts({moe.experts.name});
  moe.shared.emplace();
  moe.shared->mlp = dense_spec(layer + ".mlp", common.hidden, settings.dense_intermediate, settings.activation);
  const auto norm = [&](const char* name) { return norm_spec(layer + name, common.hidden, common.norm_eps); };
  moe.apart = ApartSpec{.router = layer + ".router.scale",
                        .expert_scale = layer + ".router.per_expert_scale",
                        .experts = norm(".pre_feedforward_layernorm_2"),
                        .routed_behind = norm(".post_feedforward_layernorm_2"),
                        .shared_behind = norm(".post_feedforward_layernorm_1")};
}

Result<> finish(const ModelConfig& config, const TensorClaims& /*claims*/, const ModelSettings& settings,
                ModelSpec& spec) {
  const JsonReader& reader = config.reader();
  MORACLE_ASSIGN(const std::string seen, reader.string_or("use_bidirectional_attention", "vision"));
  if (seen != "vision") {
    return config.error("config.unsupported", "use_bidirectional_attention", "vision, or null", seen);
  }
  MORACLE_ASSIGN(const bool alike, reader.boolean_or("attention_k_eq_v", false));
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    LayerSpec& layer = spec.layers[l];
    layer.scalar = layer.path + ".layer_scalar";
    auto& attention = std::get<AttentionSpec>(layer.mixer);
    attention.shape.scale = 1.0F;
    attention.shape.value_eps = static_cast<float>(settings.common.norm_eps);
    if (alike && settings.windows[l] == 0) attention.v.path.clear();
    finish_mixture(settings, layer.path, std::get<MoeSpec>(layer.feed_forward));
  }
  spec.multipliers.embedding = std::sqrt(static_cast<float>(settings.common.hidden));
  if (reader.has("final_logit_softcapping")) {
    MORACLE_ASSIGN(spec.multipliers.logit_cap, config.positive("final_logit_softcapping", 30.0, 1e6));
  }
  return Ok{};
}

}  // namespace

// transformers' Gemma4TextConfig.
constexpr Architecture kGemma4{
    .model_types = {"gemma4_text", "gemma4"},
    .common = {.hidden = 2304,
               .layers = 30,
               .heads = 8,
               .kv_heads = 4,
               .head_dim = 256,
               .vocabulary = 262144,
               .max_positions = 131072,
               .norm_eps = 1e-6,
               .tied = true},
    .norms = {.mixer = ".post_attention_layernorm",
              .post = ".pre_feedforward_layernorm",
              .feed_forward = ".post_feedforward_layernorm"},
    .attention =
        {.qk_norm = QkNorm::heads, .windows = Windows::by_kind, .window = 512, .pattern = {{}, 6}, .sizes = read_sizes},
    .activation = ActivationFn::gelu_tanh,
    .router = {.experts = {{"num_experts"}, 128}, .top_k = {{"top_k_experts"}, 8}, .renormalize = {{}, true}},
    .moe = {.intermediate = {{"moe_intermediate_size"}, 704}},
    .dense = {.intermediate = {{"intermediate_size"}, 9216},
              .read = [](const ModelConfig& /*config*/, std::int64_t layers) -> Result<std::vector<bool>> {
                return std::vector<bool>(static_cast<std::size_t>(layers), false);
              }},
    .demands = {{{"enable_moe_block", true},
                 {"hidden_activation", "gelu_pytorch_tanh"},
                 {"hidden_size_per_layer_input", 0},
                 {"num_kv_shared_layers", 0},
                 {"use_double_wide_mlp", false}}},
    .hook = finish};

}  // namespace moracle
