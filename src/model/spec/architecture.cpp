#include "model/spec/architecture.h"

#include <algorithm>
#include <cmath>

#include "format/rules/spelling.h"
#include "model/architectures/architectures.h"
#include "model/spec/parts.h"

namespace moracle {

namespace {

// The norms inside latent attention do not follow rms_norm_eps: they have the norm class's own default.
constexpr double kLatentNormEps = 1e-6;

#define MORACLE_ADDRESS_OF_ROW(row) &(row),
constexpr std::array kArchitectures{MORACLE_ARCHITECTURES(MORACLE_ADDRESS_OF_ROW)};
#undef MORACLE_ADDRESS_OF_ROW

// Types that are known and not opened, and what they need that no row has.
struct Missing {
  std::string_view type{};
  std::string_view blocks{};
};
constexpr std::array kMissing{
    Missing{"deepseek_v4", "hyper-connections, attention to compressed positions, routing by token ids"},
    Missing{"glm5_next_text", "hyper-connections, an indexer of pooled keys"},
    Missing{"glm5_next", "hyper-connections, an indexer of pooled keys"},
    Missing{"longcat_flash_ngram", "an embedding of n-grams"},
    Missing{"hy_v4", "hyper-connections, gated attention with sinks"},
    Missing{"minimax_m3_vl_text", "an indexer of blocks for grouped queries"},
    Missing{"minimax_m3_vl", "an indexer of blocks for grouped queries"},
    Missing{"qwen4_exp_text", "an indexer for grouped queries, gated residuals, an embedding of n-grams"},
    Missing{"qwen4_exp", "an indexer for grouped queries, gated residuals, an embedding of n-grams"},
    Missing{"zaya", "convolved queries and keys, routers that read the router before"}};

std::string advice_for(const std::vector<std::string>& types) {
  for (const std::string& type : types) {
    for (const Missing& missing : kMissing) {
      if (missing.type == type) return type + " needs what this version has not: " + std::string(missing.blocks);
    }
  }
  return "";
}

// Every path of `names` below one of `parents`.
std::vector<std::string> below(const std::vector<std::string>& parents, std::span<const std::string_view> names) {
  std::vector<std::string> paths;
  for (const std::string& parent : parents) {
    for (const std::string_view name : names) {
      if (!name.empty()) paths.push_back(parent + std::string(name));
    }
  }
  return paths;
}

// The mixtures' paths below a layer's, "model.layers.0.".
std::vector<std::string> mixture_paths(const MoeRow& row, const std::string& layer) {
  return below({layer + "."}, row.path);
}

AttentionSpec grouped_attention(const Architecture& row, const ModelSettings& s, const std::string& path,
                                std::size_t layer) {
  const CommonConfig& sizes = s.sizes[layer];
  AttentionSpec spec = attention_spec(path, sizes, s.attention_bias);
  spec.o.bias = s.attention_bias && row.attention.output_bias;
  if (s.qk_norm) {
    const bool whole = row.attention.qk_norm == QkNorm::whole;
    const auto& [q_name, k_name] = row.attention.qk_names;
    spec.qk_norm = {norm_spec(path + std::string(q_name), whole ? spec.q.out : sizes.head_dim, sizes.norm_eps),
                    norm_spec(path + std::string(k_name), whole ? spec.k.out : sizes.head_dim, sizes.norm_eps)};
    for (NormSpec& norm : spec.qk_norm) norm.one_plus = row.zero_centred_norms;
  }
  spec.shape.window = s.windows[layer];
  spec.shape.clip = s.clip;
  spec.shape.scale = s.score_scale;
  spec.shape.norm_behind_rope = row.attention.norm_behind_rope;
  spec.shape.pairwise = row.rope.pairwise;
  if (!row.attention.wide_gate.empty()) {
    spec.shape.wide_gate = true;
    spec.wide_gate = {.path = path + std::string(row.attention.wide_gate), .out = spec.q.out, .in = spec.q.in};
  }
  if (row.attention.sinks) spec.sinks = path + ".sinks";
  return spec;
}

LatentAttentionSpec latent_attention(const ModelSettings& s, const std::string& path, std::string_view out) {
  const LatentAttentionShape& shape = s.latent;
  LatentAttentionSpec a{.shape = shape};
  const std::int64_t hidden = s.common.hidden;
  const std::int64_t q_size = shape.heads * shape.q_head_dim();
  a.kv_a = {.path = path + ".kv_a_proj_with_mqa", .out = shape.latent_width(), .in = hidden, .bias = s.attention_bias};
  if (s.q_lora_rank == 0) {
    a.q = {.path = path + ".q_proj", .out = q_size, .in = hidden};
  } else {
    // One module in engines that fuse what reads the same input.
    const std::vector<std::string> fused{path + ".fused_qkv_a_proj"};
    a.q_a = {.path = path + ".q_a_proj", .fused = fused, .out = s.q_lora_rank, .in = hidden, .bias = s.attention_bias};
    a.q_norm = norm_spec(path + ".q_a_layernorm", s.q_lora_rank, kLatentNormEps);
    a.q = {.path = path + ".q_b_proj", .out = q_size, .in = s.q_lora_rank};
    a.kv_a.fused = fused;
  }
  a.kv_norm = norm_spec(path + ".kv_a_layernorm", shape.kv_lora_rank, kLatentNormEps);
  a.kv_b = {.path = path + ".kv_b_proj", .out = shape.heads * shape.kv_head_dim(), .in = shape.kv_lora_rank};
  a.o = {
      .path = path + std::string(out), .out = hidden, .in = shape.heads * shape.v_head_dim, .bias = s.attention_bias};
  return a;
}

// Experts without a gate: up is all that precedes the activation.
void leave_out_gates(std::vector<ExpertsLayout>& layouts) {
  std::erase_if(layouts, [](const ExpertsLayout& layout) { return !layout.gate_up.empty(); });
  for (ExpertsLayout& layout : layouts) layout.gate.clear();
}

MoeSpec moe_spec(const Architecture& row, const ModelSettings& s, const std::string& layer,
                 const TensorClaims& claims) {
  const std::vector<std::string> mixtures = mixture_paths(row.moe, layer);
  const std::vector<std::string> experts = below(mixtures, std::array<std::string_view, 1>{".experts"});
  MoeSpec moe;
  moe.router = below(mixtures, row.moe.router);
  moe.correction_bias = below(mixtures, row.moe.correction);
  moe.routing = s.routing;
  moe.activation = s.activation;
  moe.experts = {.name = experts.front(),
                 .layouts = expert_layouts(experts, row.moe.interleaved, row.moe.transposed),
                 .experts = s.routing.experts,
                 .hidden = s.common.hidden,
                 .intermediate = s.expert_intermediate};
  if (!is_gated(s.activation.fn)) leave_out_gates(moe.experts.layouts);
  moe.bias = row.moe.bias;
  if (s.shared_intermediate == 0) return moe;
  moe.shared.emplace();
  moe.shared->mlp =
      shared_spec(below(mixtures, row.shared.path), claims, s.common.hidden, s.shared_intermediate, s.activation);
  if (!row.shared.gate.empty()) {
    moe.shared->gate = {.path = mixtures.front() + std::string(row.shared.gate), .out = 1, .in = s.common.hidden};
  }
  return moe;
}

// The rope of layers of one kind.
Result<RopeSpec> rope_of(const Architecture& row, const ModelConfig& config, const ModelSettings& s,
                         std::size_t layer) {
  std::int64_t head_dim = row.latent ? s.latent.qk_rope_head_dim : s.sizes[layer].head_dim;
  double factor = row.rope.rotary_factor;
  if (row.latent && row.latent->factor_of_head) {
    factor = static_cast<double>(head_dim) / static_cast<double>(s.latent.q_head_dim());
    head_dim = s.latent.q_head_dim();
  }
  if (!row.rope.dims.empty()) {
    MORACLE_ASSIGN(const std::int64_t dims, config.reader().integer_or(row.rope.dims, head_dim, 2, head_dim));
    factor = static_cast<double>(dims) / static_cast<double>(head_dim);
  }
  MORACLE_ASSIGN(RopeSpec rope, parse_rope(config, {.theta = row.rope.theta,
                                                    .rotary_factor = factor,
                                                    .head_dim = head_dim,
                                                    .max_positions = s.common.max_positions,
                                                    .whole = row.rope.whole,
                                                    .layer_type = s.kinds[layer],
                                                    .yarn = row.rope.yarn}));
  if (row.latent && rope.rotary_dims != s.latent.qk_rope_head_dim) {
    return config.error("config.unsupported", "partial_rotary_factor", "the rotated part", "another number");
  }
  return rope;
}

// Where a layer lies, and what the names of its parts end with.
struct LayerNames {
  std::string path{};
  std::string end{};

