// Stored by Quark, per module:
//   int8        weight I8 [out, in], weight_scale [out] or [], weight_zero_point [out] in some flows, input_scale []
//   fp8_e4m3    weight E4M3 [out, in], weight_scale [], [out] or by blocks, input_scale []
//   int4, uint4 quark_int4.cpp
//   fp4, fp6    weight U8 [out, in / 2] or [out, in * 3 / 4], weight_scale U8 [out, in / 32], input_scale []
//   fp4 g16     weight U8 [out, in / 2], weight_scale E4M3 [out, in / 16], weight_scale_2 [], input_scale_2 []
#include "format/publishers/quark_scheme.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/checked.h"
#include "format/decode/code_module.h"
#include "format/publishers/quark_int4.h"

namespace moracle {
namespace {

// One tensor's quantization.
struct Spec {
  std::string dtype, qscheme, scale_format, rounding;  // of the scale
  std::string round_method;                            // of codes
  std::int64_t group_size = 0;
  std::int64_t axis = 0;
  std::vector<std::int64_t> block;
  bool dynamic = false;
  bool symmetric = true;

  [[nodiscard]] bool to_nearest() const { return round_method.empty() || round_method == "half_even"; }
  [[nodiscard]] std::string text() const {
    return fmt::format("{}{} {}{}{}{}", dynamic ? "dynamic " : "", dtype, qscheme,
                       group_size > 0 ? fmt::format(" {}", group_size) : "",
                       scale_format.empty() ? "" : " " + scale_format, symmetric ? "" : " asymmetric") +
           (to_nearest() ? "" : " rounded by " + round_method);
  }
};

constexpr std::array<std::string_view, 20> kKnownKeys{
    "dtype",          "observer_cls",        "is_dynamic",      "qscheme",
    "ch_axis",        "group_size",          "symmetric",       "round_method",
    "scale_type",     "scale_format",        "block_size",      "scale_calculation_mode",
    "qat_spec",       "zero_point_type",     "target_device",   "mx_element_dtype",
    "is_scale_quant", "enable_buffer_reuse", "max_input_numel", "percentile"};

class Reader {
 public:
  Reader(const QuantConfig& config, std::string pointer) : config_(config), pointer_(std::move(pointer)) {}

  // One dict, a list of one, or a list of two for two levels of scales; empty for null.
  Result<std::vector<Spec>> side(const Json& layer, const std::string& key) const {
    std::vector<Spec> specs;
    const auto member = layer.find(key);
    if (member == layer.end() || member->is_null()) return specs;
    const std::string where = pointer_ + "/" + key;
    if (!member->is_array()) {
      MORACLE_ASSIGN(Spec spec, parse(*member, where));
      specs.push_back(std::move(spec));
      return specs;
    }
    if (member->empty() || member->size() > 2)
      return config_.error("quant.unsupported", where, "one or two levels", std::to_string(member->size()));
    for (std::size_t i = 0; i < member->size(); ++i) {
      MORACLE_ASSIGN(Spec spec, parse((*member)[i], fmt::format("{}/{}", where, i)));
      specs.push_back(std::move(spec));
    }
    return specs;
  }

  [[nodiscard]] Error unsupported(const std::string& key, std::string wanted, std::string found) const {
    return config_.error("quant.unsupported", pointer_ + "/" + key, std::move(wanted), std::move(found));
  }

 private:
  Result<Spec> parse(const Json& json, const std::string& where) const {
    if (!json.is_object()) return config_.error("config.type", where, "an object", json.type_name());
    for (const auto& [key, value] : json.items()) {
      const bool silent =
          value.is_null() || value == false || ((value.is_object() || value.is_array()) && value.empty());
      if (!silent && std::find(kKnownKeys.begin(), kKnownKeys.end(), key) == kKnownKeys.end())
        return config_.error("quant.unsupported", where + "/" + key, "no such key", value.dump().substr(0, 200));
    }
    const JsonReader reader(json, config_.file, config_.pointer + "/" + where);
    Spec spec;
    MORACLE_ASSIGN(spec.dtype, reader.string_or("dtype", ""));
    MORACLE_ASSIGN(spec.qscheme, reader.string_or("qscheme", ""));
    MORACLE_ASSIGN(spec.scale_format, reader.string_or("scale_format", ""));
    MORACLE_ASSIGN(spec.round_method, reader.string_or("round_method", ""));
    MORACLE_ASSIGN(spec.rounding, reader.string_or("scale_calculation_mode", ""));
    if (reader.has("group_size")) {
      MORACLE_ASSIGN(spec.group_size, reader.integer("group_size", 1, std::int64_t{1} << 30));
    }
    MORACLE_ASSIGN(spec.axis, reader.integer_or("ch_axis", 0, -8, 8));
    MORACLE_ASSIGN(spec.dynamic, reader.boolean_or("is_dynamic", false));
    MORACLE_ASSIGN(spec.symmetric, reader.boolean_or("symmetric", true));
    if (reader.has("block_size")) {
      const Json& sizes = json["block_size"];
      const Error wrong =
          config_.error("config.type", where + "/block_size", "two positive numbers", sizes.dump().substr(0, 200));
      if (!sizes.is_array() || sizes.size() != 2) return wrong;
      for (const Json& size : sizes) {
        if (!size.is_number_integer() || size < 1 || size > (1 << 30)) return wrong;
        spec.block.push_back(size.get<std::int64_t>());
      }
    }
    return spec;
  }

