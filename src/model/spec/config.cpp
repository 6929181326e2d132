#include "model/spec/config.h"

#include <algorithm>
#include <array>

#include "checkpoint/text_config.h"

namespace moracle {

namespace {

// Keys that architectures read of a text model, and that wrappers repeat. tie_word_embeddings and the dtype have rules
// of their own.
constexpr std::array<std::string_view, 44> kTextKeys{"attention_bias",
                                                     "clip_qkv",
                                                     "decoder_sparse_step",
                                                     "first_k_dense_replace",
                                                     "full_attention_interval",
                                                     "head_dim",
                                                     "hidden_act",
                                                     "hidden_size",
                                                     "intermediate_size",
                                                     "kv_lora_rank",
                                                     "layer_types",
                                                     "max_position_embeddings",
                                                     "mlp_layer_types",
                                                     "mlp_only_layers",
                                                     "moe_intermediate_size",
                                                     "moe_layer_freq",
                                                     "moe_num_experts",
                                                     "moe_top_k",
                                                     "n_group",
                                                     "n_routed_experts",
                                                     "n_shared_experts",
                                                     "norm_topk_prob",
                                                     "num_attention_heads",
                                                     "num_experts",
                                                     "num_experts_per_tok",
                                                     "num_hidden_layers",
                                                     "num_key_value_heads",
                                                     "num_local_experts",
                                                     "partial_rotary_factor",
                                                     "q_lora_rank",
                                                     "qk_nope_head_dim",
                                                     "qk_rope_head_dim",
                                                     "rms_norm_eps",
                                                     "rope_parameters",
                                                     "rope_scaling",
                                                     "rope_theta",
                                                     "routed_scaling_factor",
                                                     "scoring_func",
                                                     "shared_expert_intermediate_size",
                                                     "sliding_window",
                                                     "swiglu_limit",
                                                     "topk_group",
                                                     "use_qk_norm",
                                                     "vocab_size"};

// "dtype" of either part, "torch_dtype" where it is absent; null where neither is there.
struct FoundDtype {
  std::string pointer;
  std::string name;
};
Result<std::optional<FoundDtype>> find_dtype(const ModelConfig& config, const JsonReader& reader) {
  std::optional<FoundDtype> found;
  for (const std::string_view key : {"dtype", "torch_dtype"}) {
    if (!reader.has(key)) continue;
    MORACLE_ASSIGN(std::string name, reader.string_or(key, ""));
    constexpr std::string_view kPrefix = "torch.";
    if (name.starts_with(kPrefix)) name.erase(0, kPrefix.size());
    if (found) config.warn_of_two(found->pointer, found->name, reader.pointer(key), name);
    if (!found) found = FoundDtype{.pointer = reader.pointer(key), .name = std::move(name)};
  }
  return found;
}

// The whole model's part goes before the text model's.
Result<Element> read_dtype(const ModelConfig& config) {
  MORACLE_ASSIGN(std::optional<FoundDtype> found, find_dtype(config, config.reader()));
  if (config.outer()) {
    MORACLE_ASSIGN(std::optional<FoundDtype> outer, find_dtype(config, *config.outer()));
    if (outer && found) config.warn_of_two(outer->pointer, outer->name, found->pointer, found->name);
    if (outer) found = std::move(outer);
  }
  if (!found || found->name == "bfloat16") return Element::bf16;
  if (found->name == "float16") return Element::f16;
  if (found->name == "float32") return Element::f32;
  return Error{.code = "config.unsupported",
               .file = config.reader().file(),
               .where = found->pointer,
               .wanted = "bfloat16, float16 or float32",
               .found = found->name};
}

// Either part may tie the head; the whole model's goes first.
Result<bool> read_tied(const ModelConfig& config, bool fallback) {
  constexpr const char* kKey = "tie_word_embeddings";
  MORACLE_ASSIGN(const bool inner, config.reader().boolean_or(kKey, fallback));
  if (!config.outer() || !config.outer()->has(kKey)) return inner;
  MORACLE_ASSIGN(const bool tied, config.outer()->boolean_or(kKey, fallback));
  if (config.reader().has(kKey)) {
    config.warn_of_two(config.outer()->pointer(kKey), tied, config.reader().pointer(kKey), inner);
  }
  return tied;
}

// Short enough for one line.
std::string text_of(const Json& value) {
  constexpr std::size_t kLongest = 120;
  std::string text = value.dump(-1, ' ', true);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

}  // namespace

Result<ModelConfig> ModelConfig::of(const Checkpoint& checkpoint) {
  const Json& whole = checkpoint.config();
  const std::string file = (checkpoint.folder() / "config.json").string();
  if (!whole.is_object()) {
    return Error{.code = "config.type", .file = file, .wanted = "an object", .found = whole.type_name()};
  }
  const JsonReader top(whole, file);
  std::vector<std::string> types;
  const Json* text = &whole;
  std::string pointer;
  std::optional<JsonReader> outer;
  if (const std::string place = text_pointer(whole); !place.empty()) {
    outer.emplace(top);
    text = at_pointer(whole, place);
    pointer = place;
    if (!text->is_object()) {
      return Error{
          .code = "config.type", .file = file, .where = pointer, .wanted = "an object", .found = text->type_name()};
    }
    MORACLE_ASSIGN(std::string type, JsonReader(*text, file, pointer).string_or("model_type", ""));
    if (!type.empty()) types.push_back(std::move(type));
  }
  MORACLE_ASSIGN(std::string type, top.string_or("model_type", ""));
  if (!type.empty()) types.push_back(std::move(type));
  if (types.empty()) {
    return Error{.code = "config.missing",
                 .file = file,
                 .where = "/model_type",
                 .wanted = "the model's type",
                 .found = "nothing"};
  }
  ModelConfig config(JsonReader(*text, file, pointer), outer, std::move(types));
  config.compare_with_outer();
  return config;
}

void ModelConfig::compare_with_outer() const {
  if (!outer_) return;
  for (const std::string_view key : kTextKeys) {
    if (!outer_->has(key)) continue;
    const Json& ignored = outer_->json().at(std::string(key));
    if (reader_.has(key)) {
      warn_of_two(reader_.pointer(key), reader_.json().at(std::string(key)), outer_->pointer(key), ignored);
    } else {
      const std::string inner = reader_.pointer(key);
      warn(outer_->pointer(key) + " = " + text_of(ignored) + " is not read: the text model's keys are below " +
           inner.substr(0, inner.rfind('/')) + ", which has no " + std::string(key));
    }
  }
}

void ModelConfig::warn(std::string text) const {
  text = "config.json: " + text;
  if (std::find(warnings_->begin(), warnings_->end(), text) == warnings_->end()) warnings_->push_back(std::move(text));
}

void ModelConfig::warn_of_two(const std::string& used, const Json& value, const std::string& unused,
                              const Json& other) const {
  if (value == other) return;
  warn(used + " = " + text_of(value) + " is used, and not " + unused + " = " + text_of(other));
}

void ModelConfig::warn_unread(std::string_view key, std::string_view why) const {
  if (!reader_.has(key)) return;
  const Json& value = reader_.json().at(std::string(key));
  const bool silent = value == false || ((value.is_array() || value.is_object()) && value.empty());
  if (!silent) warn(reader_.pointer(key) + " = " + text_of(value) + " is not read: " + std::string(why));
}

Error ModelConfig::error(std::string code, std::string_view key, std::string wanted, std::string found) const {
  return Error{.code = std::move(code),
               .file = reader_.file(),
               .where = reader_.pointer(key),
               .wanted = std::move(wanted),
               .found = std::move(found)};
}

Result<CommonConfig> ModelConfig::common(const CommonConfig& defaults) const {
  CommonConfig c;
  MORACLE_ASSIGN(c.hidden, reader_.integer_or("hidden_size", defaults.hidden, 1, kMaxHidden));
  MORACLE_ASSIGN(c.layers, reader_.integer_or("num_hidden_layers", defaults.layers, 1, kMaxLayers));
  MORACLE_ASSIGN(c.heads, reader_.integer_or("num_attention_heads", defaults.heads, 1, kMaxHeads));
  // A null here means plain multi-head attention in the config classes that allow it.
  const bool null_kv_heads = reader_.json().contains("num_key_value_heads") && !reader_.has("num_key_value_heads");
  MORACLE_ASSIGN(c.kv_heads,
                 reader_.integer_or("num_key_value_heads", null_kv_heads ? c.heads : defaults.kv_heads, 1, kMaxHeads));
  if (c.heads % c.kv_heads != 0) {
    return error("config.range", "num_key_value_heads", "a divisor of num_attention_heads = " + std::to_string(c.heads),
                 std::to_string(c.kv_heads));
  }
  const std::int64_t default_head_dim = defaults.head_dim != 0 ? defaults.head_dim : c.hidden / c.heads;
  if (!reader_.has("head_dim") && defaults.head_dim == 0 && c.hidden % c.heads != 0) {
    return error("config.range", "num_attention_heads", "a divisor of hidden_size = " + std::to_string(c.hidden),
                 std::to_string(c.heads));
  }
  MORACLE_ASSIGN(c.head_dim, reader_.integer_or("head_dim", default_head_dim, 2, kMaxHeadDim));
  if (c.head_dim % 2 != 0) {
    return error("config.range", "head_dim", "an even number", std::to_string(c.head_dim));
  }
  MORACLE_ASSIGN(c.vocabulary, reader_.integer_or("vocab_size", defaults.vocabulary, 1, kMaxVocabulary));
  MORACLE_ASSIGN(c.max_positions,
                 reader_.integer_or("max_position_embeddings", defaults.max_positions, 1, kMaxPositions));
  MORACLE_ASSIGN(c.norm_eps,
                 reader_.number_or("rms_norm_eps", defaults.norm_eps, {.low = 0.0, .high = 1.0, .above_low = true}));
  MORACLE_ASSIGN(c.tied, read_tied(*this, defaults.tied));
  MORACLE_ASSIGN(c.dtype, read_dtype(*this));
  return c;
}

Result<std::int64_t> ModelConfig::either(std::string_view key, std::string_view other, std::int64_t fallback,
                                         std::int64_t low, std::int64_t high) const {
  if (!reader_.has(key)) return reader_.integer_or(other, fallback, low, high);
  if (reader_.has(other)) {
    warn_of_two(reader_.pointer(key), reader_.json().at(std::string(key)), reader_.pointer(other),
                reader_.json().at(std::string(other)));
  }
  return reader_.integer(key, low, high);
}

void ModelConfig::warn_of_kinds(std::string_view key, const std::vector<std::string>& used,
                                std::string_view why) const {
  if (!reader_.has(key)) return;
  const Json& list = reader_.json().at(std::string(key));
  const bool same = list.is_array() && list.size() >= used.size() &&
                    std::equal(used.begin(), used.end(), list.begin(),
                               [](const std::string& kind, const Json& entry) { return entry == kind; });
  if (!same) warn_unread(key, why);
}

void ModelConfig::warn_of_window() const {
  const Result<bool> asked = reader_.boolean_or("use_sliding_window", true);
  if (!asked.ok() || *asked) warn_unread("sliding_window", "attention of this architecture sees all positions");
}

Result<ActivationFn> ModelConfig::activation(std::string_view key) const {
  MORACLE_ASSIGN(const std::string name, reader_.string_or(key, "silu"));
  if (name == "silu" || name == "swish") return ActivationFn::silu;
  return error("config.unsupported", key, "silu", name);
}

Result<std::vector<std::int64_t>> ModelConfig::layer_list(std::string_view key, std::int64_t layers) const {
  std::vector<std::int64_t> list;
  if (!reader_.has(key)) return list;
  const Json& json = reader_.json().at(std::string(key));
  if (!json.is_array()) return error("config.type", key, "a list of layer numbers", json.type_name());
  for (const Json& item : json) {
    if (!item.is_number_integer()) return error("config.type", key, "a list of layer numbers", item.type_name());
    const bool huge = item.is_number_unsigned() && item.get<std::uint64_t>() >= static_cast<std::uint64_t>(layers);
    const std::int64_t layer = huge ? -1 : item.get<std::int64_t>();
    if (layer < 0 || layer >= layers) {
      return error("config.range", key, "layers 0 to " + std::to_string(layers - 1), item.dump());
    }
    list.push_back(layer);
  }
  return list;
}

Result<std::vector<std::string>> ModelConfig::layer_kinds(std::string_view key, std::int64_t layers,
                                                          std::span<const std::string_view> known) const {
  std::vector<std::string> kinds;
  if (!reader_.has(key)) return kinds;
  const Json& json = reader_.json().at(std::string(key));
  if (!json.is_array()) return error("config.type", key, "a list of kinds of layers", json.type_name());
  if (json.size() < static_cast<std::size_t>(layers)) {
    return error("config.range", key, "a kind for each of " + std::to_string(layers) + " layers",
                 std::to_string(json.size()));
  }
  for (std::size_t l = 0; l < static_cast<std::size_t>(layers); ++l) {
    const Json& item = json[l];
    if (!item.is_string()) return error("config.type", key, "a list of kinds of layers", item.type_name());
    kinds.push_back(item.get<std::string>());
    if (std::find(known.begin(), known.end(), kinds.back()) != known.end()) continue;
    std::string list;
    for (const std::string_view kind : known) list += (list.empty() ? "" : ", ") + std::string(kind);
    return error("config.unsupported", key, "one of " + list, kinds.back());
  }
  return kinds;
}

Result<std::vector<bool>> ModelConfig::layer_flags(std::string_view key, std::int64_t layers) const {
  std::vector<bool> flags;
  if (!reader_.has(key)) return flags;
  const Json& json = reader_.json().at(std::string(key));
  if (!json.is_array()) return error("config.type", key, "a list of 0 and 1", json.type_name());
  if (json.empty()) return flags;
  if (json.size() < static_cast<std::size_t>(layers)) {
    return error("config.range", key, "0 or 1 for each of " + std::to_string(layers) + " layers",
                 std::to_string(json.size()));
  }
  for (std::size_t l = 0; l < static_cast<std::size_t>(layers); ++l) {
    if (json[l] != 0 && json[l] != 1) return error("config.range", key, "0 or 1", json[l].dump());
    flags.push_back(json[l] == 1);
  }
  return flags;
}

Result<float> ModelConfig::positive(std::string_view key, double fallback, double high) const {
  MORACLE_ASSIGN(const double value, reader_.number_or(key, fallback, {.low = 0.0, .high = high, .above_low = true}));
  return static_cast<float>(value);
}

Result<> ModelConfig::only(std::string_view key, const Json& value) const {
  if (!reader_.has(key)) return Ok{};
  const Json& found = reader_.json().at(std::string(key));
  if (found == value) return Ok{};
  return error("config.unsupported", key, value.dump(), found.dump());
}

}  // namespace moracle
