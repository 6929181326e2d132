#include "format/decode/plain.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "base/checked.h"
#include "format/faults.h"
#include "format/rules/spelling.h"
#include "format/rules/tensor_check.h"
#include "scheme/codes.h"

namespace moracle {
namespace {

// Where one matrix lies inside a tensor, in elements.
struct Strides {
  std::int64_t origin = 0;
  std::int64_t row = 0;     // from one row to the next
  std::int64_t column = 1;  // from one column to the next
  std::int64_t expert = 0;  // of this expert's first element inside a stacked tensor, for messages
};

QuantKey plain_key(Dtype dtype) {
  return QuantKey{.element = dtype == Dtype::f32 ? Element::f32 : dtype == Dtype::f16 ? Element::f16 : Element::bf16};
}

struct Bf16 {
  static constexpr std::int64_t kBytes = 2;
  static float at(const std::byte* p) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(load<std::uint16_t>(p)) << 16);
  }
};
struct F16 {
  static constexpr std::int64_t kBytes = 2;
  static float at(const std::byte* p) { return decode_f16(load<std::uint16_t>(p)); }
};
struct F32 {
  static constexpr std::int64_t kBytes = 4;
  static float at(const std::byte* p) { return load<float>(p); }
};

// Converts `count` elements; false when one is NaN or infinite (all exponent bits set), found without a branch so that
// the loop vectorizes.
template <class T>
bool convert(const std::byte* from, std::int64_t count, std::int64_t stride, float* to) {
  std::uint32_t bad = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = T::at(from + i * stride * T::kBytes);
    bad |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(value) & 0x7F800000U) == 0x7F800000U);
    to[i] = value;
  }
  return bad == 0;
}

class PlainSource final : public MatrixSource {
 public:
  PlainSource(MatrixSpec spec, std::shared_ptr<const Checkpoint> checkpoint, const TensorView& tensor, Strides strides)
      : MatrixSource(std::move(spec)), checkpoint_(std::move(checkpoint)), tensor_(tensor), strides_(strides) {}

  Result<> read(std::int64_t begin, std::int64_t end, MatrixPanel& out) const override {
    if (begin < 0 || begin > end || end > spec_.rows)
      return tensor_error("panel.range", tensor_, fmt::format("rows within [0, {})", spec_.rows),
                          fmt::format("[{}, {})", begin, end));
    out.rows = end - begin;
    out.codes.clear();
    out.scales.clear();
    out.zeros.clear();
    out.values.resize(narrow<std::size_t>(out.rows * spec_.cols));
    if (tensor_.dtype == Dtype::f32) return read_rows<F32>(begin, out);
    return tensor_.dtype == Dtype::f16 ? read_rows<F16>(begin, out) : read_rows<Bf16>(begin, out);
  }

  std::optional<RawCodes> raw_codes() const override {
    const int bits = bits_of(tensor_.dtype);
    if (strides_.column != 1 || spec_.cols * bits % 32 != 0 || fault(Fault::shared_expert_as_int8)) return std::nullopt;
    return RawCodes{.first = tensor_.bytes.data() + strides_.origin * bits / 8,
                    .row_bytes = strides_.row * bits / 8,
                    .bits = bits,
                    .tensor = tensor_.bytes};
  }

  void fetch(std::span<const std::byte> words, std::byte* to) const override { checkpoint_->copy(words, to); }

  void release() const override { checkpoint_->release(tensor_.bytes); }

  void list_stored(std::vector<std::span<const std::byte>>& parts) const override { parts.push_back(tensor_.bytes); }

  std::shared_ptr<const MatrixSource> relocated(const MoveBytes& moved) const override {
    auto copy = std::make_shared<PlainSource>(*this);
    copy->tensor_.bytes = moved(tensor_.bytes);
    return copy;
  }

