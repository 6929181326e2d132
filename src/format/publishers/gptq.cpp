// GPTQ as AutoGPTQ, GPTQModel and transformers write it. Per module: qweight I32 [in / per_word, out], packed along
// the input, lowest bits first; scales [groups, out]; qzeros I32 [groups, out / per_word], packed along the output;
// g_idx I32 [in], the group of each input column. Dequantization: (q - z) * scales[g_idx[k]].
#include <fmt/format.h>

#include "base/checked.h"
#include "format/decode/int_module.h"
#include "format/decode/plain.h"
#include "format/decode/stored_fp8.h"
#include "format/faults.h"
#include "format/formats.h"
#include "format/rules/dynamic_rules.h"
#include "format/rules/tensor_check.h"

namespace moracle {
namespace {

constexpr std::int64_t kMaxGroup = std::int64_t{1} << 30;

struct GptqScheme {
  IntScheme weight;
  bool desc_act = false;
  bool order_known = false;  // the config tells whether columns are out of group order
};

// What the config and the stored tensors together say about one module.
struct Verdict {
  bool quantized = false;
  GptqScheme scheme{};
  std::string excluded_by{};
};

Result<GptqScheme> read_scheme(const JsonReader& reader, const GptqScheme& fallback) {
  GptqScheme scheme = fallback;
  MORACLE_ASSIGN(scheme.weight.bits, reader.integer_or("bits", fallback.weight.bits, 1, 64));
  if (scheme.weight.bits != 4 && scheme.weight.bits != 8)
    return Error{.code = "quant.unsupported",
                 .file = reader.file(),
                 .where = reader.pointer("bits"),
                 .wanted = "4 or 8",
                 .found = std::to_string(scheme.weight.bits),
                 .advice = "codes of 2 and 3 bits have no expert kernel; use a 4-bit checkpoint"};
  MORACLE_ASSIGN(scheme.weight.group_size, reader.integer_or("group_size", fallback.weight.group_size, -1, kMaxGroup));
  if (scheme.weight.group_size == 0)
    return Error{.code = "config.range",
                 .file = reader.file(),
                 .where = reader.pointer("group_size"),
                 .wanted = "-1 or a positive number",
                 .found = "0"};
  MORACLE_ASSIGN(scheme.weight.symmetric, reader.boolean_or("sym", fallback.weight.symmetric));
  MORACLE_ASSIGN(scheme.desc_act, reader.boolean_or("desc_act", fallback.desc_act));
  // Groups that were fixed before columns were sorted stay where they are.
  const Result<bool> fixed = reader.boolean_or("static_groups", false);
  scheme.order_known = (fallback.order_known || reader.has("desc_act")) && fixed.ok() && !*fixed;
  return scheme;
}

// "gptq" (zero points are stored less one) or "gptq_v2". Newer tools write `format` beside it.
Result<bool> read_is_v2(const QuantConfig& config) {
  MORACLE_ASSIGN(std::string text, config.reader().string_or("checkpoint_format", ""));
  MORACLE_ASSIGN(const std::string alias, config.reader().string_or("format", ""));
  if (text.empty()) text = alias.empty() ? "gptq" : alias;
  if (text != "gptq" && text != "gptq_v2")
    return config.error("quant.unsupported", "checkpoint_format", "gptq or gptq_v2", text);
  return text == "gptq_v2";
}

class GptqFormat final : public Format {
 public:
  static Result<std::unique_ptr<Format>> make(const QuantConfig& config) {
    auto format = std::make_unique<GptqFormat>();
    format->config_ = config;
    const JsonReader reader = format->config_.reader();
    for (const std::string_view key : {"bits", "group_size"})
      if (!reader.has(key)) return config.error("config.missing", key, "an integer", "nothing");
    MORACLE_ASSIGN(format->scheme_, read_scheme(reader, GptqScheme{}));
    MORACLE_ASSIGN(format->v2_, read_is_v2(config));
    MORACLE_ASSIGN(format->lm_head_, reader.boolean_or("lm_head", false));
    MORACLE_ASSIGN(const std::string pack, reader.string_or("pack_dtype", "int32"));
    if (pack != "int32") return config.error("quant.unsupported", "pack_dtype", "int32", pack);
    MORACLE_ASSIGN(format->rules_, DynamicRules::parse(config));
    MORACLE_ASSIGN(const std::vector<std::string> blocks, config.strings("modules_in_block_to_quantize"));
    for (const std::string& block : blocks) MORACLE_TRY(format->blocks_.add(Pattern::Kind::component, block));
    return std::unique_ptr<Format>(std::move(format));
  }

