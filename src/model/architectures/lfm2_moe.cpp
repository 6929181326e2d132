// LFM2-MoE: short convolutions between gates, and in some layers attention with a norm on every head of q and k;
// sigmoid routing with a bias.
#include <array>
#include <string>
#include <vector>

#include "model/architectures/architectures.h"
#include "model/spec/parts.h"

namespace moracle {

namespace {

constexpr std::string_view kConvolution = "conv";
constexpr std::array<std::string_view, 2> kKinds{kConvolution, "full_attention"};

ShortConvolutionSpec convolution(const std::string& path, std::int64_t hidden, std::int64_t kernel, bool bias) {
  const std::string in = path + ".in_proj";
  const auto part = [&](const char* name, std::int64_t index) {
    return LinearSpec{.path = in + name,
                      .out = hidden,
                      .in = hidden,
                      .bias = bias,
                      .rows_of = RowsOf{.module = in, .begin = index * hidden, .total = 3 * hidden}};
  };
  return {.times = part(".b", 0),
          .gate = part(".c", 1),
          .x = part(".x", 2),
          .out = {.path = path + ".out_proj", .out = hidden, .in = hidden, .bias = bias},
          .taps = {.path = path + ".conv", .bias = bias},
          .shape = {.channels = hidden, .kernel = kernel}};
}

// Dense layers have the names of projections that experts have, unless the usual ones are stored.
void spell(const TensorClaims& claims, const std::string& path, DenseSpec& dense) {
  if (claims.has_module(path + ".gate_proj")) return;
  dense.gate.path = path + ".w1";
  dense.up.path = path + ".w3";
  dense.down.path = path + ".w2";
  dense.gate.fused = dense.up.fused = {path + ".w13"};
}

Result<> finish(const ModelConfig& config, const TensorClaims& claims, const ModelSettings& settings, ModelSpec& spec) {
  const JsonReader& reader = config.reader();
  MORACLE_ASSIGN(const std::vector<std::string> kinds,
                 config.layer_kinds("layer_types", settings.common.layers, kKinds));
  if (kinds.empty()) return config.error("config.missing", "layer_types", "a kind for each layer", "none");
  MORACLE_ASSIGN(const std::int64_t kernel, reader.integer_or("conv_L_cache", 3, 1, kMaxConvolution));
  MORACLE_ASSIGN(const bool bias, reader.boolean_or("conv_bias", false));
  MORACLE_ASSIGN(const bool biased, reader.boolean_or("use_expert_bias", true));
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    LayerSpec& layer = spec.layers[l];
    if (kinds[l] == kConvolution) {
      layer.mixer = convolution(layer.path + ".conv", settings.common.hidden, kernel, bias);
    } else {
      std::get<AttentionSpec>(layer.mixer).o.path = layer.path + ".self_attn.out_proj";
    }
    if (auto* const dense = std::get_if<DenseSpec>(&layer.feed_forward)) {
      spell(claims, layer.path + ".feed_forward", *dense);
      continue;
    }
    auto& moe = std::get<MoeSpec>(layer.feed_forward);
    moe.routing.sum_floor = 1e-6F;
    if (!biased) moe.correction_bias.clear();
  }
  return Ok{};
}

}  // namespace

// transformers' Lfm2MoeConfig.
constexpr Architecture kLfm2Moe{
    .model_types = {"lfm2_moe"},
    .common = {.hidden = 2048,
               .layers = 32,
               .heads = 32,
               .kv_heads = 8,
               .vocabulary = 65536,
               .max_positions = 128000,
               .norm_eps = 1e-5,
               .tied = true},
    .norm_eps = "norm_eps",
    .norms = {.input = ".operator_norm", .post = ".ffn_norm"},
    .final_norm = "embedding_norm",
    .attention = {.bias = {{}, false}, .qk_norm = QkNorm::heads, .qk_names = {".q_layernorm", ".k_layernorm"}},
    .rope = {.theta = 1e6},
    .router = {.scores = Scores::sigmoid,
               .experts = {{"num_experts", "num_local_experts"}, 32},
               .top_k = {{"num_experts_per_tok"}, 4},
               .factor_key = "routed_scaling_factor"},
    .moe = {.path = {"feed_forward"},
            .correction = {".expert_bias"},
            .intermediate = {{"moe_intermediate_size"}, 1792}},
    .dense = {.path = ".feed_forward",
              .layers = DenseLayers::first,
              .intermediate = {{"intermediate_size"}, 7168},
              .first = {{"num_dense_layers"}, 2, 0}},
    .hook = finish};

}  // namespace moracle
