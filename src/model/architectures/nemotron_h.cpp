// Nemotron-H, with Nemotron 3: a layer is one part, of Mamba-2, attention without positions, a mixture or a dense MLP.
// Experts have no gate, and may read and give fewer numbers than a token has.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "model/architectures/architectures.h"
#include "model/architectures/mamba2.h"
#include "model/spec/parts.h"

namespace moracle {

namespace {

constexpr std::string_view kList = "layers_block_type";
constexpr std::string_view kPattern = "hybrid_override_pattern";

// What a layer is: its letter in a pattern, its names in a list.
struct Kind {
  char letter = 0;
  std::array<std::string_view, 2> names{};

  bool operator==(const Kind&) const = default;
};
constexpr Kind kMamba{'M', {"linear_attention", "mamba"}};
constexpr Kind kAttention{'*', {"full_attention", "attention"}};
constexpr Kind kMixture{'E', {"moe", "moe"}};
constexpr Kind kDense{'-', {"mlp", "mlp"}};
constexpr std::array kKinds{kMamba, kAttention, kMixture, kDense};

Error wrong_kind(const ModelConfig& config, std::string_view key, std::string found) {
  return config.error("config.unsupported", key, "linear_attention (M), full_attention (*), moe (E) or mlp (-)",
                      std::move(found));
}

Result<std::vector<Kind>> listed_kinds(const ModelConfig& config, std::string_view key) {
  const Json& list = config.reader().json().at(std::string(key));
  if (!list.is_array()) return config.error("config.type", key, "a list of kinds of layers", list.type_name());
  std::vector<Kind> kinds;
  for (const Json& item : list) {
    const auto* const kind = std::ranges::find_if(
        kKinds, [&](const Kind& known) { return item == known.names[0] || item == known.names[1]; });
    if (kind == kKinds.end()) return wrong_kind(config, key, item.dump());
    kinds.push_back(*kind);
  }
  return kinds;
}

Result<std::vector<Kind>> written_kinds(const ModelConfig& config) {
  MORACLE_ASSIGN(const std::string pattern, config.reader().string_or(kPattern, ""));
  std::vector<Kind> kinds;
  for (const char letter : pattern) {
    const auto* const kind = std::ranges::find(kKinds, letter, &Kind::letter);
    if (kind == kKinds.end()) return wrong_kind(config, kPattern, pattern);
    kinds.push_back(*kind);
  }
  return kinds;
}

// The list goes before the pattern, as in transformers.
Result<std::vector<Kind>> read_kinds(const ModelConfig& config) {
  const JsonReader& reader = config.reader();
  std::vector<Kind> kinds{kMamba, kMixture, kAttention, kDense};
  std::string_view key = kList;
  for (const std::string_view list : {std::string_view("layer_types"), kList}) {
    if (reader.has(list)) key = list;
  }
  const bool listed = reader.has(key);
  if (listed) {
    MORACLE_ASSIGN(kinds, listed_kinds(config, key));
  }
  if (reader.has(kPattern)) {
    MORACLE_ASSIGN(const std::vector<Kind> written, written_kinds(config));
    if (listed && written != kinds) config.warn_unread(kPattern, std::string(key) + " is there, and differs");
    if (!listed) kinds = written;
    if (!listed) key = kPattern;
  }
  if (!kinds.empty() && std::ssize(kinds) <= kMaxLayers) return kinds;
  return config.error("config.range", key, "1 to " + std::to_string(kMaxLayers) + " layers",
                      std::to_string(kinds.size()));
}

Result<std::int64_t> count_layers(const ModelConfig& config) {
  MORACLE_ASSIGN(const std::vector<Kind> kinds, read_kinds(config));
  return std::ssize(kinds);
}

Result<std::vector<bool>> dense_layers(const ModelConfig& config, std::int64_t /*layers*/) {
  MORACLE_ASSIGN(const std::vector<Kind> kinds, read_kinds(config));
  std::vector<bool> dense;
  for (const Kind& kind : kinds) dense.push_back(kind != kMixture);
  return dense;
}

// The least step is time_step_min, whatever time_step_limit would allow.
Result<Mamba2Sizes> read_mamba(const ModelConfig& config) {
  const JsonReader& reader = config.reader();
  Mamba2Sizes sizes;
  StateSpaceShape& shape = sizes.shape;
  MORACLE_TRY(read_step_limit(config, shape));
  if (shape.least_step != 0.0F || shape.most_step != 0.0F) {
    constexpr std::string_view kLimit = "time_step_limit";
    return config.error("config.unsupported", kLimit, "0 to infinity", reader.json().at(std::string(kLimit)).dump());
  }
  const std::string_view least = reader.has("mamba_dt_min") ? "mamba_dt_min" : "time_step_min";
  MORACLE_ASSIGN(const double step, reader.number_or(least, 0.001, {.low = 0.0, .high = 1e6}));
  shape.least_step = static_cast<float>(step);
  MORACLE_ASSIGN(shape.heads, reader.integer_or("mamba_num_heads", 128, 1, kMaxHeads));
  MORACLE_ASSIGN(shape.head_dim, reader.integer_or("mamba_head_dim", 64, 1, kMaxHeadDim));
  MORACLE_ASSIGN(shape.groups, config.either("mamba_n_groups", "n_groups", 8, 1, kMaxHeads));
  MORACLE_ASSIGN(shape.states, reader.integer_or("ssm_state_size", 128, 1, kMaxHeadDim));
  MORACLE_ASSIGN(sizes.kernel, config.either("mamba_d_conv", "conv_kernel", 4, 1, kMaxConvolution));
  const std::string_view bias = reader.has("mamba_conv_bias") ? "mamba_conv_bias" : "use_conv_bias";
  MORACLE_ASSIGN(sizes.conv_bias, reader.boolean_or(bias, true));
  MORACLE_ASSIGN(sizes.bias, reader.boolean_or("use_bias", false));
  return sizes;
}

Result<> make_latent(const ModelConfig& config, const std::string& path, MoeSpec& moe) {
  constexpr std::string_view kKey = "moe_latent_size";
  if (!config.reader().has(kKey)) return Ok{};
  MORACLE_ASSIGN(const std::int64_t width, config.reader().integer(kKey, 1, kMaxHidden));
  const std::int64_t hidden = moe.experts.hidden;
  moe.latent = {.in = {.path = path + ".fc1_latent_proj", .out = width, .in = hidden},
                .out = {.path = path + ".fc2_latent_proj", .out = hidden, .in = width}};
  moe.experts.hidden = width;
  return Ok{};
}

Result<> finish(const ModelConfig& config, const TensorClaims& /*claims*/, const ModelSettings& settings,
                ModelSpec& spec) {
  MORACLE_ASSIGN(const std::vector<Kind> kinds, read_kinds(config));
  MORACLE_ASSIGN(const Mamba2Sizes sizes, read_mamba(config));
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    LayerSpec& layer = spec.layers[l];
    const std::string path = layer.path + ".mixer";
    if (kinds[l] == kMamba || kinds[l] == kAttention) {
      layer.feed_forward = AbsentSpec{};
      layer.post_norm = {};
      layer.mixer = attention_spec(path, settings.common, false);
      if (kinds[l] == kMamba) layer.mixer = mamba2(path, settings.common, sizes);
      continue;
    }
    layer.mixer = AbsentSpec{};
    layer.input_norm = {};
    if (auto* const moe = std::get_if<MoeSpec>(&layer.feed_forward)) MORACLE_TRY(make_latent(config, path, *moe));
  }
  return Ok{};
}

}  // namespace

