// compressed-tensors as llm-compressor writes it: config groups with targets, an ignore list, one scheme per group.
#include <fmt/format.h>

#include "format/decode/code_module.h"
#include "format/decode/int_module.h"
#include "format/decode/plain.h"
#include "format/decode/stored_fp8.h"
#include "format/formats.h"
#include "format/publishers/ct_scheme.h"
#include "format/rules/module_match.h"
#include "format/rules/tensor_check.h"

namespace moracle {
namespace {

// "re:<regex>" or an exact name.
Result<> add_pattern(PatternList& list, const std::string& text) {
  return text.starts_with("re:") ? list.add(Pattern::Kind::regex, text.substr(3))
                                 : list.add(Pattern::Kind::exact, text);
}

constexpr std::size_t kMaxGroups = 256;  // published models have one, or one for each precision

struct Group {
  CtGroup config;
  std::vector<std::string> classes;  // targets that may be class names: all but regexes
  std::shared_ptr<const StoredScheme> scheme;
};

// What the config says about one module: a group, or the reason for none.
struct Verdict {
  const Group* group = nullptr;
  std::string excluded_by{};
};

Result<std::shared_ptr<const StoredScheme>> make_scheme(const QuantConfig& config, const CtGroup& group,
                                                        const std::shared_ptr<ValueNotes>& notes) {
  std::string known;
  for (const CtSchemeRow& row : ct_schemes()) {
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", row.format, row.what);
    if (row.format != group.format) continue;
    std::shared_ptr<const StoredScheme> scheme = row.make(group, notes);
    if (scheme != nullptr) return scheme;
  }
  return config.error("quant.unsupported", "config_groups/" + group.name, "one of: " + known,
                      fmt::format("{}: weights {}, activations {}", group.format.empty() ? "no format" : group.format,
                                  group.weights.text(), group.activation ? group.activation->text() : "none"));
}

// Null: it is not there, false or empty.
Result<const Json*> section_of(const QuantConfig& config, const char* key) {
  const auto found = config.values.find(key);
  if (found == config.values.end() || *found == false || found->empty()) return static_cast<const Json*>(nullptr);
  if (!found->is_object()) return config.error("config.type", key, "an object", found->type_name());
  return &*found;
}

// Sparse storage and rotated weights change what the stored numbers mean.
Result<> check_unsupported(const QuantConfig& config) {
  MORACLE_ASSIGN(const Json* const sparsity, section_of(config, "sparsity_config"));
  MORACLE_ASSIGN(const Json* const transform, section_of(config, "transform_config"));
  if (sparsity != nullptr) {
    MORACLE_ASSIGN(const std::string format, JsonReader(*sparsity, config.file).string_or("format", ""));
    if (format != "dense") return config.error("quant.unsupported", "sparsity_config", "none", "format " + format);
  }
  if (transform != nullptr && !transform->value("config_groups", Json(true)).empty())
    return config.error("quant.unsupported", "transform_config", "none", "transforms of weights or activations");
  return Ok{};
}

class CompressedTensors final : public Format {
 public:
  static Result<std::unique_ptr<Format>> make(const QuantConfig& config) {
    auto format = std::make_unique<CompressedTensors>();
    MORACLE_TRY(check_unsupported(config));
    MORACLE_ASSIGN(const std::vector<std::string> names, config.ordered_keys("config_groups"));
    if (names.empty()) return config.error("config.missing", "config_groups", "at least one group", "none");
    if (names.size() > kMaxGroups)
      return config.error("config.range", "config_groups", "at most " + std::to_string(kMaxGroups) + " groups",
                          std::to_string(names.size()));
    for (const std::string& name : names) MORACLE_TRY(format->add_group(config, name));
    MORACLE_ASSIGN(const std::vector<std::string> ignore, config.strings("ignore"));
    for (const std::string& text : ignore) MORACLE_TRY(add_pattern(format->ignore_, text));
    if (config.reader().has("kv_cache_scheme"))
      format->notes_of_config_.push_back("kv_cache_scheme is not applied: keys and values stay unquantized");
    return std::unique_ptr<Format>(std::move(format));
  }

  std::string_view name() const override { return "compressed-tensors"; }

  Result<ModuleScheme> scheme_of(const ModuleRef& module, const TensorClaims& claims) const override {
    MORACLE_ASSIGN(const Verdict verdict, judge(module, claims));
    if (verdict.group != nullptr) return ModuleScheme{.scheme = verdict.group->scheme->scheme(module, claims)};
    MORACLE_ASSIGN(const Scheme plain, excluded_scheme(module, claims));
    return ModuleScheme{.scheme = plain, .excluded_by = verdict.excluded_by};
  }

  Result<StoredLinear> open(const ModuleRef& module, TensorClaims& claims) const override {
    checkpoint_ = claims.checkpoint();
    MORACLE_ASSIGN(const Verdict verdict, judge(module, claims));
    if (verdict.group != nullptr) return verdict.group->scheme->open(module, claims);
    return open_excluded(module, verdict.excluded_by, claims, notes_);
  }

