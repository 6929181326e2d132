// Step-3.5: norms with 1 + w, a norm on every head of q and k before rope, a gate on every head's output, layers with a
// sliding window and heads and rope of their own, sigmoid routing with a bias, one shared expert, clamped activations.
#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "model/architectures/architectures.h"
#include "model/spec/parts.h"

namespace moracle {

namespace {

constexpr std::string_view kSliding = "sliding_attention";
constexpr std::string_view kFull = "full_attention";
constexpr std::array<std::string_view, 2> kAttentionKinds{kFull, kSliding};
constexpr std::string_view kSparse = "sparse";
constexpr std::array<std::string_view, 2> kMlpKinds{kSparse, "dense"};

// Lists over the layers, which publishers make longer for draft heads. Empty where the config has none.
struct Lists {
  std::vector<std::string> kinds;
  std::vector<double> limits;         // of routed experts; 0: none
  std::vector<double> shared_limits;  // of the shared expert and of dense layers
  std::vector<double> thetas;
  std::vector<double> rotary_factors;
  std::vector<double> use_rope;  // 0: the layer's heads are not turned

  [[nodiscard]] std::string_view kind(std::size_t layer) const { return kinds.empty() ? kFull : kinds[layer]; }
};

// What a list of numbers may hold.
struct NumberRange {
  bool zero = true;
  double high = 0.0;
};

// A number for each layer: a list that may go on, with null for 0, or one number for all of them.
Result<std::vector<double>> layer_numbers(const ModelConfig& config, std::string_view key, std::int64_t layers,
                                          NumberRange range) {
  std::vector<double> numbers;
  const JsonReader& reader = config.reader();
  if (!reader.has(key)) return numbers;
  const Json& json = reader.json().at(std::string(key));
  if (json.is_array() && json.empty()) return numbers;
  if (json.is_array() && json.size() < static_cast<std::size_t>(layers)) {
    return config.error("config.range", key, "a number for each of " + std::to_string(layers) + " layers",
                        std::to_string(json.size()));
  }
  for (std::size_t l = 0; l < static_cast<std::size_t>(layers); ++l) {
    const Json& item = json.is_array() ? json[l] : json;
    if (!item.is_number() && !item.is_boolean() && !(json.is_array() && item.is_null())) {
      return config.error("config.type", key, "a number, or a list of numbers", item.type_name());
    }
    numbers.push_back(item.is_number()    ? item.get<double>()
                      : item.is_boolean() ? static_cast<double>(item.get<bool>())
                                          : 0.0);
    const double number = numbers.back();
    if (!(range.zero ? number >= 0.0 : number > 0.0) || number > range.high) {
      return config.error(
          "config.range", key,
          std::string("numbers ") + (range.zero ? "from" : "above") + " 0, at most " + std::to_string(range.high),
          item.dump());
    }
  }
  return numbers;
}

// "1,2,3" as numbers; those of draft heads are beyond the layers.
Result<std::vector<std::int64_t>> parse_enumeration(const ModelConfig& config, std::string_view key,
                                                    const std::string& text) {
  std::vector<std::int64_t> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    if (*at == ',' || *at == ' ') {
      ++at;
      continue;
    }
    std::int64_t number = 0;
    const auto [rest, error] = std::from_chars(at, end, number);
    if (error != std::errc{} || number < 0 || number > kMaxLayers) {
      return config.error("config.range", key, "layer numbers from 0, with commas between them", text);
    }
    numbers.push_back(number);
    at = rest;
  }
  return numbers;
}

Result<std::vector<std::int64_t>> listed_sparse_layers(const ModelConfig& config, std::string_view key) {
  const Json& json = config.reader().json().at(std::string(key));
  if (json.is_string()) return parse_enumeration(config, key, json.get<std::string>());
  return config.layer_list(key, kMaxLayers);
}

Result<std::vector<bool>> dense_layers(const ModelConfig& config, std::int64_t layers) {
  const auto count = static_cast<std::size_t>(layers);
  MORACLE_ASSIGN(const std::vector<std::string> kinds, config.layer_kinds("mlp_layer_types", layers, kMlpKinds));
  std::vector<bool> sparse(count, false);
  constexpr const char* kEnumeration = "moe_layers_enum";
  if (!config.reader().has(kEnumeration)) {
    std::fill(sparse.begin() + 1, sparse.end(), true);
  } else {
    MORACLE_ASSIGN(const std::vector<std::int64_t> listed, listed_sparse_layers(config, kEnumeration));
    for (const std::int64_t layer : listed) {
      if (layer < layers) sparse[static_cast<std::size_t>(layer)] = true;
    }
  }
  if (!kinds.empty()) {
    const std::vector<bool> enumerated = sparse;
    for (std::size_t l = 0; l < count; ++l) sparse[l] = kinds[l] == kSparse;
    if (sparse != enumerated) config.warn_unread(kEnumeration, "mlp_layer_types is there, and differs");
  }
  sparse.flip();
  return sparse;
}

Result<Lists> read_lists(const ModelConfig& config, std::int64_t layers) {
  Lists lists;
  MORACLE_ASSIGN(lists.kinds, config.layer_kinds("layer_types", layers, kAttentionKinds));
  MORACLE_ASSIGN(lists.limits, layer_numbers(config, "swiglu_limits", layers, {.high = 1e6}));
  MORACLE_ASSIGN(lists.shared_limits, layer_numbers(config, "swiglu_limits_shared", layers, {.high = 1e6}));
  MORACLE_ASSIGN(lists.thetas, layer_numbers(config, "rope_theta", layers, {.zero = false, .high = 1e15}));
  MORACLE_ASSIGN(lists.rotary_factors,
                 layer_numbers(config, "partial_rotary_factors", layers, {.zero = false, .high = 1.0}));
  MORACLE_ASSIGN(lists.use_rope, layer_numbers(config, "use_rope_layers", layers, {.high = 1.0}));
  return lists;
}

// rope_parameters goes before rope_scaling here, which was of full attention and may stand beside it.
void warn_of_rope_scaling(const ModelConfig& config) {
  const JsonReader& reader = config.reader();
  if (!reader.has("rope_parameters") || !reader.has("rope_scaling")) return;
  const Json& scaling = reader.json().at("rope_scaling");
  const Json& parameters = reader.json().at("rope_parameters");
  const Json full = parameters.is_object() ? parameters.value(std::string(kFull), parameters) : parameters;
  const bool same = scaling.is_object() && full.is_object() &&
                    std::all_of(scaling.items().begin(), scaling.items().end(), [&](const auto& item) {
                      const std::string key = item.key() == "type" ? "rope_type" : item.key();
                      return full.contains(key) && full[key] == item.value();
                    });
  if (!same) config.warn_unread("rope_scaling", "rope_parameters is there, and differs");
}

// The object below `key`, if there is one. Errors: "config.type".
Result<std::optional<JsonReader>> object_at(const JsonReader& reader, const std::string& key) {
  if (!reader.has(key)) return std::optional<JsonReader>{};
  const Json& json = reader.json().at(key);
  if (!json.is_object()) {
    return Error{.code = "config.type",
                 .file = reader.file(),
                 .where = reader.pointer(key),
                 .wanted = "an object",
                 .found = json.type_name()};
  }
  return std::optional<JsonReader>(std::in_place, json, reader.file(), reader.pointer(key));
}

// The common sizes with a layer's own numbers of heads.
Result<CommonConfig> heads_of(const ModelConfig& config, const CommonConfig& common, std::string_view kind,
                              std::size_t layer) {
  const JsonReader& reader = config.reader();
  CommonConfig c = common;
  bool own = false;
  MORACLE_ASSIGN(const auto other, object_at(reader, "attention_other_setting"));
  if (other) {
    MORACLE_ASSIGN(const std::string type, other->string_or("attention_type", std::string(kSliding)));
    if (type == kind) {
      own = other->has("num_attention_heads");
      MORACLE_ASSIGN(c.heads, other->integer_or("num_attention_heads", c.heads, 1, kMaxHeads));
      MORACLE_ASSIGN(c.kv_heads, other->integer_or("num_attention_groups", c.kv_heads, 1, kMaxHeads));
      MORACLE_ASSIGN(c.head_dim, other->integer_or("head_dim", c.head_dim, 2, kMaxHeadDim));
    }
  }
  if (kind == kSliding && reader.has("num_sliding_attention_heads")) {
    own = true;
    MORACLE_ASSIGN(c.heads, reader.integer("num_sliding_attention_heads", 1, kMaxHeads));
  }
  MORACLE_ASSIGN(const auto per_layer, object_at(reader, "per_layer_config"));
  if (!own && per_layer) {
    MORACLE_ASSIGN(const auto entry, object_at(*per_layer, std::to_string(layer)));
    if (entry) {
      MORACLE_ASSIGN(c.heads, entry->integer_or("num_attention_heads", c.heads, 1, kMaxHeads));
    }
  }
  if (c.heads % c.kv_heads != 0 || c.head_dim % 2 != 0) {
    return config.error("config.range", "num_attention_groups",
                        "a divisor of the " + std::to_string(c.heads) + " heads of layer " + std::to_string(layer) +
                            ", and heads of even size",
                        std::to_string(c.kv_heads) + " groups of size " + std::to_string(c.head_dim));
  }
  return c;
}

Result<bool> scaling_applies(const ModelConfig& config, std::string_view kind) {
  constexpr const char* kKey = "yarn_only_types";
  if (!config.reader().has(kKey)) return true;
  const Json& json = config.reader().json().at(kKey);
  if (!json.is_array()) return config.error("config.type", kKey, "a list of kinds of layers", json.type_name());
  return json.empty() || std::any_of(json.begin(), json.end(), [&](const Json& item) { return item == kind; });
}

// What holds the layer's rope parameters: its kind's entry in rope_parameters, all of them where they are not kept by
// kind, or rope_scaling.
Result<std::optional<JsonReader>> rope_source(const ModelConfig& config, std::string_view kind) {
  const JsonReader& reader = config.reader();
  MORACLE_ASSIGN(const auto parameters, object_at(reader, "rope_parameters"));
  if (!parameters) {
    MORACLE_ASSIGN(const bool applies, scaling_applies(config, kind));
    return applies ? object_at(reader, "rope_scaling") : std::optional<JsonReader>{};
  }
  const Json& json = parameters->json();
  if (std::none_of(json.begin(), json.end(), [](const Json& value) { return value.is_object(); })) return parameters;
  MORACLE_ASSIGN(auto entry, object_at(*parameters, std::string(kind)));
  if (!entry) {
    return config.error("config.missing", "rope_parameters", "an entry for layer type '" + std::string(kind) + "'",
                        "none");
  }
  return entry;
}

Result<RopeSpec> rope_of(const ModelConfig& config, const Lists& lists, const CommonConfig& c, std::size_t layer) {
  RopeDefaults defaults{.head_dim = c.head_dim, .max_positions = c.max_positions};
  if (!lists.thetas.empty()) defaults.theta = lists.thetas[layer];
  if (!lists.rotary_factors.empty()) defaults.rotary_factor = lists.rotary_factors[layer];
  MORACLE_ASSIGN(const auto source, rope_source(config, lists.kind(layer)));
  if (source) return read_rope(*source, defaults);
  const Json empty = Json::object();
  std::string pointer = config.reader().pointer("");
  pointer.pop_back();
  return read_rope(JsonReader(empty, config.reader().file(), pointer), defaults);
}

NormSpec one_plus(NormSpec norm) {
  norm.one_plus = true;
  return norm;
}

Result<AttentionSpec> attention_of(const ModelConfig& config, const TensorClaims& claims, const ModelSettings& s,
                                   const Lists& lists, ModelSpec& spec, const std::string& path, std::size_t layer) {
  const JsonReader& reader = config.reader();
  MORACLE_ASSIGN(const CommonConfig c, heads_of(config, s.common, lists.kind(layer), layer));
  AttentionSpec attention = attention_spec(path, c, s.attention_bias);
  if (s.qk_norm) {
    attention.qk_norm = {one_plus(norm_spec(path + ".q_norm", c.head_dim, c.norm_eps)),
                         one_plus(norm_spec(path + ".k_norm", c.head_dim, c.norm_eps))};
  }
  MORACLE_ASSIGN(const bool gated, reader.boolean_or("use_head_wise_attn_gate", claims.has_module(path + ".g_proj")));
  if (gated) attention.head_gate = LinearSpec{.path = path + ".g_proj", .out = c.heads, .in = c.hidden};
  if (lists.kind(layer) == kSliding) {
    MORACLE_ASSIGN(attention.shape.window, reader.integer("sliding_window", 1, kMaxPositions));
  }
  if (lists.use_rope.empty() || lists.use_rope[layer] != 0.0) {
    MORACLE_ASSIGN(const RopeSpec rope, rope_of(config, lists, c, layer));
    spec.info.max_context = std::max(spec.info.max_context, rope.max_positions);
    attention.rope = add_rope(spec, rope);
  }
  return attention;
}

ActivationSpec activation_of(const std::vector<double>& limits, std::size_t layer) {
  ActivationSpec activation;
  if (limits.empty() || limits[layer] == 0.0) return activation;
  activation.fn = ActivationFn::swiglustep;
  activation.limit = static_cast<float>(limits[layer]);
  return activation;
}

Result<> finish_mixture(const ModelConfig& config, const TensorClaims& claims, const ModelSettings& s,
                        const Lists& lists, const std::string& layer, std::size_t index, MoeSpec& moe) {
  const std::string path = layer + ".moe";
  const std::string bias = path + ".router_bias";
  MORACLE_ASSIGN(const bool biased, config.reader().boolean_or("use_moe_router_bias", claims.find(bias) != nullptr));
  if (biased) moe.correction_bias = {bias};
  moe.activation = activation_of(lists.limits, index);
  moe.experts.layouts = expert_layouts({path + ".experts", path});
  // On disk the shared expert lies beside the experts; engines, and with them lists of exclusions, put it among them.
  if (moe.shared) {
    moe.shared->mlp = shared_spec({layer + ".share_expert", path + ".share_expert"}, claims, s.common.hidden,
                                  s.shared_intermediate, activation_of(lists.shared_limits, index));
  }
  return Ok{};
}

Result<> finish(const ModelConfig& config, const TensorClaims& claims, const ModelSettings& s, ModelSpec& spec) {
  MORACLE_TRY(config.only("query_pre_attn_scalar", s.common.head_dim));
  MORACLE_ASSIGN(const Lists lists, read_lists(config, s.common.layers));
  warn_of_rope_scaling(config);
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    LayerSpec& layer = spec.layers[l];
    const std::string& path = layer.path;
    MORACLE_ASSIGN(layer.mixer, attention_of(config, claims, s, lists, spec, path + ".self_attn", l));
    if (auto* const moe = std::get_if<MoeSpec>(&layer.feed_forward)) {
      MORACLE_TRY(finish_mixture(config, claims, s, lists, path, l, *moe));
    } else {
      std::get<DenseSpec>(layer.feed_forward).activation = activation_of(lists.shared_limits, l);
    }
  }
  return Ok{};
}

}  // namespace

