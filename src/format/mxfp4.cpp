// quant_method mxfp4: experts stacked as "<path>_blocks" U8 [experts, rows, in / 32, 16], low half first, with
// "<path>_scales" U8 [experts, rows, in / 32] and "<path>_bias" [experts, rows]. All else is unquantized.
#include "format/code_module.h"
#include "format/formats.h"
#include "format/plain.h"

namespace moracle {
namespace {

class Mxfp4 final : public SchemeFormat {
 public:
  Mxfp4() {
    CodeScheme scheme{.weight = mx_key(Element::e2m1), .form = CodeForm::nibbles};
    scheme.parts.codes = "blocks";
    scheme.parts.scales = {"scales"};
    scheme.parts.blocks = true;
    experts_ = make_code_scheme(std::move(scheme), notes());
  }

  std::string_view name() const override { return "mxfp4"; }

 protected:
  // The list of what is not converted only repeats this.
  Result<Verdict> configured(const ModuleRef& module, const TensorLedger& ledger) const override {
    if (module.slice || find_part(ledger, module, "blocks") != nullptr)
      return Verdict{.scheme = experts_, .rule = "quant_method mxfp4"};
    return Verdict{.rule = "not an expert"};
  }

  Result<bool> plain_allowed(const ModuleRef& /*module*/) const override { return true; }

 private:
  std::shared_ptr<const StoredScheme> experts_;
};

}  // namespace

Result<std::unique_ptr<Format>> make_mxfp4(const QuantConfig& config) {
  MORACLE_TRY(config.strings("modules_to_not_convert"));
  return std::unique_ptr<Format>(std::make_unique<Mxfp4>());
}

}  // namespace moracle
