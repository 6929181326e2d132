// Checks that every format makes on the tensors it claims.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "format/format.h"

namespace moracle {

// "[256, 32]"
[[nodiscard]] std::string shape_text(const std::vector<std::int64_t>& shape);

// An error about one stored tensor; `wanted` and `found` are for people.
[[nodiscard]] Error tensor_error(std::string code, const TensorView& tensor, std::string wanted, std::string found);

// Errors: "tensor.dtype", naming what is allowed.
Result<> expect_dtype(const TensorView& tensor, std::initializer_list<Dtype> allowed);
// Exactly this shape, and as many bytes as it needs. Errors: "tensor.shape", "tensor.size".
Result<> expect_shape(const TensorView& tensor, const std::vector<std::int64_t>& shape);

[[nodiscard]] bool is_float(Dtype dtype);  // bf16, f16, f32

// The error of a tensor that a quantized module cannot do without: "quant.incomplete".
[[nodiscard]] Error incomplete_error(const TensorClaims& claims, const std::string& name);

// Claims a part (spelling.h) that a quantized module cannot do without. Errors: "quant.incomplete".
Result<const TensorView*> claim_part(TensorClaims& claims, const std::string& module, std::string_view part);
// The same for a part that may be absent: null then.
Result<const TensorView*> claim_optional(TensorClaims& claims, const std::string& module, std::string_view part);

// All elements of a small float tensor as f32. Errors: "tensor.dtype", "value.nan" with the flat index.
Result<std::vector<float>> read_floats(const TensorView& tensor);
// All elements of a small I32 or I64 tensor. Errors: "tensor.dtype", "number.range".
Result<std::vector<std::int32_t>> read_integers(const TensorView& tensor);

// Claims "<module>.bias" [out] where it is stored.
Result<std::optional<StoredBias>> claim_bias(const ModuleRef& module, TensorClaims& claims);

// The error of a NaN or an infinity at flat index `index`.
[[nodiscard]] Error value_error(const TensorView& tensor, std::int64_t index, float value);

// Files promise no alignment.
template <class T>
[[nodiscard]] T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace moracle
