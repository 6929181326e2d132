// quant_method mxfp4: experts stacked as "<path>_blocks" U8 [experts, rows, in / 32, 16], low half first, with
// "<path>_scales" U8 [experts, rows, in / 32] and "<path>_bias" [experts, rows]. All else is unquantized.
#include "format/decode/code_module.h"
#include "format/decode/plain.h"
#include "format/formats.h"
#include "format/rules/module_match.h"

namespace moracle {
namespace {

class Mxfp4 final : public SchemeFormat {
 public:
  static Result<std::unique_ptr<Format>> make(const QuantConfig& config) {
    auto format = std::make_unique<Mxfp4>();
    MORACLE_ASSIGN(format->texts_, config.strings("modules_to_not_convert"));
    for (const std::string& text : format->texts_) {  // a module, and all below it
      MORACLE_TRY(format->listed_.add(Pattern::Kind::wildcard, text));
      MORACLE_TRY(format->listed_.add(Pattern::Kind::wildcard, text + ".*"));
    }
    return std::unique_ptr<Format>(std::move(format));
  }

  Mxfp4() {
    CodeScheme scheme{.weight = mx_key(Element::e2m1), .form = CodeForm::nibbles};
    scheme.parts.codes = "blocks";
    scheme.parts.scales = {"scales"};
    scheme.parts.blocks = true;
    experts_ = make_code_scheme(std::move(scheme), notes());
  }

  std::string_view name() const override { return "mxfp4"; }

 protected:
  // The list of what is not converted names what is no expert, and decides nothing.
  Result<Verdict> configured(const ModuleRef& module, const TensorClaims& claims) const override {
    if (module.slice || find_part(claims, module.path, "blocks") != nullptr)
      return Verdict{.scheme = experts_, .rule = "quant_method mxfp4"};
    MORACLE_ASSIGN(const int index, listed_.first_index(names_of(module)));
    return Verdict{.rule = index < 0 ? "not an expert" : texts_[static_cast<std::size_t>(index) / 2]};
  }

  Result<bool> plain_allowed(const ModuleRef& /*module*/) const override { return true; }

 private:
  std::shared_ptr<const StoredScheme> experts_;
  std::vector<std::string> texts_;  // each is two patterns of listed_
  PatternList listed_;
};

}  // namespace

Result<std::unique_ptr<Format>> make_mxfp4(const QuantConfig& config) {
  return Mxfp4::make(config);
}

}  // namespace moracle
