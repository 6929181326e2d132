#include "api/layer/rows.h"

#include <moracle/moracle.h>

#include <cstring>
#include <string>

#include "api/edge/call.h"
#include "base/checked.h"
#include "scheme/codes.h"

namespace moracle::api {

namespace {

// Hosts promise no alignment.
template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class T, class Decode>
void decode(const std::byte* from, std::int64_t count, float* to, const Decode& value_of) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = value_of(load<T>(from + i * std::int64_t{sizeof(T)}));
}

template <class Encode>
void encode(const float* from, std::int64_t count, std::byte* to, const Encode& code_of) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint16_t code = code_of(from[i]);
    std::memcpy(to + 2 * i, &code, sizeof code);
  }
}

}  // namespace

std::size_t bytes_of(std::int32_t dtype) {
  switch (dtype) {
    case MORACLE_F32:
    case MORACLE_INT32:
      return 4;
    case MORACLE_BF16:
    case MORACLE_F16:
      return 2;
    case MORACLE_INT64:
      return 8;
    default:
      return 0;
  }
}

bool ConstRows::plain() const {
  return dtype == MORACLE_F32 && stride == width && reinterpret_cast<std::uintptr_t>(data) % alignof(float) == 0;
}

const std::byte* ConstRows::row(std::int64_t index) const {
  return data + index * stride * narrow<std::int64_t>(bytes_of(dtype));
}

std::size_t ConstRows::extent() const {
  return rows == 0 ? 0 : narrow<std::size_t>((rows - 1) * stride + width) * bytes_of(dtype);
}

Result<ConstRows> check_rows(const void* data, std::int32_t dtype, std::int64_t rows, std::int64_t width,
                             std::int64_t stride, std::string_view name) {
  const std::string of(name);
  if (rows > 0 && data == nullptr) return null_argument(name);
  const std::int64_t step = stride == 0 ? width : stride;
  if (step < width) {
    return wrong_argument("stride", of + "_stride", "at least " + std::to_string(width) + ", or 0",
                          std::to_string(stride));
  }
  const auto elements = checked_mul(rows, step);
  if (!elements || !checked_mul<std::int64_t>(*elements, 8)) {
    return wrong_argument("stride", of + "_stride", "rows that memory can hold", std::to_string(stride));
  }
  return ConstRows{static_cast<const std::byte*>(data), dtype, rows, width, step};
}

void read_row(const ConstRows& rows, std::int64_t index, float* out) {
  const std::byte* const from = rows.row(index);
  switch (rows.dtype) {
    case MORACLE_BF16:
      return decode<std::uint16_t>(from, rows.width, out, decode_bf16);
    case MORACLE_F16:
      return decode<std::uint16_t>(from, rows.width, out, decode_f16);
    default:
      std::memcpy(out, from, sizeof(float) * narrow<std::size_t>(rows.width));
  }
}

void write_row(const float* values, const ConstRows& rows, std::int64_t index) {
  auto* const to = const_cast<std::byte*>(rows.row(index));
  switch (rows.dtype) {
    case MORACLE_BF16:
      return encode(values, rows.width, to, encode_bf16);
    case MORACLE_F16:
      return encode(values, rows.width, to, encode_f16);
    default:
      std::memcpy(to, values, sizeof(float) * narrow<std::size_t>(rows.width));
  }
}

std::int64_t integer_at(const ConstRows& rows, std::int64_t row, std::int64_t column) {
  const std::byte* const from = rows.row(row);
  return rows.dtype == MORACLE_INT64 ? load<std::int64_t>(from + 8 * column) : load<std::int32_t>(from + 4 * column);
}

}  // namespace moracle::api
