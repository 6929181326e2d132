// Laguna: plain norms, a norm on every head of q and k, softplus gates on what the heads give, heads and a rope of
// their own in layers with a window, sigmoid routing with a bias, one shared expert.
#include "model/architectures/architectures.h"

namespace moracle {

namespace {

// One gate a head, or one an element.
Result<> add_gates(const ModelConfig& config, const TensorClaims& /*claims*/, const ModelSettings& /*settings*/,
                   ModelSpec& spec) {
  constexpr const char* kKey = "gating";
  const JsonReader& reader = config.reader();
  const Json gating = reader.has(kKey) ? reader.json().at(kKey) : Json(true);
  const bool by_element = gating == "per-element";
  if (!by_element && gating != true && gating != "per-head") {
    return config.error("config.unsupported", kKey, "true, \"per-head\" or \"per-element\"", gating.dump());
  }
  for (LayerSpec& layer : spec.layers) {
    auto& attention = std::get<AttentionSpec>(layer.mixer);
    attention.shape.softplus_gates = true;
    attention.shape.wide_gate = by_element;
    const LinearSpec gate{.path = layer.path + ".self_attn.g_proj",
                          .out = by_element ? attention.q.out : attention.shape.heads,
                          .in = attention.q.in};
    (by_element ? attention.wide_gate : attention.head_gate) = gate;
  }
  return Ok{};
}

}  // namespace

// transformers' LagunaConfig.
constexpr Architecture kLaguna{
    .model_types = {"laguna"},
    .common = {.hidden = 2048,
               .layers = 40,
               .heads = 48,
               .kv_heads = 8,
               .head_dim = 128,
               .vocabulary = 100352,
               .max_positions = 131072,
               .norm_eps = 1e-6},
    .attention = {.output_bias = false,
                  .qk_norm = QkNorm::heads,
                  .windows = Windows::by_kind,
                  .window = 512,
                  .pattern = {{}, 1},
                  .heads_by_layer = "num_attention_heads_per_layer"},
    .router = {.scores = Scores::sigmoid,
               .experts = {{"num_experts", "num_local_experts"}, 256},
               .top_k = {{"num_experts_per_tok"}, 8},
               .renormalize = {{}, true},
               .factor_key = "moe_routed_scaling_factor"},
    .moe = {.correction = {".experts.e_score_correction_bias", ".gate.e_score_correction_bias"},
            .intermediate = {{"moe_intermediate_size"}, 512}},
    .shared = {.path = {".shared_expert", ".shared_experts"}, .width = {{"shared_expert_intermediate_size"}, 512}},
    .dense = {.layers = DenseLayers::by_kind, .intermediate = {{"intermediate_size"}, 8192}, .first = {{}, 1}},
    .demands = {{{"moe_apply_router_weight_on_input", false},
                 {"moe_router_logit_softcapping", 0},
                 {"moe_router_use_sigmoid", true},
                 {"norm_topk_prob", true}}},
    .hook = add_gates};

}  // namespace moracle
