// AWQ in the gemm layout, as AutoAWQ and GPTQModel write it. Per module: qweight I32 [in, out / 8], nibble i of a word
// holds output column 8 * word + {0, 2, 4, 6, 1, 3, 5, 7}[i]; qzeros I32 [groups, out / 8] in the same order, the true
// zero points; scales [groups, out]. Dequantization: (q - z) * s.
#include <fmt/format.h>

#include <set>

#include "format/decode/int_module.h"
#include "format/decode/plain.h"
#include "format/decode/stored_fp8.h"
#include "format/formats.h"
#include "format/rules/dynamic_rules.h"
#include "format/rules/tensor_check.h"

namespace moracle {
namespace {

constexpr std::int64_t kMaxGroup = std::int64_t{1} << 30;
constexpr std::int64_t kPerWord = 8;

// Each key has an older spelling, from AutoAWQ's own file.
Result<std::int64_t> read_integer(const QuantConfig& config, std::string_view key, std::string_view older,
                                  std::int64_t low, std::int64_t high) {
  const JsonReader reader = config.reader();
  return reader.integer(reader.has(key) || !reader.has(older) ? key : older, low, high);
}

class AwqFormat final : public Format {
 public:
  static Result<std::unique_ptr<Format>> make(const QuantConfig& config) {
    auto format = std::make_unique<AwqFormat>();
    const JsonReader reader = config.reader();
    MORACLE_ASSIGN(const std::int64_t bits, read_integer(config, "bits", "w_bit", 1, 64));
    if (bits != 4) return config.error("quant.unsupported", "bits", "4", std::to_string(bits));
    MORACLE_ASSIGN(format->scheme_.group_size, read_integer(config, "group_size", "q_group_size", -1, kMaxGroup));
    if (format->scheme_.group_size == 0)
      return config.error("config.range", "group_size", "-1 or a positive number", "0");
    MORACLE_TRY(check_version(config));
    MORACLE_ASSIGN(const bool sym, reader.boolean_or("sym", false));
    MORACLE_ASSIGN(format->zero_point_, reader.boolean_or("zero_point", !sym));
    MORACLE_ASSIGN(const std::vector<std::string> plain, config.strings("modules_to_not_convert"));
    for (const std::string& text : plain) MORACLE_TRY(format->not_converted_.add(Pattern::Kind::component, text));
    MORACLE_ASSIGN(format->rules_, DynamicRules::parse(config));
    format->config_ = config;
    return std::unique_ptr<Format>(std::move(format));
  }

  std::string_view name() const override { return "awq"; }

  Result<ModuleScheme> scheme_of(const ModuleRef& module, const TensorClaims& claims) const override {
    MORACLE_ASSIGN(const bool quantized, is_quantized(module, claims));
    if (!quantized) {
      MORACLE_ASSIGN(const Scheme plain, excluded_scheme(module, claims));
      MORACLE_ASSIGN(const std::string rule, exclusion(module));
      return ModuleScheme{.scheme = plain, .excluded_by = why_plain(rule)};
    }
    MORACLE_ASSIGN(const IntScheme scheme, int_scheme(module, claims));
    const TensorView* scales = find_part(claims, module.path, "scales");
    return ModuleScheme{.scheme = {.weight = scheme.key(scales != nullptr ? scales->dtype : Dtype::f16)}};
  }

  Result<StoredLinear> open(const ModuleRef& module, TensorClaims& claims) const override {
    checkpoint_ = claims.checkpoint();
    MORACLE_ASSIGN(const bool quantized, is_quantized(module, claims));
    MORACLE_ASSIGN(const std::string rule, exclusion(module));
    if (!quantized) return open_excluded(module, why_plain(rule), claims, notes_);
    if (!rule.empty()) overruled_.insert(rule);
    MORACLE_ASSIGN(const IntScheme scheme, int_scheme(module, claims));
    return open_rows(module, [&](const ModuleRef& whole) { return open_quantized(whole, scheme, claims); });
  }

  std::vector<std::string> warnings() const override {
    std::vector<std::string> texts = value_warnings(*notes_);
    for (const std::string& rule : overruled_)
      texts.push_back(fmt::format("\"{}\" excludes modules that are stored quantized; they are read as stored", rule));
    if (checkpoint_ == nullptr) return texts;
    for (const std::string& text : not_converted_.unmatched(*checkpoint_))
      texts.push_back(fmt::format("modules_to_not_convert: \"{}\" matches no module", text));
    for (const std::string& rule : rules_.unmatched(*checkpoint_))
      texts.push_back(fmt::format("{}: \"{}\" matches no module", rules_.section(), rule));
    return texts;
  }

 private:
  // Other versions pack along the other dimension or interleave differently, under the same tensor names.
  static Result<> check_version(const QuantConfig& config) {
    for (const std::string_view key : {"version", "checkpoint_format"}) {
      MORACLE_ASSIGN(std::string version, config.reader().string_or(key, "gemm"));
      for (char& c : version) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
      if (version == "gemm" || (key == "checkpoint_format" && version == "awq")) continue;
      Error error = config.error("quant.unsupported", key, "gemm", version);
      error.advice = "other layouts share the tensor names but pack differently; re-export with version gemm";
      return error;
    }
    return Ok{};
  }

