// AMD Quark: a global layer config, overrides by layer name and by class, and an exclude list.
#include <fmt/format.h>

#include "format/decode/code_module.h"
#include "format/decode/plain.h"
#include "format/formats.h"
#include "format/publishers/quark_scheme.h"
#include "format/rules/module_match.h"

namespace moracle {
namespace {

constexpr std::size_t kMaxRules = 8192;  // by layer, and by class

struct Rule {
  std::string text;  // as written
  std::shared_ptr<const StoredScheme> scheme;
};

class Quark final : public SchemeFormat {
 public:
  static Result<std::unique_ptr<Format>> make(const QuantConfig& config) {
    auto format = std::make_unique<Quark>();
    MORACLE_TRY(format->check_section(config));
    MORACLE_ASSIGN(const std::vector<std::string> exclude, config.strings("exclude"));
    for (const std::string& text : exclude) {
      const bool regex = text.starts_with("re:");
      const bool wildcard = !regex && text.find('*') != std::string::npos;
      MORACLE_TRY((wildcard ? format->loose_ : format->exclude_)
                      .add(wildcard ? Pattern::Kind::wildcard
                           : regex  ? Pattern::Kind::regex
                                    : Pattern::Kind::exact,
                           regex ? text.substr(3) : text));
    }
    if (!config.reader().has("global_quant_config"))
      return config.error("config.missing", "global_quant_config", "an object", "nothing");
    MORACLE_ASSIGN(format->global_.scheme, make_quark_scheme(config, config.values["global_quant_config"],
                                                             "global_quant_config", false, format->notes()));
    format->global_.text = "global_quant_config";
    MORACLE_TRY(format->add_rules(config, "layer_quant_config", format->by_name_));
    MORACLE_TRY(format->add_rules(config, "layer_type_quant_config", format->by_class_));
    return std::unique_ptr<Format>(std::move(format));
  }

  std::string_view name() const override { return "quark"; }

  std::vector<std::string> warnings() const override {
    std::vector<std::string> texts = SchemeFormat::warnings();
    if (checkpoint() == nullptr) return texts;
    for (const std::string& text : exclude_.unmatched(*checkpoint()))
      texts.push_back(fmt::format("exclude: \"{}\" matches no module", text));
    return texts;
  }

 protected:
  Result<Verdict> configured(const ModuleRef& module, const TensorClaims& claims) const override {
    const std::vector<std::string> names = names_of(module);
    MORACLE_ASSIGN(const int excluded, exclude_.first_index(names));
    if (excluded >= 0) return Verdict{.rule = exclude_.at(static_cast<std::size_t>(excluded)).text()};
    // Experts that are excluded leaf by leaf are excluded as a block, where they are stored so.
    if (stored_plain(module, claims))
      for (const std::string& name : names)
        if (const std::string* text = listed_below(name)) return Verdict{.rule = *text};
    MORACLE_ASSIGN(const Rule* rule, rule_of(module, names));
    return Verdict{.scheme = rule->scheme, .rule = rule->text};
  }

  // Names are not patterns here, but some exports hold patterns all the same: they explain what is stored unquantized.
  Result<bool> plain_allowed(const ModuleRef& module) const override {
    MORACLE_ASSIGN(const int index, loose_.first_index(names_of(module)));
    return index >= 0;
  }

