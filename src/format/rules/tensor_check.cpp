#include "format/rules/tensor_check.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/checked.h"
#include "format/rules/spelling.h"
#include "scheme/codes.h"

namespace moracle {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

Error tensor_error(std::string code, const TensorView& tensor, std::string wanted, std::string found) {
  return Error{.code = std::move(code),
               .file = tensor.file,
               .where = tensor.name,
               .wanted = std::move(wanted),
               .found = std::move(found)};
}

Result<> expect_dtype(const TensorView& tensor, std::initializer_list<Dtype> allowed) {
  if (std::find(allowed.begin(), allowed.end(), tensor.dtype) != allowed.end()) return Ok{};
  std::string wanted;
  for (const Dtype dtype : allowed) wanted += (wanted.empty() ? "" : " or ") + std::string(to_string(dtype));
  return tensor_error("tensor.dtype", tensor, wanted, std::string(to_string(tensor.dtype)));
}

Result<> expect_shape(const TensorView& tensor, const std::vector<std::int64_t>& shape) {
  if (tensor.shape != shape) return tensor_error("tensor.shape", tensor, shape_text(shape), shape_text(tensor.shape));
  const auto elements = checked_product(std::span<const std::int64_t>(shape));
  const auto bits = elements ? checked_mul<std::int64_t>(*elements, bits_of(tensor.dtype)) : std::nullopt;
  if (!bits || *bits < 0 || narrow<std::uint64_t>(*bits / 8) != tensor.bytes.size())
    return tensor_error("tensor.size", tensor, "the bytes of shape " + shape_text(shape),
                        std::to_string(tensor.bytes.size()) + " bytes");
  return Ok{};
}

bool is_float(Dtype dtype) {
  return dtype == Dtype::bf16 || dtype == Dtype::f16 || dtype == Dtype::f32;
}

Error incomplete_error(const TensorClaims& claims, const std::string& name) {
  return Error{.code = "quant.incomplete",
               .file = claims.checkpoint()->folder().string(),
               .where = name,
               .wanted = "a tensor " + name + ", since the module is quantized",
               .found = "no such tensor",
               .advice = "if the module is stored unquantized, the config must exclude it"};
}

Result<const TensorView*> claim_part(TensorClaims& claims, const std::string& module, std::string_view part) {
  const TensorView* tensor = find_part(claims, module, part);
  if (tensor == nullptr) return incomplete_error(claims, part_name(claims, module, part));
  return claims.claim(tensor->name);
}

Result<const TensorView*> claim_optional(TensorClaims& claims, const std::string& module, std::string_view part) {
  const TensorView* tensor = find_part(claims, module, part);
  if (tensor == nullptr) return tensor;
  return claims.claim(tensor->name);
}

Error value_error(const TensorView& tensor, std::int64_t index, float value) {
  return tensor_error("value.nan", tensor, "a finite number at element " + std::to_string(index),
                      std::isnan(value) ? "NaN" : "infinity");
}

Result<std::vector<float>> read_floats(const TensorView& tensor) {
  MORACLE_TRY(expect_dtype(tensor, {Dtype::bf16, Dtype::f16, Dtype::f32}));
  const std::size_t width = tensor.dtype == Dtype::f32 ? 4 : 2;
  std::vector<float> values(tensor.bytes.size() / width);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::byte* at = tensor.bytes.data() + i * width;
    if (tensor.dtype == Dtype::f32)
      values[i] = load<float>(at);
    else
      values[i] =
          tensor.dtype == Dtype::bf16 ? decode_bf16(load<std::uint16_t>(at)) : decode_f16(load<std::uint16_t>(at));
    if (!std::isfinite(values[i])) return value_error(tensor, narrow<std::int64_t>(i), values[i]);
  }
  return values;
}

Result<std::vector<std::int32_t>> read_integers(const TensorView& tensor) {
  MORACLE_TRY(expect_dtype(tensor, {Dtype::i32, Dtype::i64}));
  const std::size_t width = tensor.dtype == Dtype::i32 ? 4 : 8;
  std::vector<std::int32_t> values(tensor.bytes.size() / width);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::byte* at = tensor.bytes.data() + i * width;
    const std::int64_t value = width == 4 ? load<std::int32_t>(at) : load<std::int64_t>(at);
    if (value < std::numeric_limits<std::int32_t>::min() || value > std::numeric_limits<std::int32_t>::max())
      return tensor_error("number.range", tensor, "a 32-bit integer at element " + std::to_string(i),
                          std::to_string(value));
    values[i] = narrow<std::int32_t>(value);
  }
  return values;
}

Result<std::optional<StoredBias>> claim_bias(const ModuleRef& module, TensorClaims& claims) {
  MORACLE_ASSIGN(const TensorView* bias, claim_optional(claims, module.path, "bias"));
  if (bias == nullptr) return std::optional<StoredBias>();
  MORACLE_TRY(expect_shape(*bias, {module.out}));
  MORACLE_TRY(expect_dtype(*bias, {Dtype::bf16, Dtype::f16, Dtype::f32}));
  return std::optional<StoredBias>(StoredBias{.tensor = *bias});
}

}  // namespace moracle
