// NVIDIA ModelOpt, per module:
//   NVFP4, W4A16_NVFP4        weight U8 [out, in / 2], weight_scale E4M3 [out, in / 16], weight_scale_2 []; input_scale
//                             [], 1 / G, where activations are quantized
//   FP8                       weight E4M3, weight_scale [], input_scale []
//   FP8_PER_CHANNEL_PER_TOKEN weight E4M3, weight_scale [out]
//   FP8_PB_WO                 weight E4M3, weight_scale [out / 128, 1, in / 128, 1]
//   MXFP8                     weight E4M3, weight_scale U8 [out, in / 32]
// Experts may be stacked and packed along the input: "<path>" [experts, in / 2, rows], "<path>_weight_scale", ...
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "format/decode/code_module.h"
#include "format/decode/plain.h"
#include "format/formats.h"
#include "format/rules/module_match.h"

namespace moracle {
namespace {

struct Algorithm {
  std::string_view name;
  QuantKey weight;
  std::optional<QuantKey> activation;
  std::int64_t group = 0;  // what a stated group_size must be; 0: any
};

constexpr std::array kAlgorithms{
    Algorithm{"FP8", fp8_key(Granularity::tensor()), fp8_key(Granularity::tensor()), 0},
    Algorithm{"FP8_PER_CHANNEL_PER_TOKEN", fp8_key(Granularity::channel()), dynamic(fp8_key(Granularity::token())), 0},
    Algorithm{"FP8_PB_WO", fp8_key(Granularity::block(128, 128)), std::nullopt, 128},
    Algorithm{"NVFP4", nvfp4_key(), dynamic(nvfp4_key()), 16},
    Algorithm{"W4A16_NVFP4", nvfp4_key(), std::nullopt, 16},
    Algorithm{"MXFP8", mx_key(Element::e4m3), dynamic(mx_key(Element::e4m3)), 32},
};
constexpr std::string_view kMixed = "MIXED_PRECISION";

std::string known_algorithms() {
  std::string known;
  for (const Algorithm& algorithm : kAlgorithms) known += std::string(algorithm.name) + ", ";
  return "one of " + known + std::string(kMixed);
}

class ModelOpt final : public SchemeFormat {
 public:
  static Result<std::unique_ptr<Format>> make(const QuantConfig& config) {
    auto format = std::make_unique<ModelOpt>();
    MORACLE_ASSIGN(std::string algorithm, config.reader().string_or("quant_algo", ""));
    if (algorithm.empty() && config.method.ends_with("mxfp8")) algorithm = "MXFP8";
    if (algorithm.empty()) return config.error("config.missing", "quant_algo", known_algorithms(), "nothing");
    MORACLE_TRY(format->add_excludes(config));
    if (algorithm == kMixed) {
      MORACLE_TRY(format->add_layers(config));
    } else {
      if (algorithm == "NVFP4" && weights_only(config)) algorithm = "W4A16_NVFP4";
      MORACLE_ASSIGN(format->all_, format->make_algorithm(config, config.values, "", algorithm));
    }
    for (const char* key : {"kv_cache_quant_algo", "kv_cache_scheme"})
      if (config.reader().has(key))
        format->add_warning(std::string(key) + " is not applied: keys and values stay unquantized");
    return std::unique_ptr<Format>(std::move(format));
  }

  std::string_view name() const override { return "modelopt"; }

  std::vector<std::string> warnings() const override {
    std::vector<std::string> texts = SchemeFormat::warnings();
    if (checkpoint() == nullptr) return texts;
    // A text may stand for two patterns, of which one is enough.
    std::vector<std::size_t> missed(texts_.size(), 0);
    for (const std::size_t index : excludes_.unmatched_indices(*checkpoint())) ++missed[text_of_[index]];
    for (std::size_t i = 0; i < texts_.size(); ++i)
      if (missed[i] == static_cast<std::size_t>(std::count(text_of_.begin(), text_of_.end(), i)))
        texts.push_back(fmt::format("excluded modules: \"{}\" matches no module", texts_[i]));
    return texts;
  }

