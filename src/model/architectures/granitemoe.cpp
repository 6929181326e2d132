// Granite MoE: plain norms, softmax of the chosen logits in every layer, multipliers of the embedding, of what parts
// add, of scores and of logits; by name with an expert that sees every token, and with Mamba-2 in most layers.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "model/architectures/architectures.h"
#include "model/architectures/mamba2.h"
#include "model/spec/parts.h"

namespace moracle {

namespace {

// As published, stacks are called as the linears of one expert.
void spell(const LayerSpec& layer, MoeSpec& moe) {
  const std::string mixture = layer.path + ".block_sparse_moe";
  moe.experts.layouts.push_back({.gate_up = mixture + ".input_linear", .stacked_down = mixture + ".output_linear"});
}

DenseSpec shared_mlp(const LayerSpec& layer, std::int64_t hidden, std::int64_t width, ActivationSpec activation) {
  const std::string path = layer.path + ".shared_mlp";
  return halved_spec(path + ".input_linear", path + ".output_linear", hidden, width, activation);
}

Result<> make_plain(const ModelConfig& /*config*/, const TensorClaims& /*claims*/, const ModelSettings& /*settings*/,
                    ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers) spell(layer, std::get<MoeSpec>(layer.feed_forward));
  return Ok{};
}

Result<> make_shared(const ModelConfig& config, const TensorClaims& claims, const ModelSettings& settings,
                     ModelSpec& spec) {
  MORACLE_TRY(make_plain(config, claims, settings, spec));
  MORACLE_ASSIGN(const std::int64_t width,
                 config.reader().integer_or("shared_intermediate_size", 0, 0, kMaxIntermediate));
  if (width == 0) return Ok{};
  for (LayerSpec& layer : spec.layers) {
    std::get<MoeSpec>(layer.feed_forward).shared.emplace().mlp =
        shared_mlp(layer, settings.common.hidden, width, settings.activation);
  }
  return Ok{};
}

// --- Granite with windows -------------------------------------------------------------------------------------------

// Of a layer with this theta, which takes the place of the common one.
Result<RopeSpec> rope_of(const ModelConfig& config, const CommonConfig& common, const Json& theta) {
  constexpr const char* kRope = "rope_parameters";
  const JsonReader& reader = config.reader();
  Json parameters = reader.has(kRope) ? reader.json().at(kRope) : Json::object();
  if (!parameters.is_object()) return config.error("config.type", kRope, "an object", parameters.type_name());
  parameters["rope_theta"] = theta;
  return read_rope(JsonReader(parameters, reader.file(), reader.pointer(kRope)),
                   {.head_dim = common.head_dim, .max_positions = common.max_positions});
}

// A theta for each layer: 0 leaves the layer without positions.
Result<> set_ropes(const ModelConfig& config, const CommonConfig& common, ModelSpec& spec) {
  constexpr const char* kKey = "layer_rope_theta";
  const JsonReader& reader = config.reader();
  const Json thetas = reader.has(kKey) ? reader.json().at(kKey) : Json();
  if (!thetas.is_null() && (!thetas.is_array() || thetas.size() < spec.layers.size())) {
    return config.error("config.type", kKey, "a theta for each layer", thetas.type_name());
  }
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    if (!thetas.is_null() && thetas[l] == 0) continue;
    MORACLE_ASSIGN(const RopeSpec rope, thetas.is_null() ? parse_rope(config, {.head_dim = common.head_dim,
                                                                               .max_positions = common.max_positions})
                                                         : rope_of(config, common, thetas[l]));
    spec.info.max_context = std::max(spec.info.max_context, rope.max_positions);
    std::get<AttentionSpec>(spec.layers[l].mixer).rope = add_rope(spec, rope);
  }
  return Ok{};
}

Result<> make_windowed(const ModelConfig& config, const TensorClaims& claims, const ModelSettings& settings,
                       ModelSpec& spec) {
  constexpr const char* kKinds = "layer_types";
  if (!config.reader().has(kKinds)) return config.error("config.missing", kKinds, "a kind for each layer", "none");
  MORACLE_TRY(make_shared(config, claims, settings, spec));
  return set_ropes(config, settings.common, spec);
}

// --- Granite 4 ------------------------------------------------------------------------------------------------------

constexpr std::array<std::string_view, 4> kKinds{"mamba", "linear_attention", "attention", "full_attention"};

