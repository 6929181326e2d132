#include "checkpoint/dtype.h"

#include <array>
#include <string>

#include "base/checked.h"

namespace moracle {

namespace {

struct DtypeRow {
  Dtype dtype;
  std::string_view spelling;
  int bits;
};

constexpr std::array<DtypeRow, 17> kDtypes = {{
    {Dtype::boolean, "BOOL", 8},
    {Dtype::u8, "U8", 8},
    {Dtype::i8, "I8", 8},
    {Dtype::u16, "U16", 16},
    {Dtype::i16, "I16", 16},
    {Dtype::u32, "U32", 32},
    {Dtype::i32, "I32", 32},
    {Dtype::u64, "U64", 64},
    {Dtype::i64, "I64", 64},
    {Dtype::f8_e4m3, "F8_E4M3", 8},
    {Dtype::f8_e5m2, "F8_E5M2", 8},
    {Dtype::f8_e8m0, "F8_E8M0", 8},
    {Dtype::f4, "F4", 4},
    {Dtype::bf16, "BF16", 16},
    {Dtype::f16, "F16", 16},
    {Dtype::f32, "F32", 32},
    {Dtype::f64, "F64", 64},
}};

constexpr bool rows_follow_the_enum() {
  for (std::size_t i = 0; i < kDtypes.size(); ++i) {
    if (static_cast<std::size_t>(kDtypes[i].dtype) != i) return false;
  }
  return true;
}
static_assert(rows_follow_the_enum(), "the table is indexed by the enum");

const DtypeRow& row_of(Dtype dtype) {
  return kDtypes[static_cast<std::size_t>(dtype)];
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t dim : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(dim);
  }
  return text + "]";
}

}  // namespace

std::string_view to_string(Dtype dtype) {
  return row_of(dtype).spelling;
}

int bits_of(Dtype dtype) {
  return row_of(dtype).bits;
}

std::optional<Dtype> parse_dtype(std::string_view spelling) {
  for (const DtypeRow& row : kDtypes) {
    if (row.spelling == spelling) return row.dtype;
  }
  return std::nullopt;
}

Result<std::uint64_t> tensor_bytes(Dtype dtype, std::span<const std::int64_t> shape) {
  if (shape.size() > kMaxRank) {
    return Error{.code = "shape.overflow",
                 .wanted = "at most " + std::to_string(kMaxRank) + " dimensions",
                 .found = std::to_string(shape.size()) + " dimensions"};
  }
  for (const std::int64_t dim : shape) {
    if (dim < 1) {
      return Error{.code = "shape.overflow", .wanted = "dimensions of at least 1", .found = shape_text(shape)};
    }
  }
  const auto elements = checked_product(shape);
  const auto bits = elements ? checked_mul<std::int64_t>(*elements, bits_of(dtype)) : std::nullopt;
  if (!bits) {
    return Error{.code = "shape.overflow",
                 .wanted = "a size that fits in 63 bits",
                 .found = shape_text(shape) + " of " + std::string(to_string(dtype))};
  }
  if (*bits % 8 != 0) {
    return Error{.code = "dtype.misaligned",
                 .wanted = "an even number of " + std::string(to_string(dtype)) + " elements, two per byte",
                 .found = std::to_string(*elements) + " elements"};
  }
  return static_cast<std::uint64_t>(*bits / 8);
}

}  // namespace moracle