 protected:
  Result<Verdict> configured(const ModuleRef& module, const TensorClaims& /*claims*/) const override {
    const std::vector<std::string> names = names_of(module);
    MORACLE_ASSIGN(const int index, excludes_.first_index(names));
    if (index >= 0) return Verdict{.rule = excludes_.at(static_cast<std::size_t>(index)).text()};
    if (all_ != nullptr) return Verdict{.scheme = all_, .rule = "quant_algo"};
    for (const std::string& name : names)
      if (const auto layer = layer_of(name); layer != layers_.end())
        return Verdict{.scheme = layer->second, .rule = "quantized_layers/" + layer->first};
    return Verdict{.rule = "not in quantized_layers"};
  }

  // Patterns are also meant as parts of names. So loose a match only explains why a module is stored unquantized; it
  // does not overrule what is stored.
  Result<bool> plain_allowed(const ModuleRef& module) const override {
    const std::vector<std::string> names = names_of(module);
    MORACLE_ASSIGN(const int index, loose_.first_index(names));
    if (index >= 0) return true;
    for (const std::string& name : names)
      for (const std::string& text : texts_)
        if (!text.empty() && name.find(text) != std::string::npos) return true;
    return false;
  }

 private:
  // NVFP4 whose groups all leave the activations alone.
  static bool weights_only(const QuantConfig& config) {
    const auto groups = config.values.find("config_groups");
    if (groups == config.values.end() || !groups->is_object() || groups->empty()) return false;
    for (const auto& [name, group] : groups->items())
      if (!group.is_object() || (group.contains("input_activations") && !group["input_activations"].is_null()))
        return false;
    return true;
  }

  Result<> add_excludes(const QuantConfig& config) {
    for (const char* key : {"exclude_modules", "ignore"}) {
      MORACLE_ASSIGN(const std::vector<std::string> texts, config.strings(key));
      for (const std::string& text : texts) MORACLE_TRY(add_exclude(text));
    }
    return Ok{};
  }

  // Version 0.47 leaves a dot, a zero byte and a mark behind names where transformers spells modules anew.
  static std::string without_mark(const std::string& name) {
    const std::size_t mark = name.find('\0');
    return mark == std::string::npos || mark == 0 ? name : name.substr(0, mark - 1);
  }

  // "foo*" stands for foo and what is below it, not for foobar.
  Result<> add_exclude(const std::string& written) {
    const std::string text = without_mark(written);
    texts_.push_back(text);
    if (text.find_first_of("*?") == std::string::npos) return add_pattern(Pattern::Kind::component, text);
    MORACLE_TRY(loose_.add(Pattern::Kind::wildcard, text));
    if (!text.ends_with("*") || text.ends_with(".*")) return add_pattern(Pattern::Kind::wildcard, text);
    const std::string stem = text.substr(0, text.size() - 1);
    if (stem.empty()) return add_pattern(Pattern::Kind::wildcard, text);
    MORACLE_TRY(add_pattern(Pattern::Kind::wildcard, stem));
    return add_pattern(Pattern::Kind::wildcard, stem + ".*");
  }

  // For the last of texts_.
  Result<> add_pattern(Pattern::Kind kind, std::string pattern) {
    text_of_.push_back(texts_.size() - 1);
    return excludes_.add(kind, std::move(pattern));
  }

  // Groups in compressed-tensors' words say once more how wide codes are, and how many share a scale.
  static Result<> check_groups(const QuantConfig& config, const Algorithm& algorithm) {
    const auto groups = config.values.find("config_groups");
    if (groups == config.values.end() || !groups->is_object()) return Ok{};
    for (const auto& [name, group] : groups->items()) {
      if (!group.is_object() || !group.contains("weights") || !group["weights"].is_object()) continue;
      const std::string pointer = "config_groups/" + name + "/weights";
      const JsonReader reader(group["weights"], config.file, config.pointer + "/" + pointer);
      MORACLE_ASSIGN(const std::int64_t size, reader.integer_or("group_size", algorithm.group, -1, 1 << 20));
      if (algorithm.group > 0 && size > 0 && size != algorithm.group)
        return config.error("config.contradiction", pointer + "/group_size",
                            fmt::format("{}, since quant_algo is {}", algorithm.group, algorithm.name),
                            std::to_string(size));
      if (!reader.has("num_bits") || !group["weights"]["num_bits"].is_number()) continue;  // else: [exponent, mantissa]
      const int wanted = bits_of(algorithm.weight.element);
      MORACLE_ASSIGN(const std::int64_t bits, reader.integer_or("num_bits", wanted, 1, 64));
      if (bits != wanted)
        return config.error("config.contradiction", pointer + "/num_bits",
                            fmt::format("{}, since quant_algo is {}", wanted, algorithm.name), std::to_string(bits));
    }
    return Ok{};
  }

