// AutoRound as published for the hub. What is stored tells the layout: integer words of GPTQ or of AWQ, E4M3 codes, or
// MXFP and NVFP4 codes as compressed-tensors names them. packing_format, `backend` in older files, only hints at it: a
// GPTQ layout under a label with "gptq" stores zero points less one, under "auto_round" and "gptqmodel" as they are.
// What differs from module to module is listed under extra_config (dynamic_rules.h). Modules outside of
// block_name_to_quantize are stored unquantized, so that list decides nothing.
#include <fmt/format.h>

#include "format/decode/code_module.h"
#include "format/decode/plain.h"
#include "format/decode/stored_fp8.h"
#include "format/formats.h"

namespace moracle {
namespace {

using SchemePtr = std::shared_ptr<const StoredScheme>;

struct Inputs {
  bool quantized = false;
  bool dynamic = true;
};

SchemePtr make_fp8_codes(const Inputs& inputs, std::shared_ptr<ValueNotes> notes) {
  const Fp8Activations activations = !inputs.quantized ? Fp8Activations::none
                                     : inputs.dynamic  ? Fp8Activations::dynamic
                                                       : Fp8Activations::fixed;
  return make_stored_fp8(activations, std::nullopt, std::move(notes));
}

SchemePtr make_mxfp8_codes(const Inputs& inputs, std::shared_ptr<ValueNotes> notes) {
  CodeScheme scheme{.weight = mx_key(Element::e4m3)};
  if (inputs.quantized) scheme.activation = dynamic(mx_key(Element::e4m3));
  return make_code_scheme(std::move(scheme), std::move(notes));
}

SchemePtr make_mxfp4_codes(const Inputs& inputs, std::shared_ptr<ValueNotes> notes) {
  CodeScheme scheme{.weight = mx_key(Element::e2m1), .form = CodeForm::nibbles, .parts = {.codes = "weight_packed"}};
  if (inputs.quantized) scheme.activation = dynamic(mx_key(Element::e2m1));
  return make_code_scheme(std::move(scheme), std::move(notes));
}

constexpr std::string_view kSecondLevel = "weight_global_scale";

SchemePtr make_nvfp4_codes(const Inputs& inputs, std::shared_ptr<ValueNotes> notes) {
  CodeScheme scheme{.weight = nvfp4_key(),
                    .form = CodeForm::nibbles,
                    .parts = {.codes = "weight_packed",
                              .global = std::string(kSecondLevel),
                              .input = "input_global_scale",
                              .divides = true}};
  if (inputs.quantized) scheme.activation = dynamic(nvfp4_key());
  return make_code_scheme(std::move(scheme), std::move(notes));
}

// Codes of floats, a module's by what it holds: the tool mixes them.
class AutoRoundFloats final : public SchemeFormat {
 public:
  explicit AutoRoundFloats(const Inputs& inputs)
      : fp8_(make_fp8_codes(inputs, notes())),
        mxfp8_(make_mxfp8_codes(inputs, notes())),
        mxfp4_(make_mxfp4_codes(inputs, notes())),
        nvfp4_(make_nvfp4_codes(inputs, notes())) {}

  std::string_view name() const override { return "auto-round"; }

 protected:
  Result<Verdict> configured(const ModuleRef& module, const TensorClaims& claims) const override {
    return Verdict{.scheme = stored(module, claims), .rule = "data_type"};
  }
  Result<bool> plain_allowed(const ModuleRef& /*module*/) const override { return true; }

 private:
  [[nodiscard]] SchemePtr stored(const ModuleRef& module, const TensorClaims& claims) const {
    if (find_part(claims, module.path, "weight_packed") != nullptr)
      return find_part(claims, module.path, kSecondLevel) != nullptr ? nvfp4_ : mxfp4_;
    const TensorView* scales = find_part(claims, module.path, "weight_scale");
    const bool powers = scales != nullptr && (scales->dtype == Dtype::u8 || scales->dtype == Dtype::f8_e8m0);
    return powers && scales->shape.back() * 32 == module.in ? mxfp8_ : fp8_;
  }

  SchemePtr fp8_, mxfp8_, mxfp4_, nvfp4_;
};

// data_type "fp", "fp8", "fp8_e4m3", ...; "mx_fp", "mx_fp4", ...; "nv_fp", "nv_fp4", "nv_fp4_with_static_gs".
bool is_known(const std::string& type, std::int64_t bits) {
  if (type.starts_with("nv_fp")) return bits == 4;
  if (type.starts_with("mx_fp")) return bits == 4 || bits == 8;
  return type.starts_with("fp") && type.find("e5m2") == std::string::npos && bits == 8;
}

// Rotations done at run time are part of the model.
Result<> refuse_rotations(const QuantConfig& config) {
  for (const char* key : {"rotation_config", "spinquant_config", "hadamard_config", "transform_config"}) {
    const auto found = config.values.find(key);
    const bool silent = found == config.values.end() || found->is_null() || *found == false || found->empty();
    if (!silent)
      return config.error("quant.unsupported", key, "no rotation", found->dump(-1, ' ', true).substr(0, 200));
  }
  return Ok{};
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

// The name tells what stored zero points mean.
Result<> check_packing(const QuantConfig& config) {
  MORACLE_ASSIGN(const std::string name, config.reader().string_or("packing_format", ""));
  for (const char* part : {"auto", "gptq", "awq"})
    if (name.empty() || name.find(part) != std::string::npos) return Ok{};
  return config.error("quant.unsupported", "packing_format", "auto_round, or a name with gptq or awq in it", name);
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
  MORACLE_TRY(refuse_rotations(config));
  if (type != "int" && type != "int_sym" && type != "int_asym") {
    if (!is_known(type, bits))
      return config.error("quant.unsupported", "data_type", "int; fp of 8 bits, mx_fp of 4 or 8, nv_fp of 4",
                          fmt::format("{} of {} bits", type, bits));
    if (activations < 16 && activations != bits)
      return config.error("quant.unsupported", "act_bits", fmt::format("{}, or 16", bits), std::to_string(activations));
    Inputs inputs{.quantized = activations < 16};
    MORACLE_ASSIGN(inputs.dynamic, reader.boolean_or("act_dynamic", true));
    return std::unique_ptr<Format>(std::make_unique<AutoRoundFloats>(inputs));
  }
  if (activations < 16)
    return config.error("quant.unsupported", "act_bits", "16: unquantized activations", std::to_string(activations));
  MORACLE_TRY(check_packing(config));
  return make_integers(config, packing);
}

}  // namespace moracle
