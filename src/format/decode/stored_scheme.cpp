#include "format/decode/stored_scheme.h"

#include <fmt/format.h>

#include "format/decode/code_module.h"
#include "format/decode/int_module.h"
#include "format/decode/plain.h"
#include "format/decode/stored_fp8.h"
#include "format/rules/tensor_check.h"

namespace moracle {

Result<ModuleScheme> SchemeFormat::scheme_of(const ModuleRef& module, const TensorClaims& claims) const {
  MORACLE_ASSIGN(const Verdict verdict, judge(module, claims));
  if (verdict.scheme != nullptr) return ModuleScheme{.scheme = verdict.scheme->scheme(module, claims)};
  MORACLE_ASSIGN(const Scheme plain, excluded_scheme(module, claims));
  return ModuleScheme{.scheme = plain, .excluded_by = verdict.rule};
}

Result<StoredLinear> SchemeFormat::open(const ModuleRef& module, TensorClaims& claims) const {
  checkpoint_ = claims.checkpoint();
  MORACLE_ASSIGN(const Verdict verdict, judge(module, claims));
  if (verdict.scheme != nullptr) return verdict.scheme->open(module, claims);
  return open_excluded(module, verdict.rule, claims, notes_);
}

std::vector<std::string> SchemeFormat::warnings() const {
  std::vector<std::string> texts = warnings_;
  for (std::string& text : value_warnings(*notes_)) texts.push_back(std::move(text));
  return texts;
}

Result<SchemeFormat::Verdict> SchemeFormat::judge(const ModuleRef& module, const TensorClaims& claims) const {
  MORACLE_ASSIGN(Verdict verdict, configured(module, claims));
  if (verdict.scheme == nullptr) return verdict;
  const bool plain = stored_plain(module, claims);
  const std::string_view part = verdict.scheme->codes_part();
  const TensorView* codes = find_part(claims, module.path, part);
  if (codes != nullptr && !is_float(codes->dtype)) {
    if (!plain) return verdict;
    return tensor_error("quant.ambiguous", *codes, "one weight for " + module.path, "a plain weight as well as this");
  }
  if (!plain) return absent_error(module, claims, part);
  MORACLE_ASSIGN(const bool allowed, plain_allowed(module));
  if (allowed) return Verdict{.rule = "stored unquantized"};
  return Error{.code = "quant.incomplete",
               .file = claims.checkpoint()->folder().string(),
               .where = fmt::format("{}.{}", module.path, part),
               .wanted = fmt::format("quantized codes, since the module is quantized by {}", verdict.rule),
               .found = "an unquantized weight",
               .advice = "if the module is meant to be unquantized, the config must exclude it"};
}

}  // namespace moracle