 private:
  template <class T>
  Result<> read_rows(std::int64_t begin, MatrixPanel& out) const {
    for (std::int64_t r = 0; r < out.rows; ++r) {
      const std::int64_t first = strides_.origin + (begin + r) * strides_.row;
      const std::byte* from = tensor_.bytes.data() + first * T::kBytes;
      float* to = out.values.data() + r * spec_.cols;
      // The contiguous case is a call of its own: a constant stride is what vectorizes.
      const bool finite = strides_.column == 1 ? convert<T>(from, spec_.cols, 1, to)
                                               : convert<T>(from, spec_.cols, strides_.column, to);
      if (fault(Fault::shared_expert_as_int8) && spec_.name.find("share") != std::string::npos)
        for (std::int64_t k = 0; k < spec_.cols; ++k) to[k] = std::trunc(to[k]);
      if (finite) continue;
      for (std::int64_t k = 0; k < spec_.cols; ++k)
        if (!std::isfinite(to[k])) return value_error(tensor_, strides_.expert + first + k * strides_.column, to[k]);
    }
    return Ok{};
  }

  std::shared_ptr<const Checkpoint> checkpoint_;
  TensorView tensor_;  // of a stacked tensor, the bytes of one expert
  Strides strides_;
};

Result<const TensorView*> find_weight(const ModuleRef& module, const TensorClaims& claims) {
  const TensorView* tensor = find_part(claims, module.path, "weight");
  if (tensor == nullptr)
    return Error{.code = "tensor.missing",
                 .file = claims.checkpoint()->folder().string(),
                 .where = part_name(claims, module.path, "weight"),
                 .wanted = "the weight of " + module.path,
                 .found = "no such tensor"};
  if (!is_float(tensor->dtype)) {
    Error error =
        tensor_error("config.contradiction", *tensor, "BF16, F16 or F32, since the config leaves it unquantized",
                     std::string(to_string(tensor->dtype)));
    error.advice = "the tensor is quantized, but quantization_config does not say how";
    return error;
  }
  return tensor;
}

MatrixSpec plain_spec(const ModuleRef& module, const TensorView& tensor) {
  return MatrixSpec{.name = module.path, .rows = module.out, .cols = module.in, .key = plain_key(tensor.dtype)};
}

// Rows `row_begin`, `row_begin + row_stride`, ... of one expert must lie inside it.
Result<> check_slice(const ModuleRef& module, const TensorView& tensor) {
  const ModuleRef::Slice& slice = *module.slice;
  if (tensor.shape.size() == 3 && tensor.shape[0] != slice.experts)
    return tensor_error("experts.count", tensor, std::to_string(slice.experts) + " experts",
                        std::to_string(tensor.shape[0]));
  const auto last = checked_mul(module.out - 1, slice.row_stride);
  const bool inside = module.out > 0 && slice.row_begin >= 0 && slice.row_stride > 0 && last &&
                      *last < slice.total_rows - slice.row_begin && slice.expert >= 0 && slice.expert < slice.experts;
  if (!inside)
    return tensor_error("tensor.shape", tensor, fmt::format("room for {} rows of {}", module.out, module.path),
                        std::to_string(slice.total_rows) + " rows an expert");
  std::vector<std::int64_t> shape = slice.transposed ? std::vector{slice.experts, module.in, slice.total_rows}
                                                     : std::vector{slice.experts, slice.total_rows, module.in};
  // A stack of one may be stored without its first dimension.
  if (slice.experts == 1 && tensor.shape.size() == 2) shape.erase(shape.begin());
  return expect_shape(tensor, shape);
}

// Nothing of a plain matrix is read before its rows.
auto plain_source(const TensorClaims& claims, TensorView tensor, const Strides& strides) {
  return [checkpoint = claims.checkpoint(), tensor = std::move(tensor),
          strides](MatrixSpec spec) -> Result<CanonicalLinear> {
    return CanonicalLinear{.weight = std::make_shared<PlainSource>(std::move(spec), checkpoint, tensor, strides)};
  };
}