// transformers' Step3p7TextConfig, which is the text model of both. The ignored tensors are of a router that balances
// its load by them in training.
constexpr Architecture kStep3p5{
    .model_types = {"step3p5", "step3p7"},
    .common = {.hidden = 4096,
               .layers = 45,
               .heads = 64,
               .kv_heads = 8,
               .head_dim = 128,
               .vocabulary = 128815,
               .max_positions = 128000,
               .norm_eps = 1e-5},
    .kv_heads = {{"num_attention_groups", "num_key_value_heads"}, 8},
    .max_positions = "max_seq_len",
    .zero_centred_norms = true,
    .attention = {.qk_norm = QkNorm::heads, .has_qk_norm = {"use_qk_norm", true}, .windows = Windows::by_hook},
    .rope = {.by_hook = true},
    .router = {.scores = Scores::sigmoid,
               .experts = {{"moe_num_experts", "n_routed_experts"}, 288},
               .top_k = {{"moe_top_k", "num_experts_per_tok"}, 8},
               .renormalize = {"norm_expert_weight", true},
               .factor_key = "moe_router_scaling_factor"},
    .moe = {.path = {"moe"}, .intermediate = {{"moe_intermediate_size"}, 1280}},
    .shared = {.path = {".share_expert"}, .width = {{"share_expert_dims", "share_expert_dim"}, 1280, 0}},
    .dense = {.intermediate = {{"intermediate_size"}, 11264}, .read = dense_layers},
    .demands = {{{"moe_router_activation", "sigmoid"},
                 {"zero_centered", true},
                 {"mlp_bias", false},
                 {"use_bidirectional_attention", false}}},
    .draft_layers = true,
    .ignored = ".expert_bias",
    .hook = finish};

}  // namespace moracle
