// AutoRound as published for the hub. What is stored tells the layout: integer words of GPTQ or of AWQ, E4M3 codes, or
// MXFP and NVFP4 codes as compressed-tensors names them. packing_format, `backend` in older files, only hints at it: a
// GPTQ layout under a label with "gptq" stores zero points less one, under "auto_round" and "gptqmodel" as they are.
// What differs from module to module is listed under extra_config (dynamic_rules.h). Modules outside of
// block_name_to_quantize are stored unquantized, so that list decides nothing.
#include <fmt/format.h>

#include "format/code_module.h"
#include "format/formats.h"
#include "format/plain.h"
#include "format/stored_fp8.h"

namespace moracle {
namespace {

// Codes of floats: the modules that hold some are quantized, all alike.
class AutoRoundFloats final : public SchemeFormat {
 public:
  using Make = std::shared_ptr<const StoredScheme> (*)(bool quantizes_inputs, bool dynamic_inputs,
                                                       std::shared_ptr<ValueNotes> notes);
  AutoRoundFloats(Make make, bool quantizes_inputs, bool dynamic_inputs)
      : scheme_(make(quantizes_inputs, dynamic_inputs, notes())) {}

  std::string_view name() const override { return "auto-round"; }

 protected:
  Result<Verdict> configured(const ModuleRef& /*module*/, const TensorLedger& /*ledger*/) const override {
    return Verdict{.scheme = scheme_, .rule = "data_type"};
  }
  Result<bool> plain_allowed(const ModuleRef& /*module*/) const override { return true; }

 private:
  std::shared_ptr<const StoredScheme> scheme_;
};

std::shared_ptr<const StoredScheme> make_fp8_codes(bool quantizes_inputs, bool dynamic_inputs,
                                                   std::shared_ptr<ValueNotes> notes) {
  const Fp8Activations inputs = !quantizes_inputs ? Fp8Activations::none
                                : dynamic_inputs  ? Fp8Activations::dynamic
                                                  : Fp8Activations::fixed;
  return make_stored_fp8(inputs, std::nullopt, std::move(notes));
}

std::shared_ptr<const StoredScheme> make_mxfp8_codes(bool quantizes_inputs, bool /*dynamic_inputs*/,
                                                     std::shared_ptr<ValueNotes> notes) {
  CodeScheme scheme{.weight = mx_key(Element::e4m3)};
  if (quantizes_inputs) scheme.activation = dynamic(mx_key(Element::e4m3));
  return make_code_scheme(std::move(scheme), std::move(notes));
}

std::shared_ptr<const StoredScheme> make_mxfp4_codes(bool quantizes_inputs, bool /*dynamic_inputs*/,
                                                     std::shared_ptr<ValueNotes> notes) {
  CodeScheme scheme{.weight = mx_key(Element::e2m1), .form = CodeForm::nibbles, .parts = {.codes = "weight_packed"}};
  if (quantizes_inputs) scheme.activation = dynamic(mx_key(Element::e2m1));
  return make_code_scheme(std::move(scheme), std::move(notes));
}

std::shared_ptr<const StoredScheme> make_nvfp4_codes(bool quantizes_inputs, bool /*dynamic_inputs*/,
                                                     std::shared_ptr<ValueNotes> notes) {
  CodeScheme scheme{
      .weight = nvfp4_key(),
      .form = CodeForm::nibbles,
      .parts = {
          .codes = "weight_packed", .global = "weight_global_scale", .input = "input_global_scale", .divides = true}};
  if (quantizes_inputs) scheme.activation = dynamic(nvfp4_key());
  return make_code_scheme(std::move(scheme), std::move(notes));
}

// data_type "fp", "fp8", "fp8_e4m3", ...; "mx_fp", "mx_fp4", ...; "nv_fp", "nv_fp4", "nv_fp4_with_static_gs".
AutoRoundFloats::Make floats_of(const std::string& type, std::int64_t bits) {
  if (type.starts_with("nv_fp") && bits == 4) return make_nvfp4_codes;
  if (type.starts_with("mx_fp") && (bits == 4 || bits == 8)) return bits == 4 ? make_mxfp4_codes : make_mxfp8_codes;
  const bool fp8 = type.starts_with("fp") && type.find("e5m2") == std::string::npos && bits == 8;
  return fp8 ? make_fp8_codes : nullptr;
}

// What the tool takes where a key is absent.
void add_defaults(Json& values) {
  const auto add = [&](const char* key, const Json& value) {
    if (!values.contains(key) || values[key].is_null()) values[key] = value;
  };
  add("bits", 4);
  add("group_size", 128);
  add("sym", true);
}

Result<std::unique_ptr<Format>> make_integers(const QuantConfig& config, const std::string& packing) {
  QuantConfig words = config;
  add_defaults(words.values);
  const bool awq = config.words == WordLayout::along_out ||
                   (config.words == WordLayout::none && packing.find("awq") != std::string::npos);
  if (awq) return make_awq(words);
  const bool less_one = packing.find("gptq") != std::string::npos && packing.find("gptqmodel") == std::string::npos;
  const bool labelled =
      packing.find("auto_round") != std::string::npos || packing.find("gptqmodel") != std::string::npos;
  words.values["checkpoint_format"] = labelled && !less_one ? "gptq_v2" : "gptq";
  return make_gptq(words);
}

}  // namespace

Result<std::unique_ptr<Format>> make_auto_round(const QuantConfig& config) {
  const JsonReader reader = config.reader();
  MORACLE_ASSIGN(const std::string backend, reader.string_or("backend", ""));
  MORACLE_ASSIGN(const std::string packing, reader.string_or("packing_format", backend));
  MORACLE_ASSIGN(const std::string type, reader.string_or("data_type", "int"));
  MORACLE_ASSIGN(const std::int64_t bits, reader.integer_or("bits", 4, 1, 64));
  MORACLE_ASSIGN(const std::int64_t activations, reader.integer_or("act_bits", 16, 1, 64));
  if (type != "int") {
    const AutoRoundFloats::Make make = floats_of(type, bits);
    if (make == nullptr)
      return config.error("quant.unsupported", "data_type", "int; fp of 8 bits, mx_fp of 4 or 8, nv_fp of 4",
                          fmt::format("{} of {} bits", type, bits));
    if (activations < 16 && activations != bits)
      return config.error("quant.unsupported", "act_bits", fmt::format("{}, or 16", bits), std::to_string(activations));
    MORACLE_ASSIGN(const bool dynamic_inputs, reader.boolean_or("act_dynamic", true));
    return std::unique_ptr<Format>(std::make_unique<AutoRoundFloats>(make, activations < 16, dynamic_inputs));
  }
  if (activations < 16)
    return config.error("quant.unsupported", "act_bits", "16: unquantized activations", std::to_string(activations));
  return make_integers(config, packing);
}

}  // namespace moracle
