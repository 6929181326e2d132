#include "format/quant_config.h"

#include <array>
#include <filesystem>

#include "base/file_error.h"

namespace moracle {
namespace {

// Spellings of the hub: nested below text_config by multimodal models, compression_config by early
// compressed-tensors.
constexpr std::array<std::string_view, 4> kPointers{"/quantization_config", "/text_config/quantization_config",
                                                    "/compression_config", "/text_config/compression_config"};
constexpr std::array<std::string_view, 2> kSideFiles{"quantize_config.json", "quant_config.json"};

const Json* at_pointer(const Json& config, std::string_view pointer) {
  const Json* at = &config;
  while (!pointer.empty()) {
    pointer.remove_prefix(1);
    const std::size_t end = std::min(pointer.find('/'), pointer.size());
    if (!at->is_object()) return nullptr;
    const auto member = at->find(std::string(pointer.substr(0, end)));
    if (member == at->end() || member->is_null()) return nullptr;
    at = &*member;
    pointer.remove_prefix(end);
  }
  return at;
}

// Old files name no method: the keys of each tool are its own.
std::string implied_method(const Json& values) {
  if (values.contains("quant_algo")) return "modelopt";
  if (values.contains("config_groups")) return "compressed-tensors";
  if (values.contains("w_bit") || values.contains("q_group_size") || values.contains("zero_point")) return "awq";
  if (values.contains("bits") && values.contains("desc_act")) return "gptq";
  return "";
}

std::string implied_or_stated(const Json& values) {
  const auto method = values.find("quant_method");
  return method != values.end() && method->is_string() ? method->get<std::string>() : implied_method(values);
}

Result<> add_side_file(const Checkpoint& checkpoint, QuantConfig& config) {
  for (const std::string_view name : kSideFiles) {
    const std::filesystem::path path = checkpoint.folder() / name;
    MORACLE_ASSIGN(const bool exists, file_exists(path));
    if (!exists) continue;
    MORACLE_ASSIGN(const Json side, read_json(path));
    if (!side.is_object())
      return Error{.code = "config.type", .file = path.string(), .wanted = "an object", .found = side.type_name()};
    if (config.file.empty()) config.file = path.string();
    config.side_file = path.string();
    for (const auto& [key, value] : side.items())
      if (!config.values.contains(key) || config.values[key].is_null()) config.values[key] = value;
    return Ok{};
  }
  return Ok{};
}

constexpr std::string_view kModelOptFile = "hf_quant_config.json";

// ModelOpt nests its keys one level deeper in one of its two styles.
Result<> unwrap_quantization(QuantConfig& config) {
  const auto nested = config.values.find("quantization");
  if (nested == config.values.end() || nested->is_null()) return Ok{};
  if (!nested->is_object()) return config.error("config.type", "quantization", "an object", nested->type_name());
  const Json method = config.values.value("quant_method", Json());
  config.values = Json(*nested);
  if (!method.is_null()) config.values["quant_method"] = method;
  config.pointer += "/quantization";
  return Ok{};
}

// ModelOpt's own file beside config.json. It completes a section of ModelOpt's and must not say otherwise.
Result<> add_modelopt_file(const Checkpoint& checkpoint, QuantConfig& config) {
  const std::filesystem::path path = checkpoint.folder() / kModelOptFile;
  MORACLE_ASSIGN(const bool exists, file_exists(path));
  if (!exists) return Ok{};
  const std::string method = implied_or_stated(config.values);
  if (!method.empty() && !method.starts_with("modelopt")) return Ok{};
  QuantConfig side{.file = path.string(), .pointer = "", .side_file = "", .method = ""};
  MORACLE_ASSIGN(side.values, read_json(path));
  if (!side.values.is_object()) return side.error("config.type", "", "an object", side.values.type_name());
  MORACLE_TRY(unwrap_quantization(side));
  if (config.file.empty()) {
    config = std::move(side);
    return Ok{};
  }
  for (const auto& [key, value] : side.values.items()) {
    Json& own = config.values[key];
    if (key == "quant_algo" && !own.is_null() && own != value)
      return side.error("config.contradiction", key, own.dump().substr(0, 200) + ", as config.json says",
                        value.dump().substr(0, 200));
    if (own.is_null()) own = value;
  }
  config.side_file = path.string();
  return Ok{};
}

}  // namespace

Error QuantConfig::error(std::string code, std::string_view key, std::string wanted, std::string found) const {
  return Error{.code = std::move(code),
               .file = file,
               .where = pointer + (key.empty() ? "" : "/" + std::string(key)),
               .wanted = std::move(wanted),
               .found = std::move(found)};
}

Result<std::vector<std::string>> QuantConfig::strings(std::string_view key) const {
  std::vector<std::string> list;
  const auto member = values.find(std::string(key));
  if (member == values.end() || member->is_null()) return list;
  const Error wrong = error("config.type", key, "a list of strings", member->type_name());
  if (!member->is_array()) return wrong;
  for (const Json& item : *member) {
    if (item.is_string()) {
      list.push_back(item.get<std::string>());
      continue;
    }
    if (!item.is_array()) return wrong;
    for (const Json& inner : item) {
      if (!inner.is_string()) return wrong;
      list.push_back(inner.get<std::string>());
    }
  }
  return list;
}

Result<std::vector<std::string>> QuantConfig::ordered_keys(std::string_view key) const {
  std::vector<std::string> keys;
  const auto member = values.find(std::string(key));
  if (member == values.end() || member->is_null()) return keys;
  if (!member->is_object()) return error("config.type", key, "an object", member->type_name());
  for (const auto& [name, value] : member->items()) keys.push_back(name);
  if (keys.size() < 2) return keys;
  for (const std::string& path : {file, side_file}) {
    if (path.empty()) continue;
    MORACLE_ASSIGN(const std::string text, read_text(path, JsonLimits{}.bytes));
    const auto ordered = nlohmann::ordered_json::parse(text, nullptr, false);
    const nlohmann::ordered_json::json_pointer where((path == file ? pointer : "") + "/" + std::string(key));
    if (ordered.is_discarded() || !ordered.contains(where) || ordered[where].size() != keys.size()) continue;
    keys.clear();
    for (const auto& [name, value] : ordered[where].items()) keys.push_back(name);
    for (const std::string& name : keys)
      if (!member->contains(name)) return error("file.changed", key, "the keys read before", "others");
    return keys;
  }
  return error("file.changed", key, "the section as it was read before", "another");
}

Result<QuantConfig> find_quant_config(const Checkpoint& checkpoint) {
  QuantConfig config;
  for (const std::string_view pointer : kPointers) {
    const Json* section = at_pointer(checkpoint.config(), pointer);
    if (section == nullptr) continue;
    config.file = (checkpoint.folder() / "config.json").string();
    config.pointer = pointer;
    if (!section->is_object()) return config.error("config.type", "", "an object", section->type_name());
    config.values = *section;
    break;
  }
  MORACLE_TRY(unwrap_quantization(config));
  MORACLE_TRY(add_side_file(checkpoint, config));
  MORACLE_TRY(add_modelopt_file(checkpoint, config));
  if (checkpoint.config().is_object()) {
    const auto type = checkpoint.config().find("model_type");
    if (type != checkpoint.config().end() && type->is_string()) config.model_type = type->get<std::string>();
  }
  if (config.values.empty() && config.file.empty()) return config;
  MORACLE_ASSIGN(config.method, config.reader().string_or("quant_method", ""));
  if (config.method.empty()) config.method = implied_method(config.values);
  if (config.method.empty())
    return config.error("config.unsupported", "quant_method", "the name of a quantization format", "none");
  return config;
}

}  // namespace moracle
