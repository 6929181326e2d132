// Llama 4: pairs to be rotated side by side, chunks in place of windows, layers that are not rotated and scale their
// queries by position, one expert a token, weighed by what it reads, beside a shared one.
#include <array>
#include <string>
#include <vector>

#include "model/architectures/architectures.h"

namespace moracle {

namespace {

constexpr std::string_view kChunked = "chunked_attention";
constexpr std::array<std::string_view, 2> kKinds{kChunked, "full_attention"};

// Mixtures are the layers of a list, else every `interleave_moe_layer_step`-th.
Result<std::vector<bool>> dense_layers(const ModelConfig& config, std::int64_t layers) {
  std::vector<bool> dense(static_cast<std::size_t>(layers), true);
  if (config.reader().has("moe_layers")) {
    MORACLE_ASSIGN(const std::vector<std::int64_t> listed, config.layer_list("moe_layers", layers));
    for (const std::int64_t layer : listed) dense[static_cast<std::size_t>(layer)] = false;
    return dense;
  }
  MORACLE_ASSIGN(const std::int64_t step, config.reader().integer_or("interleave_moe_layer_step", 1, 1, kMaxLayers));
  for (std::int64_t l = 0; l < layers; ++l) dense[static_cast<std::size_t>(l)] = (l + 1) % step != 0;
  return dense;
}

// Which layers are rotated: a list of 0 and 1, else all but every `no_rope_layer_interval`-th.
Result<std::vector<bool>> rotated_layers(const ModelConfig& config, std::size_t layers) {
  MORACLE_ASSIGN(std::vector<bool> rotated, config.layer_flags("no_rope_layers", static_cast<std::int64_t>(layers)));
  if (!rotated.empty()) return rotated;
  MORACLE_ASSIGN(const std::int64_t interval, config.reader().integer_or("no_rope_layer_interval", 4, 1, kMaxLayers));
  for (std::size_t l = 0; l < layers; ++l) rotated.push_back((static_cast<std::int64_t>(l) + 1) % interval != 0);
  return rotated;
}

// What all layers share.
struct AttentionConstants {
  std::int64_t chunk = 0;  // 0: none
  bool qk_norm = true;
  PositionScale unrotated{};
};

Result<AttentionConstants> read_constants(const ModelConfig& config) {
  const JsonReader& reader = config.reader();
  AttentionConstants constants;
  constexpr const char* kChunk = "attention_chunk_size";
  const bool null_chunk = reader.json().contains(kChunk) && !reader.has(kChunk);
  if (!null_chunk) {
    MORACLE_ASSIGN(constants.chunk, reader.integer_or(kChunk, 8192, 1, kMaxPositions));
  }
  MORACLE_ASSIGN(constants.qk_norm, reader.boolean_or("use_qk_norm", true));
  MORACLE_ASSIGN(const bool tuned, reader.boolean_or("attn_temperature_tuning", true));
  if (!tuned) return constants;
  constants.unrotated.shift = 1.0F;
  MORACLE_ASSIGN(constants.unrotated.beta, config.positive("attn_scale", 0.1, 1e6));
  MORACLE_ASSIGN(constants.unrotated.period, config.positive("floor_scale", 8192.0, 1e12));
  return constants;
}

Result<> finish(const ModelConfig& config, const TensorClaims& /*claims*/, const ModelSettings& settings,
                ModelSpec& spec) {
  MORACLE_ASSIGN(const std::vector<bool> rotated, rotated_layers(config, spec.layers.size()));
  MORACLE_ASSIGN(const std::vector<std::string> kinds,
                 config.layer_kinds("layer_types", settings.common.layers, kKinds));
  MORACLE_ASSIGN(const AttentionConstants constants, read_constants(config));
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    auto& attention = std::get<AttentionSpec>(spec.layers[l].mixer);
    const bool chunked = kinds.empty() ? rotated[l] : kinds[l] == kChunked;
    attention.shape.window = chunked ? constants.chunk : 0;
    attention.shape.chunked = attention.shape.window > 0;
    if (rotated[l]) {
      if (constants.qk_norm) attention.shape.qk_eps = static_cast<float>(settings.common.norm_eps);
    } else {
      attention.rope.reset();
      attention.shape.position_scale = constants.unrotated;
    }
    if (auto* const moe = std::get_if<MoeSpec>(&spec.layers[l].feed_forward)) moe->routing.weighs_inputs = true;
  }
  return Ok{};
}

}  // namespace

// transformers' Llama4TextConfig.
constexpr Architecture kLlama4{
    .model_types = {"llama4_text", "llama4"},
    .common = {.hidden = 5120,
               .layers = 48,
               .heads = 40,
               .kv_heads = 8,
               .head_dim = 128,
               .vocabulary = 202048,
               .max_positions = 131072,
               .norm_eps = 1e-5},
    .attention = {.windows = Windows::by_hook},
    .rope = {.theta = 500000.0, .pairwise = true},
    .router = {.scores = Scores::sigmoid_of_chosen,
               .experts = {{"num_local_experts", "num_experts"}, 16},
               .top_k = {{"num_experts_per_tok"}, 1}},
    .moe = {.path = {"feed_forward"},
            .router = {".router"},
            .intermediate = {{"intermediate_size"}, 8192},
            .transposed = true},
    .shared = {.path = {".shared_expert"}, .width = {{"intermediate_size"}, 8192}},
    .dense = {.path = ".feed_forward", .intermediate = {{"intermediate_size_mlp"}, 16384}, .read = dense_layers},
    .demands = {{{"mlp_bias", false}}},
    .hook = finish};

}  // namespace moracle
