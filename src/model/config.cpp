#include "model/config.h"

#include <algorithm>

namespace moracle {

namespace {

// "torch_dtype" was renamed "dtype"; a converter may leave both, and then the newer one holds.
Result<Element> read_dtype(const ModelConfig& config) {
  const JsonReader& reader = config.reader();
  const std::string_view key = reader.has("dtype") ? "dtype" : "torch_dtype";
  MORACLE_ASSIGN(const std::string name, reader.string_or(key, "bfloat16"));
  if (name == "bfloat16" || name == "torch.bfloat16") return Element::bf16;
  if (name == "float16" || name == "torch.float16") return Element::f16;
  if (name == "float32" || name == "torch.float32") return Element::f32;
  return config.error("config.unsupported", key, "bfloat16, float16 or float32", name);
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
  if (top.has("text_config")) {
    text = &whole.at("text_config");
    pointer = "/text_config";
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
  return ModelConfig(JsonReader(*text, file, pointer), std::move(types));
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
  MORACLE_ASSIGN(c.tied, reader_.boolean_or("tie_word_embeddings", defaults.tied));
  MORACLE_ASSIGN(c.dtype, read_dtype(*this));
  return c;
}

Result<std::int64_t> ModelConfig::either(std::string_view key, std::string_view other, std::int64_t fallback,
                                         std::int64_t low, std::int64_t high) const {
  if (!reader_.has(other)) return reader_.integer_or(key, fallback, low, high);
  MORACLE_ASSIGN(const std::int64_t second, reader_.integer(other, low, high));
  MORACLE_ASSIGN(const std::int64_t first, reader_.integer_or(key, second, low, high));
  if (first != second) {
    return error("config.contradiction", key, "the value of " + std::string(other) + ", " + std::to_string(second),
                 std::to_string(first));
  }
  return first;
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
