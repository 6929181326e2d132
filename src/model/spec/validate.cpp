#include "model/spec/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace moracle {

namespace {

// Where a member's value may come from, in every architecture's spelling.
struct Member {
  std::string_view name;
  std::array<std::string_view, 4> keys;
};

constexpr std::array kMembers{
    Member{"layers", {"num_hidden_layers", "num_layers"}},
    Member{"hidden", {"hidden_size"}},
    Member{"vocabulary", {"vocab_size"}},
    Member{"max_positions", {"max_position_embeddings", "max_seq_len"}},
    Member{"eps", {"rms_norm_eps", "layernorm_epsilon", "norm_eps"}},
    Member{"heads", {"num_attention_heads"}},
    Member{"kv_heads", {"num_key_value_heads", "num_attention_groups"}},
    Member{"head_dim", {"head_dim"}},
    Member{"window", {"sliding_window"}},
    Member{"clip", {"clip_qkv"}},
    Member{"value_scale", {"attention_value_scale"}},
    Member{"scale", {"attention_multiplier"}},
    Member{"embedding_scale", {"embedding_multiplier"}},
    Member{"residual_scale", {"residual_multiplier"}},
    Member{"logit_scale", {"logits_scaling", "logit_scale"}},
    Member{"rotary_dims", {"partial_rotary_factor", "partial_rotary_factors", "rope_parameters"}},
    Member{"inv_freq", {"rope_parameters", "rope_scaling", "rope_theta"}},
    Member{"qk_nope_head_dim", {"qk_nope_head_dim"}},
    Member{"qk_rope_head_dim", {"qk_rope_head_dim"}},
    Member{"v_head_dim", {"v_head_dim"}},
    Member{"kv_lora_rank", {"kv_lora_rank"}},
    Member{"index_heads", {"index_n_heads"}},
    Member{"index_dim", {"index_head_dim"}},
    Member{"key_heads", {"linear_num_key_heads", "linear_num_heads", "num_attention_heads"}},
    Member{"value_heads", {"linear_num_value_heads", "linear_num_heads", "num_attention_heads"}},
    Member{"key_dim", {"linear_key_head_dim", "linear_head_dim", "head_dim"}},
    Member{"value_dim", {"linear_value_head_dim", "linear_head_dim", "head_dim"}},
    Member{"kernel", {"linear_conv_kernel_dim", "conv_L_cache", "mamba_d_conv", "short_conv_kernel_size"}},
    Member{"least_decay", {"kda_lower_bound"}},
    Member{"state_heads", {"mamba_n_heads", "mamba_expand"}},
    Member{"state_groups", {"mamba_n_groups"}},
    Member{"states", {"mamba_d_state"}},
    Member{"experts", {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"}},
    Member{"top_k", {"num_experts_per_tok", "experts_per_token", "moe_top_k", "moe_topk"}},
    Member{"zero_experts", {"zero_expert_num"}},
    Member{"groups", {"n_group"}},
    Member{"top_groups", {"topk_group"}},
    Member{"factor", {"routed_scaling_factor", "moe_router_scaling_factor"}},
    Member{"intermediate", {"intermediate_size", "moe_intermediate_size", "ffn_hidden_size"}},
    Member{"expert_intermediate", {"moe_intermediate_size", "intermediate_size", "expert_ffn_hidden_size"}},
    Member{"limit", {"swiglu_limit", "swiglu_limits", "swiglu_limits_shared"}},
    Member{"alpha", {"swiglu_alpha"}},
};

Result<> require(bool holds, std::string_view member, std::string wanted, std::string found) {
  if (holds) return Ok{};
  return Error{
      .code = "config.range", .where = std::string(member), .wanted = std::move(wanted), .found = std::move(found)};
}

Result<> require_within(std::int64_t value, std::int64_t most, std::string_view member) {
  return require(value >= 1 && value <= most, member, "1 to " + std::to_string(most), std::to_string(value));
}

Result<> require_positive(float value, std::string_view member) {
  return require(std::isfinite(value) && value > 0.0F, member, "a finite number above 0", fmt::format("{}", value));
}

Result<> validate(const NormSpec& spec) {
  MORACLE_TRY(require_positive(spec.factor, "factor"));
  return require_positive(spec.eps, "eps");
}

Result<> validate(const RopeSpec& spec) {
  MORACLE_TRY(
      require(spec.rotary_dims >= 2 && spec.rotary_dims % 2 == 0 && std::ssize(spec.inv_freq) == spec.rotary_dims / 2,
              "rotary_dims", "an even number of rotated dimensions", std::to_string(spec.rotary_dims)));
  const auto finite = [](float value) { return std::isfinite(value) && value >= 0.0F; };
  MORACLE_TRY(require(std::all_of(spec.inv_freq.begin(), spec.inv_freq.end(), finite), "inv_freq",
                      "finite rotary frequencies", "one that is not"));
  MORACLE_TRY(require_positive(spec.scale, "inv_freq"));
  MORACLE_TRY(require_positive(spec.score_scale, "inv_freq"));
  return require_within(spec.max_positions, kMaxPositions, "max_positions");
}

Result<> require_rotary(const ModelSpec& model, std::size_t rope, std::int64_t dims, std::string_view dims_name) {
  const std::int64_t rotary = rope < model.ropes.size() ? model.ropes[rope].rotary_dims : 0;
  return require(rotary >= 2 && rotary <= dims, "rotary_dims",
                 fmt::format("2 to {}, the {} of a head", dims, dims_name), std::to_string(rotary));
}

Result<> validate(const AttentionSpec& spec, const ModelSpec& model) {
  const auto& shape = spec.shape;
  MORACLE_TRY(require_within(shape.heads, kMaxHeads, "heads"));
  MORACLE_TRY(require(shape.kv_heads >= 1 && shape.heads % shape.kv_heads == 0, "kv_heads",
                      fmt::format("a divisor of {} heads", shape.heads), std::to_string(shape.kv_heads)));
  MORACLE_TRY(require_within(shape.head_dim, kMaxHeadDim, "head_dim"));
  MORACLE_TRY(require_within(shape.value_size(), kMaxHeadDim, "v_head_dim"));
  MORACLE_TRY(require_positive(shape.value_scale, "value_scale"));
  MORACLE_TRY(require(shape.window >= 0 && shape.window <= kMaxPositions, "window",
                      "0 to " + std::to_string(kMaxPositions), std::to_string(shape.window)));
  MORACLE_TRY(require(std::isfinite(shape.clip) && shape.clip >= 0.0F, "clip", "a finite number from 0",
                      fmt::format("{}", shape.clip)));
  MORACLE_TRY(require(std::isfinite(shape.scale) && shape.scale >= 0.0F, "scale", "a finite number from 0",
                      fmt::format("{}", shape.scale)));
  for (const NormSpec& norm : spec.qk_norm) MORACLE_TRY(validate(norm));
  return spec.rope ? require_rotary(model, *spec.rope, shape.head_dim, "dimensions") : Result<>(Ok{});
}

Result<> validate(const DeltaNetSpec& spec, const ModelSpec& /*model*/) {
  const auto& shape = spec.shape;
  MORACLE_TRY(require_within(shape.key_heads, kMaxHeads, "key_heads"));
  MORACLE_TRY(require(shape.value_heads >= 1 && shape.value_heads % shape.key_heads == 0, "value_heads",
                      fmt::format("a multiple of {} key heads", shape.key_heads), std::to_string(shape.value_heads)));
  MORACLE_TRY(require_within(shape.key_dim, kMaxHeadDim, "key_dim"));
  MORACLE_TRY(require_within(shape.value_dim, kMaxHeadDim, "value_dim"));
  MORACLE_TRY(require_within(shape.kernel, kMaxConvolution, "kernel"));
  MORACLE_TRY(require(std::isfinite(shape.least_decay) && shape.least_decay <= 0.0F, "least_decay",
                      "a finite number up to 0", fmt::format("{}", shape.least_decay)));
  return validate(spec.norm);
}

Result<> validate(const ShortConvolutionSpec& spec, const ModelSpec& /*model*/) {
  MORACLE_TRY(require_within(spec.shape.channels, kMaxHidden, "hidden"));
  return require_within(spec.shape.kernel, kMaxConvolution, "kernel");
}

Result<> validate(const AbsentSpec& /*spec*/, const ModelSpec& /*model*/) {
  return Ok{};
}

Result<> validate(const StateSpaceSpec& spec, const ModelSpec& /*model*/) {
  const auto& shape = spec.shape;
  MORACLE_TRY(require_within(shape.heads, kMaxIntermediate, "state_heads"));
  MORACLE_TRY(require_within(shape.width(), kMaxIntermediate, "state_heads"));
  MORACLE_TRY(require(shape.groups >= 1 && shape.heads % shape.groups == 0 && shape.width() % spec.norm_groups == 0,
                      "state_groups", fmt::format("a divisor of {} heads", shape.heads), std::to_string(shape.groups)));
  MORACLE_TRY(require_within(shape.states, kMaxHeadDim, "states"));
  MORACLE_TRY(require_within(spec.kernel, kMaxConvolution, "kernel"));
  return validate(spec.norm);
}

Result<> validate(const LatentAttentionSpec& spec, const ModelSpec& model) {
  const auto& shape = spec.shape;
  MORACLE_TRY(require_within(shape.heads, kMaxHeads, "heads"));
  MORACLE_TRY(require_within(shape.qk_nope_head_dim, kMaxHeadDim, "qk_nope_head_dim"));
  MORACLE_TRY(require_within(shape.qk_rope_head_dim, kMaxHeadDim, "qk_rope_head_dim"));
  MORACLE_TRY(require_within(shape.v_head_dim, kMaxHeadDim, "v_head_dim"));
  MORACLE_TRY(require_within(shape.kv_lora_rank, kMaxHidden, "kv_lora_rank"));
  if (spec.indexer) {
    MORACLE_TRY(require_within(spec.indexer->shape.heads, kMaxHeads, "index_heads"));
    MORACLE_TRY(require_within(spec.indexer->shape.dim, kMaxHeadDim, "index_dim"));
    MORACLE_TRY(require(spec.indexer->shape.dim >= shape.qk_rope_head_dim, "index_dim",
                        fmt::format("{} or more, which are rotated", shape.qk_rope_head_dim),
                        std::to_string(spec.indexer->shape.dim)));
  }
  MORACLE_TRY(require_positive(shape.scale, "inv_freq"));
  if (spec.q_a) MORACLE_TRY(validate(spec.q_norm));
  MORACLE_TRY(validate(spec.kv_norm));
  return spec.rope ? require_rotary(model, *spec.rope, shape.qk_rope_head_dim, "rotated part") : Result<>(Ok{});
}

Result<> validate(const ActivationSpec& spec) {
  MORACLE_TRY(require(std::isfinite(spec.limit) && spec.limit >= 0.0F, "limit", "a finite number from 0",
                      fmt::format("{}", spec.limit)));
  return require(std::isfinite(spec.alpha) && std::isfinite(spec.beta), "alpha", "a finite number",
                 fmt::format("{}", spec.alpha));
}

// Shared experts are as many as the config says, side by side.
constexpr std::int64_t kMaxDense = kMaxIntermediate * kMaxExperts;

Result<> validate(const AbsentSpec& /*spec*/) {
  return Ok{};
}

Result<> validate(const DenseSpec& spec) {
  MORACLE_TRY(require_within(spec.gate.out, kMaxDense, "intermediate"));
  return validate(spec.activation);
}

Result<> validate(const MoeSpec& spec) {
  MORACLE_TRY(validate(spec.routing));
  MORACLE_TRY(require_within(spec.routing.experts, kMaxExperts, "experts"));
  MORACLE_TRY(require_within(spec.routing.top_k, kMaxTopK, "top_k"));
  MORACLE_TRY(require(spec.routing.zero_experts <= kMaxExperts && (spec.routing.zero_experts == 0 || spec.late),
                      "zero_experts", fmt::format("up to {}, of a mixture that gives late", kMaxExperts),
                      std::to_string(spec.routing.zero_experts)));
  MORACLE_TRY(require_within(spec.experts.intermediate, kMaxIntermediate, "expert_intermediate"));
  MORACLE_TRY(validate(spec.activation));
  return spec.shared ? validate(spec.shared->mlp) : Result<>(Ok{});
}

Result<> validate(const LayerSpec& spec, const ModelSpec& model) {
  MORACLE_TRY(validate(spec.input_norm));
  MORACLE_TRY(std::visit([&](const auto& mixer) { return validate(mixer, model); }, spec.mixer));
  MORACLE_TRY(validate(spec.mixer_norm));
  MORACLE_TRY(validate(spec.post_norm));
  MORACLE_TRY(validate(spec.feed_forward_norm));
  return std::visit([](const auto& feed_forward) { return validate(feed_forward); }, spec.feed_forward);
}

Result<> validate(const ModelSpec& spec) {
  MORACLE_TRY(require_within(spec.info.layers, kMaxLayers, "layers"));
  MORACLE_TRY(require(spec.info.layers == std::ssize(spec.layers), "layers", std::to_string(spec.layers.size()),
                      std::to_string(spec.info.layers)));
  MORACLE_TRY(require_within(spec.info.hidden_size, kMaxHidden, "hidden"));
  MORACLE_TRY(require_within(spec.info.vocab_size, kMaxVocabulary, "vocabulary"));
  MORACLE_TRY(require_within(spec.info.max_context, kMaxPositions, "max_positions"));
  MORACLE_TRY(validate(spec.final_norm));
  MORACLE_TRY(require_positive(spec.multipliers.embedding, "embedding_scale"));
  MORACLE_TRY(require_positive(spec.multipliers.residual, "residual_scale"));
  MORACLE_TRY(require_positive(spec.multipliers.head, "logit_scale"));
  for (const RopeSpec& rope : spec.ropes) MORACLE_TRY(validate(rope));
  for (const LayerSpec& layer : spec.layers) MORACLE_TRY(validate(layer, spec));
  const auto* const last = std::get_if<MoeSpec>(&spec.layers.back().feed_forward);
  return require(last == nullptr || !last->late, "layers", "a layer behind one that gives late", "none");
}

// The error of a member, told of the key that it was read from.
Error at_key(Error error, const ModelConfig& config) {
  const JsonReader& reader = config.reader();
  error.file = reader.file();
  const auto* const member =
      std::find_if(kMembers.begin(), kMembers.end(), [&](const Member& m) { return m.name == error.where; });
  if (member == kMembers.end()) return error;
  const auto* const key = std::find_if(member->keys.begin(), member->keys.end(),
                                       [&](std::string_view name) { return !name.empty() && reader.has(name); });
  const bool stated = key != member->keys.end();
  if (!stated) {
    error.code = "config.missing";
    error.found = "nothing, and the default of " + error.found + " is out of range";
  }
  error.where = reader.pointer(stated ? *key : member->keys.front());
  return error;
}

}  // namespace

Result<> validate(const ModelSpec& spec, const ModelConfig& config) {
  auto result = validate(spec);
  if (!result.ok()) return at_key(std::move(result).error(), config);
  return Ok{};
}

}  // namespace moracle
