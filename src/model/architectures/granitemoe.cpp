// Granite MoE: plain norms, softmax of the chosen logits in every layer, multipliers of the embedding, of what parts
// add, of scores and of logits; by name with an expert that sees every token.
#include "model/architectures/architectures.h"
#include "model/spec/parts.h"

namespace moracle {

namespace {

// As published, stacks are called as the linears of one expert.
Result<> spell(const ModelConfig& /*config*/, const TensorClaims& /*claims*/, const ModelSettings& /*settings*/,
               ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers) {
    const std::string mixture = layer.path + ".block_sparse_moe";
    std::get<MoeSpec>(layer.feed_forward)
        .experts.layouts.push_back({.gate_up = mixture + ".input_linear", .stacked_down = mixture + ".output_linear"});
  }
  return Ok{};
}

Result<> add_shared(const ModelConfig& config, const TensorClaims& claims, const ModelSettings& settings,
                    ModelSpec& spec) {
  MORACLE_TRY(spell(config, claims, settings, spec));
  MORACLE_ASSIGN(const std::int64_t width,
                 config.reader().integer_or("shared_intermediate_size", 0, 0, kMaxIntermediate));
  if (width == 0) return Ok{};
  for (LayerSpec& layer : spec.layers) {
    const std::string path = layer.path + ".shared_mlp";
    std::get<MoeSpec>(layer.feed_forward).shared.emplace().mlp = halved_spec(
        path + ".input_linear", path + ".output_linear", settings.common.hidden, width, settings.activation);
  }
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
    .hook = spell};

// transformers' GraniteMoeSharedConfig: the same with one expert more.
constexpr Architecture kGraniteMoeShared = [] {
  Architecture row = kGraniteMoe;
  row.model_types = {"granitemoeshared"};
  row.hook = add_shared;
  return row;
}();

}  // namespace moracle