  // The stored tensors decide, since the lists of this format name modules by loose substrings.
  Result<bool> is_quantized(const ModuleRef& module, const TensorClaims& claims) const {
    const TensorView* codes = find_part(claims, module.path, "qweight");
    const bool plain = stored_plain(module, claims);
    if (codes != nullptr && plain)
      return tensor_error("quant.ambiguous", *codes, "one weight for " + module.path,
                          "both " + module.path + ".weight and this");
    if (codes == nullptr && !plain && !is_stored_fp8(module, claims)) {
      if (module.slice) return stacked_error(module, claims, name());
      return absent_error(module, claims, "qweight");
    }
    return codes != nullptr;
  }

  static std::string why_plain(const std::string& rule) { return rule.empty() ? "stored unquantized" : rule; }
  Result<std::string> exclusion(const ModuleRef& module) const {
    MORACLE_ASSIGN(const int index, not_converted_.first_index(names_of(module)));
    if (index >= 0) return not_converted_.at(static_cast<std::size_t>(index)).text();
    MORACLE_ASSIGN(const DynamicRule* rule, rules_.find(module));
    return rule != nullptr && rule->skip ? rule->text : std::string();
  }

  Result<IntScheme> int_scheme(const ModuleRef& module, const TensorClaims& claims) const {
    IntScheme scheme = scheme_;
    MORACLE_ASSIGN(const DynamicRule* rule, rules_.find(module));
    if (rule != nullptr && !rule->skip) {
      const JsonReader reader(rule->overrides, config_.file,
                              config_.pointer + "/" + rules_.section() + "/" + rule->text);
      MORACLE_ASSIGN(const std::int64_t bits, reader.integer_or("bits", 4, 1, 64));
      if (bits != 4)
        return config_.error("quant.unsupported", rules_.section() + "/" + rule->text + "/bits", "4",
                             std::to_string(bits));
      MORACLE_ASSIGN(scheme.group_size, reader.integer_or("group_size", scheme.group_size, -1, kMaxGroup));
      if (scheme.group_size == 0)
        return config_.error("config.range", rules_.section() + "/" + rule->text + "/group_size",
                             "-1 or a positive number", "0");
    }
    // Exporters write zero points even where zero_point is false: stored ones are what the weights mean.
    scheme.symmetric = !zero_point_ && find_part(claims, module.path, "qzeros") == nullptr;
    return scheme;
  }

  Result<StoredLinear> open_quantized(const ModuleRef& module, const IntScheme& scheme, TensorClaims& claims) const {
    MORACLE_ASSIGN(const std::optional<TensorView> codes, claim_int_part(claims, module, "qweight", true));
    MORACLE_ASSIGN(const std::optional<TensorView> scales, claim_int_part(claims, module, "scales", true));
    PackedIntLayout layout{.codes = PackedIntLayout::Codes::words_along_out_by_in,
                           .column_of_nibble = {0, 2, 4, 6, 1, 3, 5, 7}};
    if (module.out % kPerWord != 0)
      return tensor_error("tensor.shape", *codes, "a multiple of 8 outputs", std::to_string(module.out));
    MORACLE_TRY(check_codes(*codes, scheme.bits, module.out, module.in, false));
    MORACLE_TRY(check_scales(*scales, scheme, module, false));
    std::optional<TensorView> zeros;
    if (!scheme.symmetric) {
      MORACLE_ASSIGN(zeros, claim_int_part(claims, module, "qzeros", true));
      MORACLE_TRY(expect_dtype(*zeros, {Dtype::i32, Dtype::u32}));
      MORACLE_TRY(expect_shape(*zeros, {scheme.groups(module.in), module.out / kPerWord}));
      layout.zeros = PackedIntLayout::Zeros::by_group;
    }
    StoredLinear linear{.spec = int_spec(module, scheme, scales->dtype)};
    MORACLE_ASSIGN(linear.bias, module.slice ? claim_slice_bias(module, claims) : claim_bias(module, claims));
    linear.open = [=, checkpoint = claims.checkpoint(), notes = notes_](MatrixSpec spec) -> Result<CanonicalLinear> {
      const PackedIntTensors tensors{.codes = &*codes, .scales = &*scales, .zeros = zeros ? &*zeros : nullptr};
      return CanonicalLinear{.weight = make_packed_int(std::move(spec), layout, tensors, checkpoint, notes)};
    };
    return linear;
  }

  QuantConfig config_;
  IntScheme scheme_;
  bool zero_point_ = true;
  PatternList not_converted_;
  DynamicRules rules_;
  std::shared_ptr<ValueNotes> notes_ = std::make_shared<ValueNotes>();
  mutable std::set<std::string> overruled_;               // exclusions that stored tensors contradict
  mutable std::shared_ptr<const Checkpoint> checkpoint_;  // of the modules opened, for warnings()
};

}  // namespace

Result<std::unique_ptr<Format>> make_awq(const QuantConfig& config) {
  return AwqFormat::make(config);
}

}  // namespace moracle