  Result<std::shared_ptr<const StoredScheme>> make_algorithm(const QuantConfig& config, const Json& values,
                                                             const std::string& pointer,
                                                             const std::string& name) const {
    for (const Algorithm& algorithm : kAlgorithms) {
      if (algorithm.name != name) continue;
      const JsonReader reader(values, config.file, config.pointer + pointer);
      MORACLE_ASSIGN(const std::int64_t group, reader.integer_or("group_size", algorithm.group, 0, 1 << 20));
      if (algorithm.group != 0 && group != algorithm.group && group != 0)
        return config.error("quant.unsupported", pointer + "group_size", std::to_string(algorithm.group),
                            std::to_string(group));
      if (pointer.empty()) MORACLE_TRY(check_groups(config, algorithm));
      CodeScheme scheme{
          .weight = algorithm.weight, .form = form_of(algorithm.weight.element), .activation = algorithm.activation};
      scheme.parts.global = "weight_scale_2";
      return make_code_scheme(std::move(scheme), notes());
    }
    return config.error("quant.unsupported", pointer + "quant_algo", known_algorithms(), name);
  }

  Result<> add_layers(const QuantConfig& config) {
    const auto layers = config.values.find("quantized_layers");
    if (layers == config.values.end() || layers->empty())
      return config.error("config.missing", "quantized_layers", "an object with layers", "none");
    if (!layers->is_object()) return config.error("config.type", "quantized_layers", "an object", layers->type_name());
    if (layers->size() > kMaxListed)
      return config.error("config.range", "quantized_layers", "at most " + std::to_string(kMaxListed) + " layers",
                          std::to_string(layers->size()));
    for (const auto& [name, layer] : layers->items()) {
      const std::string pointer = "quantized_layers/" + name;
      if (!layer.is_object()) return config.error("config.type", pointer, "an object", layer.type_name());
      MORACLE_ASSIGN(const std::string algorithm,
                     JsonReader(layer, config.file, config.pointer + "/" + pointer).string_or("quant_algo", ""));
      MORACLE_ASSIGN(const std::shared_ptr<const StoredScheme> scheme,
                     make_algorithm(config, layer, pointer + "/", algorithm));
      // Modules are asked for with and without the infix that some exporters insert.
      for (const std::string& spelling : names_of(ModuleRef{.path = name, .fused = {}}))
        layers_.emplace(spelling, scheme);
    }
    return Ok{};
  }

  using Layers = std::map<std::string, std::shared_ptr<const StoredScheme>, std::less<>>;

  // The layer itself, else any layer below it, where the name is that of a block of experts. A shared expert is a
  // module of its own and lends its recipe to nobody.
  [[nodiscard]] Layers::const_iterator layer_of(const std::string& name) const {
    const auto exact = layers_.find(name);
    if (exact != layers_.end()) return exact;
    const auto below = layers_.lower_bound(name + ".");
    return below != layers_.end() && below->first.starts_with(name + ".") ? below : layers_.end();
  }

  std::shared_ptr<const StoredScheme> all_;
  Layers layers_;
  PatternList excludes_;
  PatternList loose_;
  std::vector<std::string> texts_;    // as written
  std::vector<std::size_t> text_of_;  // of each pattern of excludes_
};

}  // namespace

Result<std::unique_ptr<Format>> make_modelopt(const QuantConfig& config) {
  return ModelOpt::make(config);
}

}  // namespace moracle
