// What the integer formats share when they open one module.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/generic/function_ref.h"
#include "format/decode/packed_int.h"
#include "format/format.h"

namespace moracle {

// Bits, group and symmetry of one module's weight, as its config says.
struct IntScheme {
  std::int64_t bits = 4;         // 4 or 8
  std::int64_t group_size = -1;  // columns; -1: one scale a row
  bool symmetric = true;

  [[nodiscard]] std::int64_t group_cols(std::int64_t cols) const {
    return group_size < 0 || group_size > cols ? cols : group_size;
  }
  [[nodiscard]] std::int64_t groups(std::int64_t cols) const { return (cols - 1) / group_cols(cols) + 1; }
  // The key of weights whose scales have this dtype.
  [[nodiscard]] QuantKey key(Dtype scale_dtype) const;
};

// Scales [groups, out] or, `by_out`, [out, groups]. One scale a row may also be stored as [out], [out, 1] or [1, out].
// A group size that does not divide the inputs is accepted where the number of groups proves it.
// Errors: "tensor.dtype"; "quant.group" with group size, inputs and what is stored; "tensor.shape".
Result<> check_scales(const TensorView& scales, const IntScheme& scheme, const ModuleRef& module, bool by_out);

// The codes of a matrix whose words run along `packed` elements of the other dimension: [words, across] or, swapped,
// [across, words]. Errors: "tensor.dtype"; "config.contradiction" when the shape is that of other bits; "tensor.shape".
Result<> check_codes(const TensorView& codes, std::int64_t bits, std::int64_t packed, std::int64_t across,
                     bool words_first);

// The spec of the module's matrix, without a group index.
[[nodiscard]] MatrixSpec int_spec(const ModuleRef& module, const IntScheme& scheme, Dtype scale_dtype);

// A part of a module in 32-bit words or of its scales: a tensor of its own, or of stacked experts the part of one.
// Nothing where it is not stored. Errors: "quant.incomplete" where it is needed; "experts.count".
Result<std::optional<TensorView>> claim_int_part(TensorClaims& claims, const ModuleRef& module, std::string_view part,
                                                 bool needed);

// Opens a module by `open`, which opens whole matrices alone: of a part of the rows of a stacked expert, all its rows.
Result<StoredLinear> open_rows(const ModuleRef& module, FunctionRef<Result<StoredLinear>(const ModuleRef&)> open);

// The error of a stacked 3-D tensor that is not stored plainly.
[[nodiscard]] Error stacked_error(const ModuleRef& module, const TensorClaims& claims, std::string_view format);

// A module that must be stored quantized or plainly but is neither.
[[nodiscard]] Error absent_error(const ModuleRef& module, const TensorClaims& claims, std::string_view codes_part);

// "3 scales of zero ..." when there were some.
[[nodiscard]] std::vector<std::string> value_warnings(const ValueNotes& notes);

}  // namespace moracle