  const QuantConfig& config_;
  std::string pointer_;
};

std::string text_of(const std::vector<Spec>& specs) {
  std::string text;
  for (const Spec& spec : specs) text += (text.empty() ? "" : " under ") + spec.text();
  return text;
}

std::optional<Element> mx_element(const Spec& spec) {
  if (spec.qscheme != "per_group" || spec.group_size != 32 || spec.scale_format != "e8m0") return std::nullopt;
  if (spec.dtype == "fp4") return Element::e2m1;
  if (spec.dtype == "fp6_e2m3") return Element::e2m3;
  if (spec.dtype == "fp6_e3m2") return Element::e3m2;
  return std::nullopt;
}

bool is_nvfp4(const std::vector<Spec>& specs) {
  return specs.size() == 2 && specs[0].dtype == "fp4" && specs[0].qscheme == "per_group" && specs[0].group_size == 16 &&
         specs[0].scale_format != "e8m0" && specs[1].dtype == "fp8_e4m3" && specs[1].qscheme == "per_tensor";
}

// Dynamic scales by channel of an activation are scales by token, whatever the axis is called.
std::optional<QuantKey> activation_key(const std::vector<Spec>& specs) {
  if (!std::all_of(specs.begin(), specs.end(), [](const Spec& spec) { return spec.to_nearest(); })) return std::nullopt;
  if (is_nvfp4(specs)) return dynamic(nvfp4_key());
  if (specs.size() != 1 || !specs[0].symmetric) return std::nullopt;
  const Spec& spec = specs[0];
  const bool token = spec.qscheme == "per_channel" || spec.qscheme == "per_token";
  if (spec.dtype == "int8" || spec.dtype == "fp8_e4m3") {
    const auto key = [&](Granularity g) { return spec.dtype == "int8" ? int8_key(g) : fp8_key(g); };
    if (!spec.dynamic && spec.qscheme == "per_tensor") return key(Granularity::tensor());
    if (spec.dynamic && token && spec.scale_format != "e8m0") return dynamic(key(Granularity::token()));
    if (spec.dynamic && spec.dtype == "fp8_e4m3" && spec.qscheme == "per_group" && spec.scale_format != "e8m0" &&
        spec.group_size > 0)
      return dynamic(fp8_key(Granularity::group(narrow<std::int32_t>(spec.group_size))));
    return std::nullopt;
  }
  // The exponent rule is part of the number format.
  const bool even = spec.rounding.empty() || spec.rounding == "even";
  const auto element = mx_element(spec);
  if (element && spec.dynamic && even) return dynamic(mx_key(*element));
  return std::nullopt;
}

std::optional<CodeScheme> code_scheme(const std::vector<Spec>& weights) {
  if (is_nvfp4(weights)) {
    CodeParts parts;
    parts.global = "weight_scale_2";
    parts.input = "input_scale_2";
    return CodeScheme{.weight = nvfp4_key(), .form = CodeForm::nibbles, .parts = std::move(parts)};
  }
  if (weights.size() != 1 || weights[0].dynamic) return std::nullopt;
  const Spec& spec = weights[0];
  if (const auto element = mx_element(spec)) return CodeScheme{.weight = mx_key(*element), .form = form_of(*element)};
  std::optional<Granularity> granularity;
  if (spec.qscheme == "per_tensor") granularity = Granularity::tensor();
  if (spec.qscheme == "per_channel" && spec.axis == 0) granularity = Granularity::channel();
  if (spec.dtype == "int8" && granularity)
    return CodeScheme{.weight = int8_key(*granularity, spec.symmetric), .form = CodeForm::signed_bytes};
  if (spec.qscheme == "per_block" && spec.block.size() == 2)
    granularity = Granularity::block(narrow<std::int32_t>(spec.block[0]), narrow<std::int32_t>(spec.block[1]));
  if (spec.dtype == "fp8_e4m3" && spec.symmetric && granularity) return CodeScheme{.weight = fp8_key(*granularity)};
  return std::nullopt;
}

// int4 by itself, or int4 per channel of FP8 codes: [fp8_e4m3 per tensor, int4 per channel].
Result<std::shared_ptr<const StoredScheme>> make_int4(const QuantConfig& config, const Reader& reader,
                                                      const std::vector<Spec>& weights, const std::vector<Spec>& inputs,
                                                      const std::shared_ptr<ValueNotes>& notes) {
  const Spec& weight = weights.back();
  const bool grouped = weight.qscheme == "per_group" && weight.group_size > 0;
  const bool channel = weight.qscheme == "per_channel" && weight.axis == 0;
  QuarkInt4 scheme{.weight = {.bits = 4, .group_size = grouped ? weight.group_size : -1, .symmetric = weight.symmetric},
                   .is_signed = weight.dtype == "int4",
                   .two_levels = weights.size() == 2};
  const bool over_fp8 =
      scheme.two_levels && weights[0].dtype == "fp8_e4m3" && weights[0].qscheme == "per_tensor" && !weights[0].dynamic;
  if ((!grouped && !channel) || weight.dynamic ||
      (scheme.two_levels && (!over_fp8 || !channel || !scheme.is_signed || !weight.symmetric)))
    return reader.unsupported(
        "weight", "packed int4 in groups along the input or per channel; int4 per channel under fp8_e4m3 per tensor",
        text_of(weights));
  if (!inputs.empty()) {
    scheme.activation = activation_key(inputs);
    const bool fp8 = scheme.activation && scheme.activation->element == Element::e4m3 &&
                     scheme.activation->granularity.kind != Granularity::Kind::group;
    if (!scheme.two_levels || !fp8)
      return reader.unsupported("input_tensors", "none with packed int4 weights, fp8_e4m3 with int4 under fp8_e4m3",
                                text_of(inputs));
  }
  std::string order = "reorder";
  const auto exported = config.values.find("export");
  if (exported != config.values.end() && exported->is_object()) {
    MORACLE_ASSIGN(order,
                   JsonReader(*exported, config.file, config.pointer + "/export").string_or("pack_method", order));
  }
  if (order != "reorder" && order != "order")
    return config.error("quant.unsupported", "export/pack_method", "reorder or order", order);
  scheme.reorder = order == "reorder";
  return make_quark_int4(scheme, notes);
}

}  // namespace

Result<std::shared_ptr<const StoredScheme>> make_quark_scheme(const QuantConfig& config, const Json& json,
                                                              const std::string& pointer, bool cache_output,
                                                              const std::shared_ptr<ValueNotes>& notes) {
  if (!json.is_object()) return config.error("config.type", pointer, "an object", json.type_name());
  const Reader reader(config, pointer);
  MORACLE_ASSIGN(const std::vector<Spec> weights, reader.side(json, "weight"));
  MORACLE_ASSIGN(const std::vector<Spec> inputs, reader.side(json, "input_tensors"));
  MORACLE_ASSIGN(const std::vector<Spec> outputs, reader.side(json, "output_tensors"));
  MORACLE_ASSIGN(const std::vector<Spec> bias, reader.side(json, "bias"));
  if (!outputs.empty() && !cache_output) return reader.unsupported("output_tensors", "none", text_of(outputs));
  if (!bias.empty()) return reader.unsupported("bias", "none", text_of(bias));
  if (weights.empty() && inputs.empty()) return std::shared_ptr<const StoredScheme>();
  constexpr std::string_view kKnown =
      "int8 or fp8_e4m3 per tensor or channel, fp8_e4m3 by blocks, int4 or uint4 in groups or per channel, int4 per "
      "channel under fp8_e4m3, fp4 or fp6 in groups of 32 with e8m0 scales, fp4 in groups of 16 under fp8_e4m3";
  if (weights.empty()) return reader.unsupported("weight", std::string(kKnown), "none, with quantized inputs");
  if (weights.back().dtype == "int4" || weights.back().dtype == "uint4")
    return make_int4(config, reader, weights, inputs, notes);
  std::optional<CodeScheme> scheme = code_scheme(weights);
  if (!scheme) return reader.unsupported("weight", std::string(kKnown), text_of(weights));
  if (!inputs.empty()) {
    scheme->activation = activation_key(inputs);
    const bool both_levels = !scheme->activation || scheme->activation->second_level == scheme->weight.second_level;
    if (!scheme->activation || !both_levels)
      return reader.unsupported("input_tensors",
                                "symmetric int8 or fp8_e4m3, static per tensor or dynamic per token; fp4 of both "
                                "levels as the weights; fp4 or fp6 in groups of 32, by the even rule; none",
                                text_of(inputs));
  }
  if (cache_output) scheme->unused = "output_scale";
  return make_code_scheme(std::move(*scheme), notes);
}

}  // namespace moracle
