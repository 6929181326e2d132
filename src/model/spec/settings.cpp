// Reads config.json by an architecture's row.
#include <algorithm>

#include "model/spec/architecture.h"

namespace moracle {

namespace {

constexpr std::string_view kSliding = "sliding_attention";
constexpr std::string_view kFull = "full_attention";
constexpr std::string_view kSparse = "sparse";
constexpr std::string_view kDense = "dense";
constexpr std::array kAttentionKinds{kSliding, kFull};
constexpr std::array kMlpKinds{kSparse, kDense};

Result<bool> read(const ModelConfig& config, const Flag& flag) {
  if (flag.key.empty()) return flag.fallback;
  if (!flag.other.empty() && !config.reader().has(flag.key)) {
    return config.reader().boolean_or(flag.other, flag.fallback);
  }
  return config.reader().boolean_or(flag.key, flag.fallback);
}

// The one number of a list over layers whose entries are equal; none where the key has no list. Errors:
// "config.unsupported" where they differ.
Result<std::optional<std::int64_t>> listed_number(const ModelConfig& config, const Number& number, std::int64_t most) {
  for (const std::string_view key : number.keys) {
    if (key.empty() || !config.reader().has(key)) continue;
    const Json& json = config.reader().json().at(std::string(key));
    if (!json.is_array() || json.empty()) break;
    for (const Json& item : json) {
      if (item == json.front()) continue;
      return config.error("config.unsupported", key, "the same number for every layer", "others");
    }
    const Json one{{std::string(key), json.front()}};
    const JsonReader reader(one, config.reader().file(), config.reader().pointer(""));
    MORACLE_ASSIGN(const std::int64_t value, reader.integer(key, number.least, most));
    return std::optional<std::int64_t>(value);
  }
  return std::optional<std::int64_t>{};
}

Result<std::int64_t> read(const ModelConfig& config, const Number& number, std::int64_t most) {
  MORACLE_ASSIGN(const std::optional<std::int64_t> listed, listed_number(config, number, most));
  if (listed) return *listed;
  const auto& [first, second] = number.keys;
  if (first.empty()) return number.fallback;
  if (second.empty()) return config.reader().integer_or(first, number.fallback, number.least, most);
  return config.either(first, second, number.fallback, number.least, most);
}

Result<CommonConfig> read_common(const Architecture& row, const ModelConfig& config) {
  const JsonReader& reader = config.reader();
  CommonConfig defaults = row.common;
  if (defaults.kv_heads == 0) {
    MORACLE_ASSIGN(defaults.kv_heads, reader.integer_or("num_attention_heads", defaults.heads, 1, kMaxHeads));
  }
  const bool spelled = !row.kv_heads.keys[0].empty();
  if (spelled) {
    MORACLE_ASSIGN(defaults.kv_heads, read(config, row.kv_heads, kMaxHeads));
  }
  if (!row.max_positions.empty()) {
    MORACLE_ASSIGN(defaults.max_positions,
                   reader.integer_or(row.max_positions, defaults.max_positions, 1, kMaxPositions));
  }
  if (!row.norm_eps.empty()) {
    MORACLE_ASSIGN(defaults.norm_eps, config.positive(row.norm_eps, defaults.norm_eps, 1.0));
  }
  MORACLE_ASSIGN(CommonConfig common, config.common(defaults));
  if (spelled) common.kv_heads = defaults.kv_heads;
  if (row.count_layers != nullptr) {
    MORACLE_ASSIGN(const std::int64_t layers, row.count_layers(config));
    if (layers != common.layers) config.warn_unread("num_hidden_layers", "other keys count the layers");
    common.layers = layers;
  }
  return common;
}

Result<ActivationSpec> read_activation(const Architecture& row, const ModelConfig& config) {
  ActivationSpec activation;
  if (row.activation == ActivationFn::gelu_tanh || row.activation == ActivationFn::relu2_no_mul) {
    activation.fn = row.activation;
    return activation;
  }
  MORACLE_ASSIGN(activation.fn, config.activation());
  if (row.activation != ActivationFn::swigluoai) return activation;
  activation.fn = row.activation;
  MORACLE_ASSIGN(activation.alpha, config.positive("swiglu_alpha", 1.702, 1e6));
  MORACLE_ASSIGN(activation.limit, config.positive("swiglu_limit", 7.0, 1e6));
  return activation;
}

Result<> check_demands(const Architecture& row, const ModelConfig& config) {
  for (const Demand& demand : row.demands) {
    if (demand.key.empty()) break;
    MORACLE_TRY(config.only(demand.key, std::visit([](const auto& value) { return Json(value); }, demand.value)));
  }
  return Ok{};
}

Result<RoutingSpec> read_routing(const RouterRow& row, const ModelConfig& config) {
  if (row.read != nullptr) return row.read(config);
  const JsonReader& reader = config.reader();
  RoutingSpec routing;
  MORACLE_ASSIGN(routing.experts, read(config, row.experts, kMaxExperts));
  if (routing.experts > 0) {
    MORACLE_ASSIGN(routing.top_k, read(config, row.top_k, std::min(kMaxTopK, routing.experts)));
  }
  if (row.grouped) {
    const std::string_view key = row.group_key.empty() ? "n_group" : row.group_key;
    MORACLE_ASSIGN(routing.groups, config.either(key, "n_group", row.groups, 1, routing.experts));
    MORACLE_ASSIGN(routing.top_groups, reader.integer_or("topk_group", row.top_groups, 1, routing.groups));
  }
  MORACLE_ASSIGN(const bool renormalize, read(config, row.renormalize));
  if (!row.factor_key.empty()) {
    MORACLE_ASSIGN(routing.factor, config.positive(row.factor_key, row.factor, 1e6));
  }
  switch (row.scores) {
    case Scores::softmax:
      routing.method = renormalize ? Routing::softmax_topk_renorm : Routing::softmax_topk;
      break;
    case Scores::softmax_with_bias:
      routing.method = Routing::softmax_bias_renorm;
      routing.renormalize = renormalize;
      break;
    case Scores::sigmoid_of_chosen:
      routing.method = Routing::topk_sigmoid;
      break;
    case Scores::sparse_mixer:
      routing.method = Routing::sparse_mixer;
      break;
    case Scores::softmax_of_chosen:
      routing.method = Routing::topk_softmax;
      break;
    case Scores::sigmoid:
      routing.method = routing.groups > 1 ? Routing::grouped_sigmoid_bias : Routing::sigmoid_bias_renorm;
      routing.renormalize = renormalize;
  }
  return routing;
}

Result<std::int64_t> read_shared(const SharedRow& row, const ModelConfig& config, std::int64_t expert_intermediate) {
  if (row.path[0].empty()) return 0;
  if (!row.width.keys[0].empty()) return read(config, row.width, kMaxIntermediate);
  MORACLE_ASSIGN(const std::int64_t count, read(config, row.count, kMaxExperts));
  if (row.each.empty()) return count * expert_intermediate;
  MORACLE_ASSIGN(const std::int64_t each,
                 config.reader().integer_or(row.each, expert_intermediate, 1, kMaxIntermediate));
  return count * each;
}

Result<std::vector<bool>> dense_by_step(const ModelConfig& config, std::int64_t layers, std::int64_t experts) {
  MORACLE_ASSIGN(const std::int64_t step, config.reader().integer_or("decoder_sparse_step", 1, 1, kMaxLayers));
  MORACLE_ASSIGN(const std::vector<std::int64_t> listed, config.layer_list("mlp_only_layers", layers));
  std::vector<bool> dense;
  for (std::int64_t l = 0; l < layers; ++l) dense.push_back(experts == 0 || (l + 1) % step != 0);
  for (const std::int64_t l : listed) dense[static_cast<std::size_t>(l)] = true;
  return dense;
}

Result<std::vector<bool>> read_dense(const DenseRow& row, const ModelConfig& config, std::int64_t layers,
                                     std::int64_t experts) {
  if (row.read != nullptr) return row.read(config, layers);
  std::vector<bool> dense(static_cast<std::size_t>(layers), false);
  if (row.layers == DenseLayers::none) return dense;
  const char* why = "first_k_dense_replace says which layers are dense";
  std::vector<std::string> listed;
  if (row.layers == DenseLayers::by_step) {
    MORACLE_ASSIGN(dense, dense_by_step(config, layers, experts));
    why = "decoder_sparse_step and mlp_only_layers say which are dense";
  } else {
    MORACLE_ASSIGN(const std::int64_t first, read(config, row.first, kMaxLayers));
    MORACLE_ASSIGN(const std::int64_t step, read(config, row.step, kMaxLayers));
    for (std::int64_t l = 0; l < layers; ++l) dense[static_cast<std::size_t>(l)] = l < first || l % step != 0;
  }
  if (row.layers == DenseLayers::by_kind) {
    MORACLE_ASSIGN(listed, config.layer_kinds("mlp_layer_types", layers, kMlpKinds));
  }
  if (!listed.empty()) {
    const std::vector<bool> counted = dense;
    for (std::size_t l = 0; l < dense.size(); ++l) dense[l] = listed[l] == kDense;
    if (dense != counted) config.warn_unread(row.first.keys[0], "mlp_layer_types is there, and differs");
    return dense;
  }
  std::vector<std::string> kinds;
  for (const bool is_dense : dense) kinds.emplace_back(is_dense ? kDense : kSparse);
  config.warn_of_kinds("mlp_layer_types", kinds, why);
  return dense;
}

// One window for every layer, or none.
Result<std::int64_t> read_window(const AttentionRow& row, const ModelConfig& config, std::int64_t layers) {
  const JsonReader& reader = config.reader();
  std::int64_t window = 0;
  const auto warn_of_kinds = [&](const char* why) {
    const std::vector<std::string> kinds(static_cast<std::size_t>(layers), std::string(window > 0 ? kSliding : kFull));
    config.warn_of_kinds("layer_types", kinds, why);
  };
  if (row.windows == Windows::optional) {
    if (reader.has("sliding_window")) {
      MORACLE_ASSIGN(window, reader.integer("sliding_window", 1, kMaxPositions));
    }
    warn_of_kinds("sliding_window gives every layer the same window, or none");
    const Result<bool> asked = reader.boolean_or("use_sliding_window", window > 0);
    if (!asked.ok() || *asked != (window > 0)) {
      config.warn("use_sliding_window is not read: sliding_window is null, or the window of every layer");
    }
    return window;
  }
  MORACLE_ASSIGN(const bool sliding, reader.boolean_or("use_sliding_window", false));
  if (sliding) {
    MORACLE_ASSIGN(window, reader.integer_or("sliding_window", row.window, 1, kMaxPositions));
  }
  warn_of_kinds("use_sliding_window gives every layer the same window, or none");
  if (sliding) config.warn_unread("max_window_layers", "use_sliding_window gives every layer the same window");
  return window;
}

Result<> read_windows(const AttentionRow& row, const ModelConfig& config, ModelSettings& s) {
  const JsonReader& reader = config.reader();
  const auto layers = static_cast<std::size_t>(s.common.layers);
  s.kinds.assign(layers, std::string(kFull));
  s.windows.assign(layers, 0);
  switch (row.windows) {
    case Windows::none:
      config.warn_of_window();
      return Ok{};
    case Windows::by_hook:
      return Ok{};
    case Windows::optional:
    case Windows::switched: {
      MORACLE_ASSIGN(const std::int64_t window, read_window(row, config, s.common.layers));
      s.windows.assign(layers, window);
      return Ok{};
    }
    case Windows::by_kind:
    case Windows::switched_by_kind:
    case Windows::above_by_kind:
      break;
  }
  const bool switched = row.windows == Windows::switched_by_kind;
  const bool above = row.windows == Windows::above_by_kind;
  MORACLE_ASSIGN(const bool asked, read(config, switched ? Flag{"use_sliding_window", false} : Flag{{}, true}));
  const bool sliding = asked && !(above && !reader.has("sliding_window"));
  MORACLE_ASSIGN(const std::int64_t first,
                 read(config, above ? Number{{"max_window_layers"}, kMaxLayers, 0} : Number{{}, 0}, kMaxLayers));
  MORACLE_ASSIGN(const std::int64_t most,
                 read(config, switched ? Number{{"max_window_layers"}, 28, 0} : Number{{}, kMaxLayers}, kMaxLayers));
  MORACLE_ASSIGN(const std::vector<std::string> listed,
                 config.layer_kinds("layer_types", s.common.layers, kAttentionKinds));
  std::int64_t pattern = above ? kMaxLayers + 1 : row.pattern.fallback;
  if (listed.empty() && !above) {
    MORACLE_ASSIGN(pattern, read(config, row.pattern, kMaxLayers));
  }
  for (std::size_t l = 0; l < layers; ++l) {
    const auto layer = static_cast<std::int64_t>(l);
    const bool window = sliding && (layer + 1) % pattern != 0 && layer >= first && layer < most;
    s.kinds[l] = !listed.empty() ? listed[l] : std::string(window ? kSliding : kFull);
  }
  if (!sliding) return Ok{};
  MORACLE_ASSIGN(const std::int64_t window, reader.integer_or("sliding_window", row.window, 1, kMaxPositions));
  for (std::size_t l = 0; l < layers; ++l) s.windows[l] = s.kinds[l] == kSliding ? window : 0;
  return Ok{};
}

// Heads of each layer, which share the key heads.
Result<> read_sizes(const AttentionRow& row, const ModelConfig& config, ModelSettings& s) {
  s.sizes.assign(static_cast<std::size_t>(s.common.layers), s.common);
  if (row.sizes != nullptr) return row.sizes(config, s);
  if (row.heads_by_layer.empty() || !config.reader().has(row.heads_by_layer)) return Ok{};
  const Json& list = config.reader().json().at(std::string(row.heads_by_layer));
  if (!list.is_array() || list.size() < s.sizes.size()) {
    return config.error("config.range", row.heads_by_layer,
                        "a number for each of " + std::to_string(s.sizes.size()) + " layers",
                        list.is_array() ? std::to_string(list.size()) : list.type_name());
  }
  for (std::size_t l = 0; l < s.sizes.size(); ++l) {
    const bool usable = list[l].is_number_integer() && list[l] >= 1 && list[l] <= kMaxHeads &&
                        list[l].get<std::int64_t>() % s.common.kv_heads == 0;
    if (!usable) {
      return config.error("config.range", row.heads_by_layer,
                          "multiples of num_key_value_heads = " + std::to_string(s.common.kv_heads), list[l].dump());
    }
    s.sizes[l].heads = list[l].get<std::int64_t>();
  }
  return Ok{};
}

Result<> read_latent(const LatentRow& row, const ModelConfig& config, ModelSettings& s) {
  const JsonReader& reader = config.reader();
  if (s.common.kv_heads != s.common.heads) {
    return config.error("config.unsupported", "num_key_value_heads",
                        "num_attention_heads = " + std::to_string(s.common.heads) + ": the latent serves every head",
                        std::to_string(s.common.kv_heads));
  }
  LatentAttentionShape& a = s.latent;
  a.heads = s.common.heads;
  MORACLE_ASSIGN(a.qk_nope_head_dim, reader.integer_or("qk_nope_head_dim", row.qk_nope_head_dim, 1, kMaxHeadDim));
  MORACLE_ASSIGN(a.qk_rope_head_dim, reader.integer_or("qk_rope_head_dim", row.qk_rope_head_dim, 2, kMaxHeadDim));
  MORACLE_ASSIGN(a.v_head_dim, reader.integer_or("v_head_dim", row.v_head_dim, 1, kMaxHeadDim));
  MORACLE_ASSIGN(a.kv_lora_rank, reader.integer_or("kv_lora_rank", row.kv_lora_rank, 1, kMaxHidden));
  MORACLE_ASSIGN(a.interleaved, reader.boolean_or("rope_interleave", true));
  // A null rank is a value of its own, not an absent one.
  const bool direct = reader.json().contains("q_lora_rank") && !reader.has("q_lora_rank");
  if (direct) return Ok{};
  MORACLE_ASSIGN(s.q_lora_rank, reader.integer_or("q_lora_rank", row.q_lora_rank, 1, kMaxHidden));
  return Ok{};
}

Result<> read_multipliers(const MultiplierRow& row, const ModelConfig& config, Multipliers& multipliers) {
  const auto number = [&](std::string_view key) -> Result<float> {
    if (key.empty()) return 1.0F;
    return config.positive(key, 1.0, 1e6);
  };
  MORACLE_ASSIGN(multipliers.embedding, number(row.embedding));
  MORACLE_ASSIGN(multipliers.residual, number(row.residual));
  MORACLE_ASSIGN(const float logits, number(row.logits));
  multipliers.head = 1.0F / logits;
  return Ok{};
}

}  // namespace

Result<ModelSettings> read_settings(const Architecture& row, const ModelConfig& config) {
  ModelSettings s;
  MORACLE_ASSIGN(s.common, read_common(row, config));
  MORACLE_ASSIGN(s.activation, read_activation(row, config));
  MORACLE_TRY(check_demands(row, config));
  MORACLE_ASSIGN(s.routing, read_routing(row.router, config));
  MORACLE_ASSIGN(s.expert_intermediate, read(config, row.moe.intermediate, kMaxIntermediate));
  MORACLE_ASSIGN(s.shared_intermediate, read_shared(row.shared, config, s.expert_intermediate));
  if (row.dense.layers != DenseLayers::none || row.dense.read != nullptr) {
    MORACLE_ASSIGN(s.dense_intermediate, read(config, row.dense.intermediate, kMaxIntermediate));
  }
  MORACLE_ASSIGN(s.dense, read_dense(row.dense, config, s.common.layers, s.routing.experts));
  MORACLE_TRY(read_windows(row.attention, config, s));
  MORACLE_TRY(read_sizes(row.attention, config, s));
  MORACLE_ASSIGN(s.attention_bias, read(config, row.attention.bias));
  if (row.attention.qk_norm != QkNorm::none) {
    MORACLE_ASSIGN(s.qk_norm, read(config, row.attention.has_qk_norm));
  }
  if (!row.attention.clip.empty() && config.reader().has(row.attention.clip)) {
    MORACLE_ASSIGN(s.clip, config.positive(row.attention.clip, 0.0, 1e6));
  }
  if (!row.attention.scale.empty()) {
    MORACLE_ASSIGN(s.score_scale, config.positive(row.attention.scale, 1.0, 1e6));
  }
  MORACLE_TRY(read_multipliers(row.multipliers, config, s.multipliers));
  if (row.latent) MORACLE_TRY(read_latent(*row.latent, config, s));
  return s;
}

}  // namespace moracle