// transformers' NemotronHConfig.
constexpr Architecture kNemotronH{
    .model_types = {"nemotron_h"},
    .common = {.hidden = 4096,
               .layers = 4,
               .heads = 32,
               .kv_heads = 8,
               .head_dim = 128,
               .vocabulary = 131072,
               .max_positions = 4096,
               .norm_eps = 1e-5},
    .count_layers = count_layers,
    .norm_eps = "layer_norm_epsilon",
    .embedding = "embeddings",
    .norms = {.input = ".norm", .post = ".norm"},
    .final_norm = "norm_f",
    .attention = {.bias = {{}, false}, .windows = Windows::none},
    .rope = {.by_hook = true},
    .activation = ActivationFn::relu2_no_mul,
    .router = {.scores = Scores::sigmoid,
               .experts = {{"n_routed_experts", "num_local_experts"}, 8},
               .top_k = {{"num_experts_per_tok"}, 2},
               .grouped = true,
               .factor_key = "routed_scaling_factor"},
    .moe = {.path = {"mixer"},
            .correction = {".gate.e_score_correction_bias"},
            .intermediate = {{"moe_intermediate_size"}, 7688}},
    .shared = {.path = {".shared_experts"}, .width = {{"moe_shared_expert_intermediate_size"}, 7688}},
    .dense = {.path = ".mixer", .intermediate = {{"intermediate_size"}, 21504}, .read = dense_layers},
    .demands = {{{"mlp_hidden_act", "relu2"},
                 {"mamba_hidden_act", "silu"},
                 {"n_shared_experts", std::int64_t{1}},
                 {"attention_bias", false},
                 {"mamba_proj_bias", false},
                 {"mlp_bias", false}}},
    .hook = finish};

}  // namespace moracle
