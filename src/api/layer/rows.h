// Rows of numbers as a host program keeps them: of one of several types, with a stride.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace moracle::api {

// Bytes of a dtype of moracle.h; 0: unknown.
[[nodiscard]] std::size_t bytes_of(std::int32_t dtype);

struct ConstRows {
  const std::byte* data = nullptr;
  std::int32_t dtype = 0;
  std::int64_t rows = 0, width = 0;
  std::int64_t stride = 0;  // in elements

  // Rows of f32 that lie side by side and are aligned as a float is.
  [[nodiscard]] bool plain() const;
  [[nodiscard]] const std::byte* row(std::int64_t index) const;
  [[nodiscard]] std::size_t extent() const;  // bytes from the first row to the end of the last
};

// Errors: "argument.null", "argument.dtype", "argument.stride" (shorter than a row, or further than memory reaches).
Result<ConstRows> check_rows(const void* data, std::int32_t dtype, std::int64_t rows, std::int64_t width,
                             std::int64_t stride, std::string_view name);

// Row `index` of floats, widened to f32; and f32 rounded to the type of the row. No alignment is needed.
void read_row(const ConstRows& rows, std::int64_t index, float* out);
void write_row(const float* values, const ConstRows& rows, std::int64_t index);
// Element of a row of integers.
[[nodiscard]] std::int64_t integer_at(const ConstRows& rows, std::int64_t row, std::int64_t column);

}  // namespace moracle::api
