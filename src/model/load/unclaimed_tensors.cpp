#include "model/load/unclaimed_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "base/budget.h"
#include "format/rules/spelling.h"

namespace moracle {

namespace {

constexpr std::size_t kListed = 10;
constexpr std::size_t kMaxUnused = 10'000;  // that are counted
// Of telling what left-over tensors belong to, and beside it for each module that the model has.
constexpr BudgetLimits kTelling{.time = std::chrono::milliseconds(500)};
constexpr BudgetLimits kTellingModule{.steps = 0, .bytes = 0, .matches = 0, .time = std::chrono::microseconds(200)};
constexpr int kMaxJoints = 12;  // places of "<module>_<leaf>" that are tried in a name; published ones have up to six
constexpr std::string_view kLayers = "layers.";
// Parts of a layer that drafts further tokens, which no other layer has.
constexpr std::array<std::string_view, 4> kDraftParts{".eh_proj.", ".enorm.", ".hnorm.", ".shared_head."};

// What other models beside a text model are about.
constexpr std::array<std::string_view, 10> kOtherSenses{"vision", "visual", "image", "audio",     "speech",
                                                        "video",  "pixel",  "patch", "projector", "mm_"};

// What scales are called that belong to no weight and to no input.
constexpr std::array<std::string_view, 14> kValues{"k_",    "v_",      "q_",   "p_",  "kv_", "qk_",  "pv_",
                                                   "cache", "softmax", "prob", "out", "bmm", "attn", "key_value"};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string_view first_component(std::string_view name) {
  return name.substr(0, name.find('.'));
}

std::optional<std::int64_t> leading_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 0) return std::nullopt;
  return number;
}

// Where a tensor hangs: "<module>.<leaf>" or "<module>_<leaf>".
struct Place {
  std::string_view module, leaf;
  bool weights = false;  // the module has some
};

Place place_of(const TensorClaims& claims, std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {.module = "", .leaf = name};
  Place place{.module = name.substr(0, dot), .leaf = name.substr(dot + 1)};
  place.weights = has_weights(claims, place.module);
  int joints = 0;
  for (std::size_t at = name.find('_', dot); !place.weights && at != std::string_view::npos && joints < kMaxJoints;
       at = name.find('_', at + 1), ++joints) {
    if (!has_weights(claims, name.substr(0, at))) continue;
    place = {.module = name.substr(0, at), .leaf = name.substr(at + 1), .weights = true};
  }
  return place;
}

