// quant_method fp8: weight E4M3 [out, in]; by blocks of weight_block_size weight_scale_inv [ceil(out / rows), ceil(in /
// cols)], which multiplies in spite of its name; without that key scales of any shape, and for static activations
// input_scale [].
//
// DeepSeek-V4: scales of blocks are named `scale`, E8M0, or floats that scale_fmt ue8m0 calls powers of two; experts
// may be MXFP4, U8 or I8 [out, in / 2] with such a `scale` [out, in / 32]. The stored types of each module decide. With
// moe_quant_algo NVFP4 experts hold weight_scale E4M3 [out, in / 16], weight_scale_2 [] and input_scale [], as ModelOpt
// writes them.
#include <fmt/format.h>

#include "base/checked.h"
#include "format/decode/code_module.h"
#include "format/decode/plain.h"
#include "format/decode/stored_fp8.h"
#include "format/formats.h"
#include "format/rules/module_match.h"

namespace moracle {
namespace {

class Fp8 final : public SchemeFormat {
 public:
  static Result<std::unique_ptr<Format>> make(const QuantConfig& config) {
    auto format = std::make_unique<Fp8>();
    MORACLE_TRY(format->read_lists(config));
    MORACLE_ASSIGN(const std::string activation, config.reader().string_or("activation_scheme", "dynamic"));
    if (activation != "static" && activation != "dynamic")
      return config.error("quant.unsupported", "activation_scheme", "static or dynamic", activation);
    MORACLE_ASSIGN(const std::string element, config.reader().string_or("fmt", "e4m3"));
    if (element != "e4m3" && element != "float8_e4m3fn")
      return config.error("quant.unsupported", "fmt", "e4m3", element);
    MORACLE_ASSIGN(const std::string scales, config.reader().string_or("scale_fmt", ""));
    if (!scales.empty() && scales != "ue8m0" && scales != "float")
      return config.error("quant.unsupported", "scale_fmt", "ue8m0 or float", scales);
    MORACLE_ASSIGN(const std::string experts, config.reader().string_or("moe_quant_algo", ""));
    if (!experts.empty() && experts != "NVFP4")
      return config.error("quant.unsupported", "moe_quant_algo", "none or NVFP4", experts);
    if (config.reader().has("activation_scale_ub"))
      format->add_warning("activation_scale_ub is not applied: scales of inputs are as large as their values ask for");
    MORACLE_TRY(format->make_schemes(config, activation == "static", scales == "ue8m0"));
    if (!experts.empty()) {
      CodeScheme scheme{.weight = nvfp4_key(), .form = CodeForm::nibbles, .activation = dynamic(nvfp4_key())};
      scheme.parts.global = "weight_scale_2";
      format->nvfp4_ = make_code_scheme(std::move(scheme), format->notes());
    }
    return std::unique_ptr<Format>(std::move(format));
  }

  std::string_view name() const override { return "fp8"; }

  std::vector<std::string> warnings() const override {
    std::vector<std::string> texts = SchemeFormat::warnings();
    if (checkpoint() == nullptr) return texts;
    for (const std::string& text : ignored_.unmatched(*checkpoint()))
      texts.push_back(fmt::format("ignored layers: \"{}\" matches no module", text));
    return texts;
  }

 protected:
  Result<Verdict> configured(const ModuleRef& module, const TensorClaims& claims) const override {
    MORACLE_ASSIGN(const int index, ignored_.first_index(names_of(module)));
    if (index >= 0) return Verdict{.rule = ignored_.at(static_cast<std::size_t>(index)).text()};
    const TensorView* codes = find_part(claims, module.path, "weight");
    const TensorView* scales = find_part(claims, module.path, "scale");
    const bool fp4 =
        codes != nullptr && (codes->dtype == Dtype::u8 || codes->dtype == Dtype::i8 || codes->dtype == Dtype::f4);
    // Layers that the tool left out keep the publisher's own experts beside those of the tool.
    if (fp4 && nvfp4_ != nullptr && scales == nullptr) return Verdict{.scheme = nvfp4_, .rule = "moe_quant_algo"};
    const bool exponents = scales != nullptr && (scales->dtype == Dtype::u8 || scales->dtype == Dtype::f8_e8m0);
    if (fp4 && (exponents || (scales != nullptr && fp8_powers_ != nullptr)))
      return Verdict{.scheme = mxfp4_, .rule = kRule};
    return Verdict{.scheme = scales != nullptr && fp8_powers_ != nullptr ? fp8_powers_ : fp8_, .rule = kRule};
  }

