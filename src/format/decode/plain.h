// Modules that are stored unquantized: BF16, F16 or F32, one matrix a tensor or experts stacked in a 3-D tensor.
#pragma once

#include <memory>
#include <optional>

#include "format/format.h"

namespace moracle {

// open_plain (format.h) also opens slices: "<path>" or "<path>.weight" [experts, rows, in] (transposed:
// [experts, in, rows]) with "<path>_bias" or "<path>.bias" [experts, rows]. Errors there: "experts.count".

// The scheme of a module that is stored plainly, from its dtype. Errors as above.
Result<Scheme> plain_scheme(const ModuleRef& module, const TensorClaims& claims);

// True when the module has a plain weight: "<path>.weight", or "<path>" for a slice, of a float dtype.
[[nodiscard]] bool stored_plain(const ModuleRef& module, const TensorClaims& claims);

// A slice's part of the bias stacked as "<path>_bias" or "<path>.bias" [experts, rows]; of a stack of one also [rows].
Result<std::optional<StoredBias>> claim_slice_bias(const ModuleRef& module, TensorClaims& claims);

// The format of checkpoints without quantization_config.
[[nodiscard]] std::unique_ptr<Format> make_plain();

}  // namespace moracle