 private:
  Result<> check_section(const QuantConfig& config) {
    const JsonReader reader = config.reader();
    if (!reader.has("export"))
      return config.error("config.missing", "export", "an object: the section of a quantized model", "nothing");
    const Json& exported = config.values["export"];
    if (!exported.is_object()) return config.error("config.type", "export", "an object", exported.type_name());
    const JsonReader export_reader(exported, config.file, config.pointer + "/export");
    MORACLE_ASSIGN(const std::string format, export_reader.string_or("weight_format", "real_quantized"));
    if (format != "real_quantized")
      return config.error("quant.unsupported", "export/weight_format", "real_quantized", format);
    if (reader.has("softmax_quant_spec"))
      return config.error("quant.unsupported", "softmax_quant_spec", "none", "a quantized softmax");
    MORACLE_TRY(check_algorithms(config));
    QuantConfig section = config;
    section.values = exported;
    section.pointer += "/export";
    MORACLE_ASSIGN(const std::vector<std::string> cache, section.strings("kv_cache_group"));
    for (const std::string& text : cache) MORACLE_TRY(cache_.add(Pattern::Kind::wildcard, text));
    const auto kv = config.values.find("kv_cache_quant_config");
    if (!cache.empty() || (kv != config.values.end() && kv->is_object() && !kv->empty()))
      add_warning("kv_cache_quant_config is not applied: keys and values stay unquantized");
    return Ok{};
  }

  // Rotations done at run time are part of the model; what was folded into the weights is not.
  static Result<> check_algorithms(const QuantConfig& config) {
    const auto algorithms = config.values.find("algo_config");
    if (algorithms == config.values.end() || algorithms->is_null()) return Ok{};
    const Json list = algorithms->is_array() ? *algorithms : Json::array({*algorithms});
    for (const Json& algorithm : list) {
      if (!algorithm.is_object()) return config.error("config.type", "algo_config", "objects", algorithm.type_name());
      MORACLE_ASSIGN(const std::string name, JsonReader(algorithm, config.file).string_or("name", ""));
      if (name == "rotation" || name == "quarot")
        return config.error("quant.unsupported", "algo_config", "no rotation of activations", name);
    }
    return Ok{};
  }

  Result<> add_rules(const QuantConfig& config, const std::string& key, std::vector<Rule>& rules) {
    MORACLE_ASSIGN(const std::vector<std::string> texts, config.ordered_keys(key));
    if (texts.size() > kMaxRules)
      return config.error("config.range", key, "at most " + std::to_string(kMaxRules) + " rules",
                          std::to_string(texts.size()));
    for (const std::string& text : texts) {
      const auto cache = cache_.first_index({text});
      MORACLE_ASSIGN(const int index, cache);
      Rule rule{.text = fmt::format("{}/{}", key, text), .scheme = nullptr};
      MORACLE_ASSIGN(rule.scheme,
                     make_quark_scheme(config, config.values[key][text], key + "/" + text, index >= 0, notes()));
      rules.push_back(std::move(rule));
      if (key == "layer_quant_config") MORACLE_TRY(names_.add(Pattern::Kind::wildcard, text));
    }
    return Ok{};
  }

  // With a star a pattern; without one a name that the module's own is part of, or the name of what it is fused into.
  Result<const Rule*> rule_of(const ModuleRef& module, const std::vector<std::string>& names) const {
    MORACLE_ASSIGN(const int matching, names_.first_index(names));
    const std::size_t end = matching < 0 ? names_.size() : static_cast<std::size_t>(matching);
    for (std::size_t i = 0; i < end; ++i) {
      const std::string& text = names_.at(i).text();
      if (text.find('*') == std::string::npos && text.find(names.front()) != std::string::npos) return &by_name_[i];
    }
    if (matching >= 0) return &by_name_[end];
    for (const Rule& rule : by_class_)
      if (rule.text.ends_with("/" + module.module_class) || rule.text.ends_with("." + module.module_class))
        return &rule;
    return &global_;
  }

  [[nodiscard]] const std::string* listed_below(const std::string& name) const {
    if (!name.ends_with("experts")) return nullptr;
    for (std::size_t i = 0; i < exclude_.size(); ++i)
      if (exclude_.at(i).text().starts_with(name + ".")) return &exclude_.at(i).text();
    return nullptr;
  }

  Rule global_;
  std::vector<Rule> by_name_;
  PatternList names_;  // of by_name_
  std::vector<Rule> by_class_;
  PatternList exclude_;
  PatternList loose_;
  PatternList cache_;
};

}  // namespace

Result<std::unique_ptr<Format>> make_quark(const QuantConfig& config) {
  return Quark::make(config);
}

}  // namespace moracle