Result<Mamba2Sizes> read_mamba(const ModelConfig& config, std::int64_t hidden) {
  const JsonReader& reader = config.reader();
  Mamba2Sizes sizes;
  StateSpaceShape& shape = sizes.shape;
  MORACLE_ASSIGN(const std::int64_t expand, reader.integer_or("mamba_expand", 2, 1, 64));
  MORACLE_ASSIGN(shape.heads, reader.integer_or("mamba_n_heads", 128, 1, kMaxHeads));
  constexpr const char* kHead = "mamba_d_head";
  shape.head_dim = expand * hidden / shape.heads;
  if (reader.has(kHead) && reader.json().at(kHead) != "auto") {
    MORACLE_ASSIGN(shape.head_dim, reader.integer(kHead, 1, kMaxHeadDim));
  }
  if (shape.width() != expand * hidden) {
    return config.error("config.range", "mamba_n_heads", "heads that share " + std::to_string(expand * hidden),
                        std::to_string(shape.heads) + " of size " + std::to_string(shape.head_dim));
  }
  MORACLE_ASSIGN(shape.groups, reader.integer_or("mamba_n_groups", 1, 1, kMaxHeads));
  MORACLE_ASSIGN(shape.states, reader.integer_or("mamba_d_state", 256, 1, kMaxHeadDim));
  MORACLE_TRY(read_step_limit(config, shape));
  MORACLE_ASSIGN(sizes.kernel, reader.integer_or("mamba_d_conv", 4, 1, kMaxConvolution));
  MORACLE_ASSIGN(sizes.conv_bias, reader.boolean_or("mamba_conv_bias", true));
  MORACLE_ASSIGN(sizes.bias, reader.boolean_or("mamba_proj_bias", false));
  return sizes;
}

// The shared expert is all that layers without experts have.
Result<std::vector<bool>> dense_layers(const ModelConfig& config, std::int64_t layers) {
  MORACLE_ASSIGN(const std::int64_t experts, config.either("num_local_experts", "num_experts", 8, 0, kMaxExperts));
  return std::vector<bool>(static_cast<std::size_t>(layers), experts == 0);
}

Result<bool> has_positions(const ModelConfig& config) {
  constexpr const char* kKey = "position_embedding_type";
  MORACLE_ASSIGN(const std::string type, config.reader().string_or(kKey, "nope"));
  if (type == "rope" || type == "nope") return type == "rope";
  return config.error("config.unsupported", kKey, "rope, nope or null", type);
}

Result<> make_hybrid(const ModelConfig& config, const TensorClaims& /*claims*/, const ModelSettings& settings,
                     ModelSpec& spec) {
  const CommonConfig& common = settings.common;
  MORACLE_ASSIGN(std::vector<std::string> kinds, config.layer_kinds("layer_types", common.layers, kKinds));
  if (kinds.empty()) {
    MORACLE_ASSIGN(kinds, config.layer_kinds("layers_block_type", common.layers, kKinds));
  }
  MORACLE_ASSIGN(const Mamba2Sizes sizes, read_mamba(config, common.hidden));
  MORACLE_ASSIGN(const bool rotated, has_positions(config));
  MORACLE_ASSIGN(const std::int64_t width,
                 config.reader().integer_or("shared_intermediate_size", 1024, 1, kMaxIntermediate));
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    LayerSpec& layer = spec.layers[l];
    if (kinds.empty() || kinds[l] == kKinds[0] || kinds[l] == kKinds[1]) {
      layer.mixer = mamba2(layer.path + ".mamba", common, sizes);
    } else if (!rotated) {
      std::get<AttentionSpec>(layer.mixer).rope.reset();
    }
    DenseSpec shared = shared_mlp(layer, common.hidden, width, settings.activation);
    if (auto* const moe = std::get_if<MoeSpec>(&layer.feed_forward)) {
      spell(layer, *moe);
      moe->shared.emplace().mlp = std::move(shared);
    } else {
      layer.feed_forward = std::move(shared);
    }
  }
  if (!rotated) spec.ropes.clear();
  return Ok{};
}

}  // namespace

// transformers' GraniteMoeConfig.
constexpr Architecture kGraniteMoe{
    .model_types = {"granitemoe"},
    .common = {.hidden = 4096, .layers = 32, .heads = 32, .vocabulary = 32000, .max_positions = 2048, .norm_eps = 1e-6},
    .multipliers = {.embedding = "embedding_multiplier", .residual = "residual_multiplier", .logits = "logits_scaling"},
    .attention = {.scale = "attention_multiplier"},
    .router = {.scores = Scores::softmax_of_chosen,
               .experts = {{"num_local_experts", "num_experts"}, 8},
               .top_k = {{"num_experts_per_tok"}, 2}},
    .moe = {.path = {"block_sparse_moe"},
            .router = {".router.layer", ".router"},
            .intermediate = {{"intermediate_size"}, 11008}},
    .hook = make_plain};

// transformers' GraniteMoeSharedConfig: the same with one expert more.
constexpr Architecture kGraniteMoeShared = [] {
  Architecture row = kGraniteMoe;
  row.model_types = {"granitemoeshared"};
  row.hook = make_shared;
  return row;
}();

// transformers' GraniteMoeSWAConfig.
constexpr Architecture kGraniteMoeSwa = [] {
  Architecture row = kGraniteMoe;
  row.model_types = {"granitemoe_swa"};
  row.attention.windows = Windows::by_kind;
  row.attention.window = 128;
  row.attention.sinks = true;
  row.rope.by_hook = true;
  row.hook = make_windowed;
  return row;
}();

// transformers' GraniteMoeHybridConfig.
constexpr Architecture kGraniteMoeHybrid = [] {
  Architecture row = kGraniteMoe;
  row.model_types = {"granitemoehybrid"};
  row.router.experts.least = 0;
  row.dense.read = dense_layers;
  row.hook = make_hybrid;
  return row;
}();

}  // namespace moracle
