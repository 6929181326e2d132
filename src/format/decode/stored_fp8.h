// E4M3 weights whose scales say by their shape what they belong to: the tensor, a row, a group or a block.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "format/decode/code_module.h"

namespace moracle {

// `none`: activations stay as they are. `dynamic`: by token, or under groups and blocks in groups of as many columns.
// `fixed`: by the stored input_scale.
enum class Fp8Activations : std::uint8_t { none, dynamic, fixed };

// `said` is the granularity of the config, which counts where it fits.
std::shared_ptr<const StoredScheme> make_stored_fp8(Fp8Activations activations, std::optional<Granularity> said,
                                                    std::shared_ptr<ValueNotes> notes);

// Whether the module has E4M3 codes with scales.
[[nodiscard]] bool is_stored_fp8(const ModuleRef& module, const TensorClaims& claims);

// The granularity of stored scales. Of blocks whose size the shape leaves open, powers of two come first. Nothing where
// the shape fits none.
[[nodiscard]] std::optional<Granularity> fp8_granularity(const ModuleRef& module, const TensorView& scales,
                                                         const std::optional<Granularity>& said);

// A module that the config leaves unquantized: plain, or in the E4M3 codes of a source that was quantized before, whose
// activations then stay as they are. `rule` excludes it. Errors: those of open_plain and of StoredScheme::open.
Result<Scheme> excluded_scheme(const ModuleRef& module, const TensorClaims& claims);
Result<StoredLinear> open_excluded(const ModuleRef& module, std::string rule, TensorClaims& claims,
                                   const std::shared_ptr<ValueNotes>& notes);

}  // namespace moracle