  std::string_view name() const override { return "gptq"; }

  Result<ModuleScheme> scheme_of(const ModuleRef& module, const TensorClaims& claims) const override {
    MORACLE_ASSIGN(const Verdict verdict, judge(module, claims));
    if (!verdict.quantized) {
      MORACLE_ASSIGN(const Scheme plain, excluded_scheme(module, claims));
      return ModuleScheme{.scheme = plain, .excluded_by = verdict.excluded_by};
    }
    const TensorView* scales = find_part(claims, module.path, "scales");
    const Dtype dtype = scales != nullptr ? scales->dtype : Dtype::f16;
    return ModuleScheme{.scheme = {.weight = verdict.scheme.weight.key(dtype)}};
  }

  Result<StoredLinear> open(const ModuleRef& module, TensorClaims& claims) const override {
    checkpoint_ = claims.checkpoint();
    MORACLE_ASSIGN(const Verdict verdict, judge(module, claims));
    if (!verdict.quantized) return open_excluded(module, verdict.excluded_by, claims, notes_);
    return open_rows(module, [&](const ModuleRef& whole) { return open_quantized(whole, verdict.scheme, claims); });
  }

  std::vector<std::string> warnings() const override {
    std::vector<std::string> texts = value_warnings(*notes_);
    if (checkpoint_ == nullptr) return texts;
    for (const std::string& rule : rules_.unmatched(*checkpoint_))
      texts.push_back(fmt::format("{}: \"{}\" matches no module", rules_.section(), rule));
    for (const std::string& block : blocks_.unmatched(*checkpoint_))
      texts.push_back(fmt::format("modules_in_block_to_quantize: \"{}\" matches no module", block));
    return texts;
  }

 private:
  static bool is_lm_head(const ModuleRef& module) {
    return module.path == "lm_head" || module.path.ends_with(".lm_head");
  }

  // The rule that leaves the module unquantized, empty for none; the scheme otherwise.
  Result<Verdict> configured(const ModuleRef& module) const {
    Verdict verdict{.quantized = true, .scheme = scheme_};
    MORACLE_ASSIGN(const DynamicRule* rule, rules_.find(module));
    if (rule != nullptr) {
      if (rule->skip) return Verdict{.excluded_by = rule->text};
      MORACLE_ASSIGN(verdict.scheme,
                     read_scheme(JsonReader(rule->overrides, config_.file,
                                            config_.pointer + "/" + rules_.section() + "/" + rule->text),
                                 scheme_));
      return verdict;
    }
    if (is_lm_head(module)) return lm_head_ ? verdict : Verdict{.excluded_by = "lm_head: false"};
    if (blocks_.empty()) return verdict;
    MORACLE_ASSIGN(const int block, blocks_.first_index(names_of(module)));
    return block >= 0 ? verdict : Verdict{.excluded_by = "modules_in_block_to_quantize"};
  }

  // GPTQ configs list no unquantized modules as a rule: what is not excluded and stored plainly is unquantized.
  Result<Verdict> judge(const ModuleRef& module, const TensorClaims& claims) const {
    MORACLE_ASSIGN(Verdict verdict, configured(module));
    const TensorView* codes = find_part(claims, module.path, "qweight");
    const bool plain = stored_plain(module, claims);
    if (codes == nullptr) {
      if (!verdict.quantized) return verdict;
      if (plain) return Verdict{.excluded_by = "stored unquantized"};
      if (is_stored_fp8(module, claims)) return Verdict{.excluded_by = "stored as FP8"};
      if (module.slice) return stacked_error(module, claims, name());
      return absent_error(module, claims, "qweight");
    }
    if (plain)
      return tensor_error("quant.ambiguous", *codes, "one weight for " + module.path,
                          "both " + module.path + ".weight and this");
    if (!verdict.quantized)
      return tensor_error("config.contradiction", *codes,
                          fmt::format("an unquantized weight, since the config excludes it: {}", verdict.excluded_by),
                          "quantized codes");
    return verdict;
  }