  // Published configs list nothing of what stays in full precision: heads, routers, small projections.
  Result<bool> plain_allowed(const ModuleRef& /*module*/) const override { return true; }

 private:
  static constexpr const char* kRule = "quant_method fp8";

  Result<> read_lists(const QuantConfig& config) {
    for (const char* key : {"ignored_layers", "modules_to_not_convert"}) {
      MORACLE_ASSIGN(const std::vector<std::string> texts, config.strings(key));
      for (const std::string& text : texts) MORACLE_TRY(ignored_.add(Pattern::Kind::component, text));
    }
    return Ok{};
  }

  Result<> make_schemes(const QuantConfig& config, bool is_static, bool powers_of_two) {
    CodeScheme scheme{.weight = fp8_key(Granularity::tensor())};
    const auto size = config.values.find("weight_block_size");
    const bool blocks = size != config.values.end() && !size->is_null();
    // Without stored scales every token gets its own.
    scheme.activation = is_static ? fp8_key(Granularity::tensor()) : dynamic(fp8_key(Granularity::token()));
    if (blocks) {
      const bool pair =
          size->is_array() && size->size() == 2 && (*size)[0].is_number_integer() && (*size)[1].is_number_integer();
      constexpr std::int32_t kMax = 1 << 20;
      if (!pair || (*size)[0] < 1 || (*size)[1] < 1 || (*size)[0] > kMax || (*size)[1] > kMax)
        return config.error("config.range", "weight_block_size", "two positive numbers", size->dump().substr(0, 200));
      if (is_static)
        return config.error("config.contradiction", "activation_scheme", "dynamic, since weights have blocks",
                            "static");
      const auto cols = (*size)[1].get<std::int32_t>();
      scheme.weight = fp8_key(Granularity::block((*size)[0].get<std::int32_t>(), cols));
      scheme.activation = dynamic(fp8_key(Granularity::group(cols)));
      scheme.parts.scales = {"weight_scale_inv", "weight_scale"};
    }
    CodeScheme mxfp4{.weight = mx_key(Element::e2m1), .form = CodeForm::nibbles, .activation = scheme.activation};
    mxfp4.parts.scales = {"scale"};
    mxfp4_ = make_code_scheme(std::move(mxfp4), notes());
    if (blocks && powers_of_two) {
      CodeScheme powers = scheme;
      powers.parts.scales = {"scale"};
      powers.weight.scale = ScaleType::e8m0;
      fp8_powers_ = make_code_scheme(std::move(powers), notes());
    }
    fp8_ = blocks ? make_code_scheme(std::move(scheme), notes())
                  : make_stored_fp8(is_static ? Fp8Activations::fixed : Fp8Activations::dynamic, std::nullopt, notes());
    return Ok{};
  }

  PatternList ignored_;
  std::shared_ptr<const StoredScheme> fp8_;
  std::shared_ptr<const StoredScheme> fp8_powers_;  // of blocks under `scale`; null without scale_fmt ue8m0
  std::shared_ptr<const StoredScheme> mxfp4_;
  std::shared_ptr<const StoredScheme> nvfp4_;
};

}  // namespace

Result<std::unique_ptr<Format>> make_fp8(const QuantConfig& config) {
  return Fp8::make(config);
}

}  // namespace moracle