// "1 layer", "2 layers".
std::string counted(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

struct Verdict {
  bool aside = false;
  std::string text{};  // what it belongs to, or the likely cause of its being left over
};

class Sorter {
 public:
  Sorter(const ModelSpec& spec, const TensorClaims& claims, const std::vector<ModuleReport>& modules)
      : spec_(spec), claims_(claims), names_(claims.unclaimed()) {
    const std::string& embedding = spec.embedding.path;
    embedding_ = embedding.substr(embedding.rfind('.') + 1);
    root_ = embedding.substr(0, embedding.size() - embedding_.size());
    for (const ModuleReport& module : modules) {
      if (module.scheme.weight.quantized()) quantized_.insert(usual_name(module.name));
    }
    for (const std::string& name : names_) {
      const auto layer = layer_of(name);
      const bool drafts = std::any_of(kDraftParts.begin(), kDraftParts.end(),
                                      [&](std::string_view part) { return contains(name, part); });
      if (layer && drafts) draft_layers_.insert(*layer);
    }
  }

  Result<std::string> run() {
    std::vector<std::string_view> unused;
    std::string cause;
    const BudgetLimits limits = kTelling.plus(kTellingModule.times(quantized_.size()));
    Budget budget(limits);
    for (const std::string& name : names_) {
      if (unused.size() == kMaxUnused) break;
      if (!budget.in_time()) return too_many(name, limits.time);
      const Verdict verdict = judge(name);
      if (verdict.aside) {
        ++aside_[verdict.text];
        continue;
      }
      if (unused.empty()) cause = verdict.text;
      unused.push_back(name);
    }
    if (unused.empty()) return warning();
    std::string list;
    for (std::size_t i = 0; i < std::min(unused.size(), kListed); ++i) {
      list += (i == 0 ? "" : ", ") + std::string(unused[i]);
    }
    if (unused.size() > kListed) list += ", ...";
    const TensorView* const first = claims_.find(unused.front());
    return Error{
        .code = "tensor.unused",
        .file = first->file,
        .where = first->name,
        .wanted = "every tensor to belong to a module of " + spec_.info.architecture,
        .found = fmt::format("{}{} unused: {}", unused.size(), unused.size() == kMaxUnused ? " or more" : "", list),
        .advice = cause};
  }

 private:
  [[nodiscard]] Error too_many(const std::string& name, std::chrono::microseconds time) const {
    return {.code = "tensor.unused",
            .file = claims_.find(name)->file,
            .where = name,
            .wanted = fmt::format("tensors that are told apart within {} ms", time.count() / 1000),
            .found = fmt::format("{} that no module asks for", names_.size()),
            .advice = kOtherModel};
  }

  // The layer of the text model, or beyond it, that a tensor lies in.
  [[nodiscard]] std::optional<std::int64_t> layer_of(std::string_view name) const {
    const std::string prefix = root_ + std::string(kLayers);
    if (!name.starts_with(prefix)) return std::nullopt;
    return leading_number(name.substr(prefix.size()));
  }

  [[nodiscard]] Verdict judge(const std::string& name) {
    for (const std::string& suffix : spec_.ignored.suffixes) {
      if (name.ends_with(suffix)) return {true, suffix.substr(1)};
    }
    if (const auto layer = layer_of(name)) return *layer < spec_.info.layers ? inside(name) : beyond(*layer);
    const std::string_view core = without_root(name);
    const std::string_view part = first_component(core);
    if (part == "lm_head") return inside(name);
    if (part == "base_model") return {false, kAdapter};
    if (part == "layers" || part == embedding_ || part == "norm") {
      if (name.starts_with(root_) && name.size() == root_.size() + core.size()) return inside(name);
      return {false, "the files hold a second text model, beside the one below \"" + root_ + "\""};
    }
    // A module of the text model itself, and not the top of one beside it.
    const std::string_view below = core.substr(std::min(part.size() + 1, core.size()));
    const bool other = std::any_of(kOtherSenses.begin(), kOtherSenses.end(),
                                   [&](std::string_view word) { return contains(part, word); });
    const bool own = !other && (below == "weight" || below == "bias") &&
                     (contains(part, "norm") || contains(part, "embed") || contains(part, "position"));
    if (own) return {false, kOtherModel};
    return {true, name.substr(0, name.size() - core.size() + part.size())};
  }

  [[nodiscard]] Verdict beyond(std::int64_t layer) {
    if (spec_.ignored.layers.empty() && !draft_layers_.contains(layer)) {
      return {false,
              fmt::format("config.json says num_hidden_layers = {}, and layer {} is stored", spec_.info.layers, layer)};
    }
    drafts_.insert(layer);
    return {true, kDrafts};
  }

  // Of a module that the text model has, or of one inside a layer that it does not.
  [[nodiscard]] Verdict inside(std::string_view name) const {
    const Place place = place_of(claims_, name);
    const std::string_view leaf = place.leaf;
    if (contains(name, ".lora_")) return {false, kAdapter};
    if (contains(leaf, "pre_quant_scal") || contains(leaf, "prequant_scal")) {
      return {false, "inputs were smoothed before quantization, which this reader does not apply"};
    }
    const bool state = contains(name, "quantizer") || contains(name, "observer") || contains(name, "fake_quant") ||
                       contains(name, "rotary") || leaf.ends_with("amax") || leaf.ends_with("inv_freq") ||
                       leaf.ends_with("_cached") || contains(leaf, "mask") || leaf == "_extra_state" ||
                       leaf == "tokens_per_expert";
    const TensorView& tensor = *claims_.find(name);
    if (state || (leaf == "bias" && tensor.shape.size() > 1)) return {true, std::string(leaf)};
    if (!contains(leaf, "scal") && !contains(leaf, "zero_point")) return {false, kOtherModel};
    if (leaf.starts_with("input") || contains(leaf, "_input_") || leaf.starts_with("act")) {
      if (!is_quantized(place.module)) return {true, std::string(leaf)};
      return {false, "quantization_config says that inputs of this module are not quantized by stored scales"};
    }
    const bool of_weight = leaf.starts_with("weight") || leaf.starts_with("scale") || leaf.starts_with("zero_point");
    if (of_weight && place.weights) return {false, "quantization_config is not that of these weights"};
    if (is_of_values(place)) return {true, std::string(leaf)};
    return {false, kOtherModel};
  }

  // Whether a scale is that of a cache, of attention or of an output, by its own name or by that of its module.
  static bool is_of_values(const Place& place) {
    const std::string_view module = place.module.substr(place.module.rfind('.') + 1);
    return contains(module, "cache") || module == "attn" ||
           std::any_of(kValues.begin(), kValues.end(), [&](std::string_view word) {
             return place.leaf.starts_with(word) || contains(place.leaf, "_" + std::string(word));
           });
  }

  // The module, or what it is a part of.
  [[nodiscard]] bool is_quantized(std::string_view module) const {
    std::string name = usual_name(module);
    while (!quantized_.contains(name)) {
      const std::size_t dot = name.rfind('.');
      if (dot == std::string::npos) return false;
      name.resize(dot);
    }
    return true;
  }

  [[nodiscard]] std::string warning() const {
    std::size_t total = 0;
    std::size_t listed = 0;
    std::string list;
    for (const auto& [label, count] : aside_) {
      total += count;
      if (listed++ >= kListed) continue;
      const std::string what = label == kDrafts ? fmt::format("draft heads in {} from {} on",
                                                              counted(drafts_.size(), "layer"), *drafts_.begin())
                                                : label;
      list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", what, count);
    }
    if (total == 0) return {};
    return fmt::format("{} {} left aside, since text needs none of {}: {}{}", counted(total, "tensor"),
                       total == 1 ? "is" : "are", total == 1 ? "it" : "them", list, listed > kListed ? ", ..." : "");
  }

  static constexpr const char* kAdapter = "an adapter has to be merged into the weights first";
  static constexpr const char* kOtherModel = "config.json does not ask for it, or is not the one of these weights";
  static constexpr const char* kDrafts = "draft heads";

  const ModelSpec& spec_;
  const TensorClaims& claims_;
  std::vector<std::string> names_;
  std::string embedding_{};  // the table's name below the root
  std::string root_;
  std::set<std::string, std::less<>> quantized_;  // modules, by usual name
  std::set<std::int64_t> draft_layers_;           // layers that show parts of draft heads
  std::set<std::int64_t> drafts_;                 // of those set aside
  std::map<std::string, std::size_t> aside_;      // what tensors belong to, and how many
};

}  // namespace

Result<std::string> sort_unclaimed_tensors(const ModelSpec& spec, const TensorClaims& claims,
                                           const std::vector<ModuleReport>& modules) {
  return Sorter(spec, claims, modules).run();
}

}  // namespace moracle