  Result<StoredLinear> open_quantized(const ModuleRef& module, const GptqScheme& scheme, TensorClaims& claims) const {
    const IntScheme& weight = scheme.weight;
    const std::int64_t per_word = 32 / weight.bits;
    const auto claim = [&](std::string_view part, bool needed) { return claim_int_part(claims, module, part, needed); };
    MORACLE_ASSIGN(const std::optional<TensorView> codes, claim("qweight", true));
    MORACLE_ASSIGN(const std::optional<TensorView> scales, claim("scales", true));
    MORACLE_ASSIGN(const std::optional<TensorView> zeros, claim("qzeros", !weight.symmetric));
    const bool ordered = scheme.desc_act && weight.groups(module.in) > 1;
    MORACLE_ASSIGN(const std::optional<TensorView> index, claim("g_idx", ordered));

    if (module.in % per_word != 0)
      return tensor_error("tensor.shape", *codes, fmt::format("a multiple of {} inputs", per_word),
                          std::to_string(module.in));
    MORACLE_TRY(check_codes(*codes, weight.bits, module.in, module.out, true));
    MORACLE_TRY(check_scales(*scales, weight, module, false));
    if (zeros) {
      MORACLE_TRY(expect_dtype(*zeros, {Dtype::i32, Dtype::u32}));
      MORACLE_TRY(expect_shape(*zeros, {weight.groups(module.in), ceil_div(module.out, per_word)}));
    }

    PackedIntLayout layout{.codes = PackedIntLayout::Codes::words_along_in_by_in};
    if (zeros) layout.zeros = PackedIntLayout::Zeros::by_group;
    layout.zero_offset = v2_ || fault(Fault::zero_points_v1_read_as_v2) ? 0 : 1;
    StoredLinear linear{.spec = int_spec(module, weight, scales->dtype)};
    MORACLE_ASSIGN(linear.act_order, out_of_order(index, *claims.checkpoint(), scheme, linear.spec));
    MORACLE_ASSIGN(linear.bias, module.slice ? claim_slice_bias(module, claims) : claim_bias(module, claims));
    linear.open = [=, checkpoint = claims.checkpoint(), notes = notes_](MatrixSpec spec) -> Result<CanonicalLinear> {
      if (index) {
        MORACLE_ASSIGN(spec.g_idx, check_group_index(*index, *checkpoint, spec.cols, spec.group_cols));
      }
      const PackedIntTensors tensors{.codes = &*codes, .scales = &*scales, .zeros = zeros ? &*zeros : nullptr};
      return CanonicalLinear{.weight = make_packed_int(std::move(spec), layout, tensors, checkpoint, notes)};
    };
    return linear;
  }

  // An index of which the config tells nothing is read at once: its values decide which kernels can serve.
  static Result<bool> out_of_order(const std::optional<TensorView>& index, const Checkpoint& checkpoint,
                                   const GptqScheme& scheme, const MatrixSpec& spec) {
    if (!index) return false;
    MORACLE_TRY(expect_group_index(*index, spec.cols));
    if (spec.groups == 1) return false;
    if (scheme.order_known) return scheme.desc_act;
    MORACLE_ASSIGN(const std::vector<std::int32_t> g_idx,
                   check_group_index(*index, checkpoint, spec.cols, spec.group_cols));
    return !g_idx.empty();
  }

  QuantConfig config_;
  GptqScheme scheme_;
  bool v2_ = false;
  bool lm_head_ = false;
  DynamicRules rules_;
  PatternList blocks_;
  std::shared_ptr<ValueNotes> notes_ = std::make_shared<ValueNotes>();
  mutable std::shared_ptr<const Checkpoint> checkpoint_;  // of the modules opened, for warnings()
};

}  // namespace

Result<std::unique_ptr<Format>> make_gptq(const QuantConfig& config) {
  return GptqFormat::make(config);
}

}  // namespace moracle