  LayerNames(const Architecture& row, const std::string& root, std::size_t layer)
      : path(root + "layers." + std::to_string(row.halves ? layer / 2 : layer)),
        end(row.halves ? "." + std::to_string(layer % 2) : "") {}
  [[nodiscard]] std::string of(std::string_view part) const { return path + std::string(part) + end; }
};

// The norms that the row names, below the layer's path.
void set_norms(const Architecture& row, const CommonConfig& common, const LayerNames& names, LayerSpec& layer) {
  const auto norm = [&](std::string_view name) {
    if (name.empty()) return NormSpec{};
    NormSpec spec = norm_spec(names.of(name), common.hidden, common.norm_eps);
    spec.one_plus = row.zero_centred_norms;
    spec.centred = spec.bias = row.norms.centred;
    return spec;
  };
  layer.input_norm = norm(row.norms.input);
  layer.mixer_norm = norm(row.norms.mixer);
  layer.post_norm = norm(row.norms.post);
  layer.feed_forward_norm = norm(row.norms.feed_forward);
  layer.parallel = row.parallel;
}

// Whether heads of the layer are turned.
bool has_rope(const Architecture& row, const ModelSettings& s, std::size_t layer) {
  if (row.rope.by_hook) return false;
  const auto windowed = [](std::int64_t window) { return window > 0; };
  return !row.rope.in_windows || windowed(s.windows[layer]) || std::ranges::none_of(s.windows, windowed);
}

Result<std::size_t> add_rope_of(const Architecture& row, const ModelConfig& config, const ModelSettings& s,
                                std::size_t layer, ModelSpec& spec) {
  for (std::size_t before = 0; before < layer; ++before) {
    if (s.kinds[before] != s.kinds[layer] || !has_rope(row, s, before)) continue;
    const MixerSpec& mixer = spec.layers[before].mixer;
    const auto* const latent = std::get_if<LatentAttentionSpec>(&mixer);
    return latent != nullptr ? *latent->rope : *std::get<AttentionSpec>(mixer).rope;
  }
  MORACLE_ASSIGN(const RopeSpec rope, rope_of(row, config, s, layer));
  spec.info.max_context = std::max(spec.info.max_context, rope.max_positions);
  return add_rope(spec, rope);
}

// Contexts end where a rope would take other frequencies for all positions.
void limit_context(const ModelConfig& config, ModelSpec& spec) {
  for (const RopeSpec& rope : spec.ropes) {
    if (rope.limit == 0 || rope.limit >= spec.info.max_context) continue;
    config.warn("contexts end at " + std::to_string(rope.limit) +
                " positions, from which on longrope has other factors");
    spec.info.max_context = rope.limit;
  }
}

}  // namespace

std::span<const Architecture* const> architectures() {
  return kArchitectures;
}

Result<const Architecture*> find_architecture(const ModelConfig& config) {
  std::string known;
  for (const std::string& type : config.model_types()) {
    for (const Architecture* row : kArchitectures) {
      if (std::find(row->model_types.begin(), row->model_types.end(), type) != row->model_types.end()) return row;
    }
  }
  for (const Architecture* row : kArchitectures) {
    for (const std::string_view type : row->model_types) {
      if (!type.empty()) known += (known.empty() ? "" : ", ") + std::string(type);
    }
  }
  return Error{.code = "config.unsupported",
               .file = config.reader().file(),
               .where = "/model_type",
               .wanted = "one of " + known,
               .found = config.model_types().front(),
               .advice = advice_for(config.model_types())};
}

Result<ModelSpec> describe(const Architecture& row, const ModelConfig& config, const TensorClaims& claims) {
  MORACLE_ASSIGN(const ModelSettings s, read_settings(row, config));
  const std::string root = find_root(claims, row.embedding);
  ModelSpec spec = common_spec(config, s.common, claims, root, row.embedding);
  spec.final_norm = norm_spec(root + std::string(row.final_norm), s.common.hidden, s.common.norm_eps);
  spec.final_norm.one_plus = row.zero_centred_norms;
  spec.final_norm.centred = spec.final_norm.bias = row.norms.centred;
  spec.multipliers = s.multipliers;
  spec.info.experts = s.routing.experts;
  spec.info.experts_per_token = s.routing.top_k;
  if (row.draft_layers) spec.ignored.layers = root + "layers.";
  if (!row.ignored.empty()) spec.ignored.suffixes.emplace_back(row.ignored);
  for (std::size_t l = 0; l < static_cast<std::size_t>(s.common.layers); ++l) {
    const LayerNames names(row, root, l);
    LayerSpec layer{.path = names.path};
    set_norms(row, s.common, names, layer);
    std::optional<std::size_t> rope;
    if (has_rope(row, s, l)) {
      MORACLE_ASSIGN(rope, add_rope_of(row, config, s, l, spec));
    }
    const std::string mixer = names.of(row.mixer);
    if (row.latent) {
      LatentAttentionSpec attention = latent_attention(s, mixer, row.mixer_out);
      attention.rope = rope;
      attention.shape.rotated = rope.has_value();
      const float score_scale = rope ? spec.ropes[*rope].score_scale : 1.0F;
      attention.shape.scale = score_scale / std::sqrt(static_cast<float>(s.latent.q_head_dim()));
      layer.mixer = std::move(attention);
    } else {
      AttentionSpec attention = grouped_attention(row, s, mixer, l);
      attention.rope = rope;
      layer.mixer = std::move(attention);
    }
    if (s.dense[l]) {
      layer.feed_forward = dense_spec(names.of(row.dense.path), s.common.hidden, s.dense_intermediate, s.activation);
    } else {
      layer.feed_forward = moe_spec(row, s, names.path, claims);
    }
    spec.layers.push_back(std::move(layer));
  }
  if (row.hook != nullptr) MORACLE_TRY(row.hook(config, claims, s, spec));
  limit_context(config, spec);
  return spec;
}

}  // namespace moracle
