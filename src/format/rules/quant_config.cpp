#include "format/rules/quant_config.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <utility>

#include "base/files/config_file.h"
#include "base/files/file_error.h"
#include "base/json_scanner.h"
#include "checkpoint/text_config.h"

namespace moracle {
namespace {

// Spellings of the hub: the newer one, and that of early compressed-tensors. Multimodal models have either below the
// text model's part as well.
constexpr std::array<std::string_view, 2> kSections{"/quantization_config", "/compression_config"};
constexpr std::array<std::string_view, 3> kSideFiles{"quantize_config.json", "quant_config.json",
                                                     "quantization_config.json"};
// Keys that say what the weights are; others tell how they were made.
constexpr std::array<std::string_view, 24> kTelling{"bits",
                                                    "w_bit",
                                                    "group_size",
                                                    "q_group_size",
                                                    "sym",
                                                    "zero_point",
                                                    "desc_act",
                                                    "checkpoint_format",
                                                    "quant_method",
                                                    "quant_algo",
                                                    "version",
                                                    "lm_head",
                                                    "dynamic",
                                                    "modules_to_not_convert",
                                                    "exclude_modules",
                                                    "ignore",
                                                    "exclude",
                                                    "packing_format",
                                                    "data_type",
                                                    "extra_config",
                                                    "config_groups",
                                                    "pack_dtype",
                                                    "weight_block_size",
                                                    "activation_scheme"};
// A key's newer and its older name.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kRenamed{
    {{"bits", "w_bit"}, {"group_size", "q_group_size"}, {"checkpoint_format", "format"}}};

std::string text_of(const Json& value) {
  return value.dump(-1, ' ', true).substr(0, 120);
}

// A note for each telling key that `values` and `other` say differently.
void compare(QuantConfig& config, const std::string& place, const Json& other) {
  for (const std::string_view name : kTelling) {
    const std::string key(name);
    if (!other.contains(key) || other[key].is_null() || !config.values.contains(key)) continue;
    const Json& used = config.values[key];
    if (used.is_null() || used == other[key]) continue;
    config.notes.push_back(place + key + " = " + text_of(other[key]) + " is not read: config.json says " +
                           text_of(used));
  }
}

// Old files name no method: the keys of each tool are its own.
std::string implied_method(const Json& values) {
  if (values.contains("packing_format")) return "auto-round";
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
    MORACLE_ASSIGN(const Json side, read_config_file(path));
    if (!side.is_object())
      return Error{.code = "config.type", .file = path.string(), .wanted = "an object", .found = side.type_name()};
    if (config.file.empty()) config.file = path.string();
    config.side_file = path.string();
    compare(config, std::string(name) + ": /", side);
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

// ModelOpt's own file beside config.json, which completes a section of ModelOpt's.
Result<> add_modelopt_file(const Checkpoint& checkpoint, QuantConfig& config) {
  const std::filesystem::path path = checkpoint.folder() / kModelOptFile;
  MORACLE_ASSIGN(const bool exists, file_exists(path));
  if (!exists) return Ok{};
  const std::string method = implied_or_stated(config.values);
  if (!method.empty() && !method.starts_with("modelopt")) return Ok{};
  QuantConfig side{.file = path.string(), .pointer = "", .side_file = "", .method = ""};
  MORACLE_ASSIGN(side.values, read_config_file(path));
  if (!side.values.is_object()) return side.error("config.type", "", "an object", side.values.type_name());
  MORACLE_TRY(unwrap_quantization(side));
  if (config.file.empty()) {
    config = std::move(side);
    return Ok{};
  }
  compare(config, std::string(kModelOptFile) + ": " + side.pointer + "/", side.values);
  for (const auto& [key, value] : side.values.items())
    if (Json& own = config.values[key]; own.is_null()) own = value;
  config.side_file = path.string();
  return Ok{};
}

void compare_renamed(QuantConfig& config) {
  for (const auto& [newer, older] : kRenamed) {
    const auto used = config.values.find(std::string(newer));
    const auto other = config.values.find(std::string(older));
    if (used == config.values.end() || other == config.values.end() || used->is_null() || other->is_null()) continue;
    // "format" says something else in other formats.
    if (*used == *other || (older == "format" && !(*other == "gptq" || *other == "gptq_v2"))) continue;
    config.notes.push_back(config.pointer + "/" + std::string(newer) + " = " + text_of(*used) + " is used, and not " +
                           config.pointer + "/" + std::string(older) + " = " + text_of(*other));
  }
}

// By the first module in words: scales have a column an output whichever way the words lie.
WordLayout stored_words(const Checkpoint& checkpoint) {
  constexpr std::string_view kCodes = "qweight";
  for (const auto& [name, codes] : checkpoint.tensors()) {
    if (!name.ends_with(kCodes)) continue;
    const TensorView* scales = checkpoint.find(name.substr(0, name.size() - kCodes.size()) + "scales");
    if (codes.dtype != Dtype::i32 || scales == nullptr || codes.shape.empty() || scales->shape.empty()) continue;
    const std::int64_t columns = codes.shape.back();
    if (columns == scales->shape.back()) return WordLayout::along_in;
    if (columns <= scales->shape.back() / 4 && scales->shape.back() % columns == 0) return WordLayout::along_out;
  }
  return WordLayout::none;
}

// The keys of the object at the end of the pointer, in the order of the file; none where there is no such object.
Result<> scan_keys(JsonScanner& scanner, std::string_view pointer, std::vector<std::string>& keys) {
  if (scanner.peek() != '{') return scanner.skip_value(JsonLimits{}.depth);
  const std::string_view rest = pointer.substr(std::min<std::size_t>(1, pointer.size()));
  const std::string_view wanted = rest.substr(0, rest.find('/'));
  return scanner.object([&](std::string key, std::uint64_t) -> Result<> {
    if (!pointer.empty() && key == wanted) return scan_keys(scanner, rest.substr(wanted.size()), keys);
    if (pointer.empty()) keys.push_back(std::move(key));
    return scanner.skip_value(JsonLimits{}.depth);
  });
}

Result<> check_count(const QuantConfig& config, std::string_view key, std::size_t count) {
  if (count <= kMaxListed) return Ok{};
  return config.error("config.range", key, "at most " + std::to_string(kMaxListed) + " entries", std::to_string(count));
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
  MORACLE_TRY(check_count(*this, key, member->size()));
  for (const Json& item : *member) {
    if (item.is_string()) {
      list.push_back(item.get<std::string>());
      continue;
    }
    if (!item.is_array()) return wrong;
    MORACLE_TRY(check_count(*this, key, list.size() + item.size()));
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
  MORACLE_TRY(check_count(*this, key, member->size()));
  for (const auto& [name, value] : member->items()) keys.push_back(name);
  if (keys.size() < 2) return keys;
  for (const std::string& path : {file, side_file}) {
    if (path.empty()) continue;
    MORACLE_ASSIGN(const std::string text, read_text(path, JsonLimits{}.bytes));
    JsonScanner scanner(text, 0, path, "json.syntax");
    std::vector<std::string> ordered;
    MORACLE_TRY(scan_keys(scanner, (path == file ? pointer : "") + "/" + std::string(key), ordered));
    if (ordered.size() != keys.size()) continue;
    for (const std::string& name : ordered)
      if (!member->contains(name)) return error("file.changed", key, "the keys read before", "others");
    return ordered;
  }
  return error("file.changed", key, "the section as it was read before", "another");
}

Result<QuantConfig> find_quant_config(const Checkpoint& checkpoint) {
  QuantConfig config;
  const std::string text = text_pointer(checkpoint.config());
  std::vector<std::string> pointers;
  for (const std::string_view section : kSections) {
    pointers.emplace_back(section);
    if (!text.empty()) pointers.push_back(text + std::string(section));
  }
  for (const std::string& pointer : pointers) {
    const Json* section = at_pointer(checkpoint.config(), pointer);
    if (section == nullptr) continue;
    if (!config.file.empty()) {
      if (*section != config.values)
        config.notes.push_back(pointer + " is not read: " + config.pointer + " is there, and differs");
      continue;
    }
    config.file = (checkpoint.folder() / "config.json").string();
    config.pointer = pointer;
    if (!section->is_object()) return config.error("config.type", "", "an object", section->type_name());
    config.values = *section;
  }
  MORACLE_TRY(unwrap_quantization(config));
  MORACLE_TRY(add_side_file(checkpoint, config));
  MORACLE_TRY(add_modelopt_file(checkpoint, config));
  if (config.values.empty()) return config;
  compare_renamed(config);
  config.words = stored_words(checkpoint);
  MORACLE_ASSIGN(config.method, config.reader().string_or("quant_method", ""));
  if (config.method.empty()) config.method = implied_method(config.values);
  if (config.method.empty() && config.values.contains("bits") && config.words != WordLayout::none)
    config.method = config.words == WordLayout::along_in ? "gptq" : "awq";
  if (config.method.empty())
    return config.error("config.unsupported", "quant_method", "the name of a quantization format", "none");
  return config;
}

}  // namespace moracle