Result<StoredLinear> open_slice(const ModuleRef& module, TensorClaims& claims) {
  MORACLE_ASSIGN(const TensorView* found, find_weight(module, claims));
  MORACLE_TRY(check_slice(module, *found));
  MORACLE_TRY(claims.claim_shared(found->name));
  const ModuleRef::Slice& slice = *module.slice;
  TensorView tensor = *found;
  const std::size_t expert_bytes = tensor.bytes.size() / narrow<std::size_t>(slice.experts);
  tensor.bytes = tensor.bytes.subspan(narrow<std::size_t>(slice.expert) * expert_bytes, expert_bytes);
  Strides strides = slice.transposed ? Strides{slice.row_begin, slice.row_stride, slice.total_rows}
                                     : Strides{slice.row_begin * module.in, slice.row_stride * module.in, 1};
  strides.expert = slice.expert * slice.total_rows * module.in;
  StoredLinear linear{.spec = plain_spec(module, tensor)};
  MORACLE_ASSIGN(linear.bias, claim_slice_bias(module, claims));
  linear.open = plain_source(claims, std::move(tensor), strides);
  return linear;
}

class PlainFormat final : public Format {
 public:
  std::string_view name() const override { return "none"; }
  Result<ModuleScheme> scheme_of(const ModuleRef& module, const TensorClaims& claims) const override {
    MORACLE_ASSIGN(const Scheme scheme, plain_scheme(module, claims));
    return ModuleScheme{.scheme = scheme};
  }
  Result<StoredLinear> open(const ModuleRef& module, TensorClaims& claims) const override {
    return open_plain(module, claims);
  }
};

}  // namespace

Result<std::optional<StoredBias>> claim_slice_bias(const ModuleRef& module, TensorClaims& claims) {
  const ModuleRef::Slice& slice = *module.slice;
  const TensorView* whole = find_part(claims, module.path, "bias");
  if (whole == nullptr) return std::optional<StoredBias>();
  MORACLE_TRY(claims.claim_shared(whole->name));
  const bool single = slice.experts == 1 && whole->shape.size() == 1;
  MORACLE_TRY(
      expect_shape(*whole, single ? std::vector{slice.total_rows} : std::vector{slice.experts, slice.total_rows}));
  MORACLE_TRY(expect_dtype(*whole, {Dtype::bf16, Dtype::f16, Dtype::f32}));
  TensorView row = *whole;
  const auto row_bytes = narrow<std::size_t>(slice.total_rows) * narrow<std::size_t>(bits_of(row.dtype) / 8);
  row.bytes = row.bytes.subspan(narrow<std::size_t>(slice.expert) * row_bytes, row_bytes);
  return std::optional<StoredBias>(
      StoredBias{.tensor = std::move(row), .begin = slice.row_begin, .stride = slice.row_stride});
}

Result<StoredLinear> open_plain(const ModuleRef& module, TensorClaims& claims) {
  if (module.slice) return open_slice(module, claims);
  MORACLE_ASSIGN(const TensorView* tensor, find_weight(module, claims));
  MORACLE_TRY(expect_shape(*tensor, {module.out, module.in}));
  MORACLE_TRY(claims.claim(tensor->name));
  StoredLinear linear{.spec = plain_spec(module, *tensor)};
  MORACLE_ASSIGN(linear.bias, claim_bias(module, claims));
  linear.open = plain_source(claims, *tensor, Strides{0, module.in, 1});
  return linear;
}

Result<Scheme> plain_scheme(const ModuleRef& module, const TensorClaims& claims) {
  MORACLE_ASSIGN(const TensorView* tensor, find_weight(module, claims));
  return Scheme{.weight = plain_key(tensor->dtype)};
}

bool stored_plain(const ModuleRef& module, const TensorClaims& claims) {
  const TensorView* tensor = find_part(claims, module.path, "weight");
  return tensor != nullptr && is_float(tensor->dtype);
}

std::unique_ptr<Format> make_plain() {
  return std::make_unique<PlainFormat>();
}

}  // namespace moracle
