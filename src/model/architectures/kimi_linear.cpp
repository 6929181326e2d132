// Kimi-Linear: Kimi's delta attention, and in every fourth layer latent attention without positions; the mixtures of
// DeepSeek-V3 under the publisher's own names.
#include <algorithm>
#include <string>
#include <vector>

#include "model/architectures/kda_hybrid.h"
#include "model/spec/parts.h"

namespace moracle {

namespace {

constexpr const char* kLinear = "linear_attn_config";

// The publisher's sizes stand in an object of their own, transformers' beside the others.
Result<KdaSizes> read_sizes(const ModelConfig& config) {
  const JsonReader& reader = config.reader();
  KdaSizes sizes{.low_rank = true};
  if (reader.has(kLinear)) {
    const Json& object = reader.json().at(kLinear);
    if (!object.is_object()) return config.error("config.type", kLinear, "an object", object.type_name());
    const JsonReader inner(object, reader.file(), reader.pointer(kLinear));
    MORACLE_ASSIGN(sizes.heads, inner.integer_or("num_heads", 32, 1, kMaxHeads));
    MORACLE_ASSIGN(sizes.head_dim, inner.integer_or("head_dim", 128, 1, kMaxHeadDim));
    MORACLE_ASSIGN(sizes.kernel, inner.integer_or("short_conv_kernel_size", 4, 1, kMaxConvolution));
    return sizes;
  }
  MORACLE_ASSIGN(sizes.heads, reader.integer_or("linear_num_heads", 32, 1, kMaxHeads));
  MORACLE_ASSIGN(sizes.head_dim, reader.integer_or("linear_head_dim", 128, 1, kMaxHeadDim));
  MORACLE_ASSIGN(sizes.kernel, reader.integer_or("linear_conv_kernel_dim", 4, 1, kMaxConvolution));
  return sizes;
}

// By layer_types, by the publisher's lists, which count from 1, or all but every fourth layer behind the first.
Result<std::vector<bool>> delta_layers(const ModelConfig& config, std::int64_t layers) {
  MORACLE_ASSIGN(std::vector<bool> delta, listed_kda_layers(config, layers));
  if (!delta.empty()) return delta;
  const JsonReader& reader = config.reader();
  const Json* const lists = reader.has(kLinear) ? &reader.json().at(kLinear) : nullptr;
  if (lists == nullptr || !lists->contains("kda_layers") || !lists->contains("full_attn_layers")) {
    for (std::int64_t l = 0; l < layers; ++l) delta.push_back(l == 0 || l % 4 != 0);
    return delta;
  }
  std::vector<int> named(static_cast<std::size_t>(layers), 0);
  delta.assign(named.size(), false);
  for (const char* key : {"kda_layers", "full_attn_layers"}) {
    for (const Json& item : lists->at(key)) {
      if (!item.is_number_integer() || item < 1 || item > layers) {
        return config.error("config.range", std::string(kLinear) + "/" + key, "layers 1 to " + std::to_string(layers),
                            item.dump());
      }
      const auto layer = item.get<std::size_t>() - 1;
      ++named[layer];
      delta[layer] = std::string_view(key) == "kda_layers";
    }
  }
  if (std::ranges::all_of(named, [](int times) { return times == 1; })) return delta;
  return config.error("config.range", kLinear, "each of " + std::to_string(layers) + " layers in one of its lists",
                      "another number of them");
}

Result<> finish(const ModelConfig& config, const TensorClaims& claims, const ModelSettings& settings, ModelSpec& spec) {
  MORACLE_ASSIGN(const std::vector<bool> delta, delta_layers(config, settings.common.layers));
  MORACLE_ASSIGN(const KdaSizes sizes, read_sizes(config));
  put_kda_layers(sizes, delta, settings.common, claims, ".o_proj", spec);
  // transformers saves dense layers under the mixtures' name.
  for (LayerSpec& layer : spec.layers) {
    const std::string saved = layer.path + ".block_sparse_moe";
    auto* const dense = std::get_if<DenseSpec>(&layer.feed_forward);
    if (dense == nullptr || !claims.has_module(saved)) continue;
    *dense = dense_spec(saved, settings.common.hidden, settings.dense_intermediate, settings.activation);
  }
  return Ok{};
}

}  // namespace

// transformers' KimiLinearConfig, and the publisher's spellings of its keys.
constexpr Architecture kKimiLinear{
    .model_types = {"kimi_linear"},
    .common = {.hidden = 2304,
               .layers = 27,
               .heads = 32,
               .head_dim = 64,
               .vocabulary = 163840,
               .max_positions = 1048576,
               .norm_eps = 1e-5},
    .max_positions = "model_max_length",
    .latent = LatentRow{.q_lora_rank = 0},
    .rope = {.by_hook = true},
    .router = {.scores = Scores::sigmoid,
               .experts = {{"num_experts", "num_local_experts"}, 256},
               .top_k = {{"num_experts_per_token", "num_experts_per_tok"}, 8},
               .renormalize = {"moe_renormalize", true, "norm_topk_prob"},
               .grouped = true,
               .group_key = "num_expert_group",
               .factor_key = "routed_scaling_factor",
               .factor = 2.446},
    .moe = {.path = {"block_sparse_moe", "mlp"},
            .correction = {".gate.e_score_correction_bias"},
            .intermediate = {{"moe_intermediate_size"}, 1024}},
    .shared = {.path = {".shared_experts"}, .count = {{"num_shared_experts", "n_shared_experts"}, 1, 0}},
    .dense = {.layers = DenseLayers::by_kind,
              .intermediate = {{"intermediate_size"}, 9216},
              .first = {{"first_k_dense_replace"}, 1, 0},
              .step = {{"moe_layer_freq"}, 1}},
    .demands = {{{"mla_use_nope", true},
                 {"mla_use_output_gate", false},
                 {"hidden_act", "silu"},
                 {"moe_router_activation_func", "sigmoid"},
                 {"topk_method", "noaux_tc"}}},
    .draft_layers = true,
    .hook = finish};

}  // namespace moracle