  std::vector<std::string> warnings() const override {
    std::vector<std::string> texts = notes_of_config_;
    for (std::string& text : value_warnings(*notes_)) texts.push_back(std::move(text));
    if (checkpoint_ == nullptr) return texts;
    for (const std::string& text : ignore_.unmatched(*checkpoint_))
      texts.push_back(fmt::format("ignore: \"{}\" matches no module", text));
    return texts;
  }

 private:
  Result<> add_group(const QuantConfig& config, const std::string& name) {
    const Json& json = config.values["config_groups"][name];
    QuantConfig targets{.file = config.file,
                        .pointer = config.pointer + "/config_groups/" + name,
                        .side_file = config.side_file,
                        .method = config.method};
    targets.values = json;
    Group group;
    MORACLE_ASSIGN(const std::vector<std::string> texts, targets.strings("targets"));
    if (texts.empty()) return targets.error("config.missing", "targets", "at least one target", "none");
    if (texts.size() == 1 && texts[0].ends_with("Attention")) {
      notes_of_config_.push_back(fmt::format("config group {} quantizes attention: not applied", name));
      return Ok{};
    }
    for (const std::string& text : texts) {
      MORACLE_TRY(add_pattern(targets_, text));
      group_of_.push_back(groups_.size());
      if (!text.empty() && !text.starts_with("re:")) group.classes.push_back(text);
    }
    MORACLE_ASSIGN(group.config, parse_ct_group(config, name, json));
    MORACLE_ASSIGN(group.scheme, make_scheme(config, group.config, notes_));
    groups_.push_back(std::move(group));
    return Ok{};
  }

  // Names come before class names, over all groups.
  Result<const Group*> target_of(const ModuleRef& module, const std::vector<std::string>& names) const {
    MORACLE_ASSIGN(const int index, targets_.first_index(names));
    if (index >= 0) return &groups_[group_of_[static_cast<std::size_t>(index)]];
    for (const Group& group : groups_)
      for (const std::string& target : group.classes)
        if (module.module_class.find(target) != std::string::npos) return &group;
    return static_cast<const Group*>(nullptr);
  }

  Result<Verdict> configured(const ModuleRef& module) const {
    const std::vector<std::string> names = names_of(module);
    MORACLE_ASSIGN(const int ignored, ignore_.first_index(names));
    if (ignored >= 0) return Verdict{.excluded_by = ignore_.at(static_cast<std::size_t>(ignored)).text()};
    MORACLE_ASSIGN(const Group* group, target_of(module, names));
    return group != nullptr ? Verdict{.group = group} : Verdict{.excluded_by = "no target matches"};
  }

  Result<Verdict> judge(const ModuleRef& module, const TensorClaims& claims) const {
    MORACLE_ASSIGN(Verdict verdict, configured(module));
    const bool plain = stored_plain(module, claims);
    if (verdict.group == nullptr) {
      const TensorView* codes = find_part(claims, module.path, "weight_packed");
      if (codes == nullptr) return verdict;
      return tensor_error("config.contradiction", *codes,
                          fmt::format("an unquantized weight, since the config excludes it: {}", verdict.excluded_by),
                          "quantized codes");
    }
    // Experts stacked in one parameter are no modules that a target could name: they stay as they are stored.
    if (module.slice && plain) return Verdict{.excluded_by = "stored unquantized"};
    const std::string_view part = verdict.group->scheme->codes_part();
    const TensorView* codes = find_part(claims, module.path, part);
    if (module.slice && codes == nullptr) return stacked_error(module, claims, name());
    if (plain && (codes == nullptr || part == "weight"))
      return Error{.code = "quant.incomplete",
                   .file = claims.checkpoint()->folder().string(),
                   .where = fmt::format("{}.{}", module.path, part),
                   .wanted = fmt::format("quantized codes, since config group {} targets the module",
                                         verdict.group->config.name),
                   .found = "an unquantized weight",
                   .advice = "if the module is meant to be unquantized, add it to the ignore list of config.json"};
    if (codes == nullptr) return absent_error(module, claims, part);
    if (plain)
      return tensor_error("quant.ambiguous", *codes, "one weight for " + module.path,
                          "both " + module.path + ".weight and this");
    return verdict;
  }

  std::vector<Group> groups_;
  PatternList targets_;                // of all groups, in their order
  std::vector<std::size_t> group_of_;  // of each target
  PatternList ignore_;
  std::vector<std::string> notes_of_config_;
  std::shared_ptr<ValueNotes> notes_ = std::make_shared<ValueNotes>();
  mutable std::shared_ptr<const Checkpoint> checkpoint_;  // of the modules opened, for warnings()
};

}  // namespace

Result<std::unique_ptr<Format>> make_compressed_tensors(const QuantConfig& config) {
  return CompressedTensors::make(config);
}

}  // namespace moracle
