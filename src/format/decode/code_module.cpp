#include "format/decode/code_module.h"

#include <fmt/format.h>

#include <cmath>

#include "base/checked.h"
#include "format/decode/plain.h"
#include "format/faults.h"
#include "format/rules/tensor_check.h"

namespace moracle {
namespace {

using Shape = std::vector<std::int64_t>;

Shape squeezed(const Shape& shape) {
  Shape kept;
  for (const std::int64_t dim : shape)
    if (dim != 1) kept.push_back(dim);
  return kept;
}

// Publishers add and drop dimensions of one as they like.
Result<> expect_squeezed(const TensorView& tensor, const Shape& wanted) {
  if (squeezed(tensor.shape) != squeezed(wanted)) return expect_shape(tensor, wanted);
  return expect_shape(tensor, tensor.shape);
}

Result<const TensorView*> claim(TensorClaims& claims, const ModuleRef& module, const TensorView& tensor) {
  return module.slice ? claims.claim_shared(tensor.name) : claims.claim(tensor.name);
}

Result<const TensorView*> claim_existing(TensorClaims& claims, const ModuleRef& module, std::string_view part) {
  const TensorView* tensor = find_part(claims, module.path, part);
  if (tensor == nullptr) return incomplete_error(claims, part_name(claims, module.path, part));
  return claim(claims, module, *tensor);
}

std::int64_t experts_of(const ModuleRef& module) {
  return module.slice ? module.slice->experts : 1;
}
std::int64_t total_rows(const ModuleRef& module) {
  return module.slice ? module.slice->total_rows : module.out;
}

// The part of a tensor of all experts that belongs to one; its size has been checked.
RowGrid grid_of(const ModuleRef& module, const TensorView& tensor, bool transposed) {
  RowGrid grid{.tensor = tensor, .total_rows = total_rows(module), .transposed = transposed};
  if (!module.slice) return grid;
  const ModuleRef::Slice& slice = *module.slice;
  const std::size_t bytes = tensor.bytes.size() / narrow<std::size_t>(slice.experts);
  grid.tensor.bytes = tensor.bytes.subspan(bytes * narrow<std::size_t>(slice.expert), bytes);
  grid.origin = narrow<std::int64_t>(bytes) * slice.expert * 8 / bits_of(tensor.dtype);
  grid.row_begin = slice.row_begin;
  grid.row_stride = slice.row_stride;
  return grid;
}

Result<> check_slice_rows(const ModuleRef& module, const TensorView& tensor) {
  if (!module.slice) return Ok{};
  const ModuleRef::Slice& slice = *module.slice;
  const auto last = checked_mul(module.out - 1, slice.row_stride);
  const bool inside = module.out > 0 && slice.row_begin >= 0 && slice.row_stride > 0 && last &&
                      *last < slice.total_rows - slice.row_begin && slice.expert >= 0 && slice.expert < slice.experts;
  if (inside) return Ok{};
  return tensor_error("tensor.shape", tensor, fmt::format("room for {} rows of {}", module.out, module.path),
                      std::to_string(slice.total_rows) + " rows an expert");
}

// Scalars and zero points of one module, claimed and not read; null where there are none.
struct SmallParts {
  const TensorView* global = nullptr;  // the weight's second level
  const TensorView* input = nullptr;
  const TensorView* input_zeros = nullptr;
  std::size_t expert = 0;  // of a scalar that is stored for each expert
  RowGrid zeros{};         // of the weight
  bool has_zeros = false;
};

class CodeModule final : public StoredScheme, public std::enable_shared_from_this<CodeModule> {
 public:
  CodeModule(CodeScheme scheme, std::shared_ptr<ValueNotes> notes)
      : scheme_(std::move(scheme)), notes_(std::move(notes)) {}

  std::string_view codes_part() const override { return scheme_.parts.codes; }

  Scheme scheme(const ModuleRef& module, const TensorClaims& claims) const override {
    const TensorView* scales = find_part(claims, module.path, scales_part(module, claims));
    return {.weight = key_for(scales), .activation = scheme_.activation};
  }

  Result<StoredLinear> open(const ModuleRef& module, TensorClaims& claims) const override {
    CodeMatrix matrix{.form = scheme_.form};
    MORACLE_ASSIGN(const TensorView* codes, claim_existing(claims, module, scheme_.parts.codes));
    MORACLE_ASSIGN(const TensorView* scales, claim_existing(claims, module, scales_part(module, claims)));
    if (module.in < 1 || module.out < 1)
      return tensor_error("tensor.shape", *codes, "a matrix with rows and columns",
                          shape_text({module.out, module.in}));
    MORACLE_TRY(check_slice_rows(module, *codes));
    MORACLE_TRY(check_codes(module, *codes));
    MORACLE_TRY(check_scales(*scales));
    const bool transposed = module.slice && module.slice->transposed && !scheme_.parts.blocks;
    matrix.codes = grid_of(module, *codes, transposed);
    MatrixSpec spec{.name = module.path, .rows = module.out, .cols = module.in, .key = key_for(scales)};
    spec.group_cols = group_cols(module);
    spec.groups = groups(module);
    if (fault(Fault::channel_scales_along_input) && spec.key.granularity.kind == Granularity::Kind::channel) {
      spec.group_cols = 1;
      spec.groups = module.in;
    }
    MORACLE_TRY(place_scales(module, *scales, transposed, matrix));
    MORACLE_ASSIGN(const SmallParts parts, claim_small(module, claims));
    StoredLinear linear{.spec = std::move(spec), .activation = scheme_.activation};
    if (fault(Fault::activations_not_quantized)) linear.activation.reset();
    MORACLE_ASSIGN(linear.bias, module.slice ? claim_slice_bias(module, claims) : claim_bias(module, claims));
    if (!scheme_.unused.empty()) MORACLE_TRY(claim_optional(claims, module.path, scheme_.unused));
    linear.open = [self = shared_from_this(), matrix = std::move(matrix), parts, checkpoint = claims.checkpoint()](
                      MatrixSpec read) { return self->read(std::move(read), matrix, parts, checkpoint); };
    return linear;
  }

 private:
  [[nodiscard]] std::string_view scales_part(const ModuleRef& module, const TensorClaims& claims) const {
    for (const std::string& part : scheme_.parts.scales)
      if (find_part(claims, module.path, part) != nullptr) return part;
    if (scheme_.weight.element == Element::e4m3)
      for (const std::string_view part : kFp8Scales)
        if (find_part(claims, module.path, part) != nullptr) return part;
    return scheme_.parts.scales.front();
  }

  [[nodiscard]] QuantKey key_for(const TensorView* scales) const {
    QuantKey key = scheme_.weight;
    if (key.scale != ScaleType::f32 || scales == nullptr) return key;
    if (stores_exponents(*scales)) key.scale = ScaleType::e8m0;
    if (scales->dtype == Dtype::bf16) key.scale = ScaleType::bf16;
    if (scales->dtype == Dtype::f16) key.scale = ScaleType::f16;
    return key;
  }

  [[nodiscard]] std::int64_t group_cols(std::int64_t cols) const {
    const Granularity& g = scheme_.weight.granularity;
    const bool grouped = g.kind == Granularity::Kind::group || g.kind == Granularity::Kind::block;
    return grouped ? g.cols : cols;
  }
  [[nodiscard]] std::int64_t group_cols(const ModuleRef& module) const { return group_cols(module.in); }
  [[nodiscard]] std::int64_t groups(const ModuleRef& module) const { return ceil_div(module.in, group_cols(module)); }
  // Stored rows under one row of scales; 0 for all of them.
  [[nodiscard]] std::int64_t scale_rows() const {
    const Granularity& g = scheme_.weight.granularity;
    if (g.kind == Granularity::Kind::tensor) return 0;
    return g.kind == Granularity::Kind::block ? g.rows : 1;
  }

  Result<> check_codes(const ModuleRef& module, const TensorView& codes) const {
    switch (scheme_.weight.element) {
      case Element::int8:
      case Element::int4:
        MORACLE_TRY(expect_dtype(codes, {Dtype::i8}));
        break;
      case Element::e4m3:
        MORACLE_TRY(expect_dtype(codes, {Dtype::f8_e4m3}));
        break;
      case Element::e2m1:
        MORACLE_TRY(expect_dtype(codes, {Dtype::u8, Dtype::i8, Dtype::f4}));
        break;
      default:
        MORACLE_TRY(expect_dtype(codes, {Dtype::u8}));
    }
    const int bits = scheme_.form == CodeForm::signed_bytes ? 8 : bits_of(scheme_.weight.element);
    if (module.in * bits % 8 != 0)
      return tensor_error("quant.group", codes, fmt::format("inputs that fill whole bytes of {}-bit codes", bits),
                          std::to_string(module.in));
    const std::int64_t stored = codes.dtype == Dtype::f4 ? module.in : module.in * bits / 8;
    const bool transposed = module.slice && module.slice->transposed && !scheme_.parts.blocks;
    Shape shape = transposed ? Shape{stored, total_rows(module)} : Shape{total_rows(module), stored};
    if (scheme_.parts.blocks) shape = {total_rows(module), groups(module), stored / groups(module)};
    return expect_stack(module, codes, std::move(shape));
  }

  // A stack of one may be stored without its first dimension.
  static Result<> expect_stack(const ModuleRef& module, const TensorView& tensor, Shape shape) {
    if (!module.slice || (module.slice->experts == 1 && tensor.shape.size() == shape.size()))
      return expect_shape(tensor, shape);
    if (tensor.shape.size() == shape.size() + 1 && tensor.shape[0] != module.slice->experts)
      return tensor_error("experts.count", tensor, std::to_string(module.slice->experts) + " experts",
                          std::to_string(tensor.shape[0]));
    shape.insert(shape.begin(), module.slice->experts);
    return expect_shape(tensor, shape);
  }

  Result<> check_scales(const TensorView& scales) const {
    switch (scheme_.weight.scale) {
      case ScaleType::e4m3:
        return expect_dtype(scales, {Dtype::f8_e4m3});
      case ScaleType::e8m0:
        return expect_dtype(scales, {Dtype::u8, Dtype::f8_e8m0, Dtype::f32, Dtype::bf16});
      default:
        return stores_exponents(scales) ? Result<>(Ok{}) : expect_dtype(scales, {Dtype::bf16, Dtype::f16, Dtype::f32});
    }
  }

  // Block scales of FP8 are powers of two in newer exports: exponent bytes for the same numbers.
  [[nodiscard]] bool stores_exponents(const TensorView& scales) const {
    return scheme_.weight.element == Element::e4m3 && (scales.dtype == Dtype::u8 || scales.dtype == Dtype::f8_e8m0);
  }

  Result<> place_scales(const ModuleRef& module, const TensorView& scales, bool transposed, CodeMatrix& matrix) const {
    matrix.scale_rows = scale_rows();
    if (matrix.scale_rows == 0) return place_tensor_scale(module, scales, matrix);
    const std::int64_t rows = ceil_div(total_rows(module), matrix.scale_rows);
    const std::int64_t count = groups(module);
    const Granularity::Kind kind = scheme_.weight.granularity.kind;
    if (kind == Granularity::Kind::group && module.in % group_cols(module) != 0)
      return tensor_error("quant.group", scales, fmt::format("inputs in whole groups of {}", group_cols(module)),
                          std::to_string(module.in));
    const Shape shape = transposed ? Shape{experts_of(module), count, rows} : Shape{experts_of(module), rows, count};
    const Shape found = squeezed(scales.shape);
    const bool other_groups =
        !transposed && !module.slice && scales.shape.size() == 2 && scales.shape[0] == rows && scales.shape[1] != count;
    if (other_groups && kind != Granularity::Kind::channel)
      return tensor_error("quant.group", scales,
                          fmt::format("{} groups of {} over {} inputs", count, group_cols(module), module.in),
                          fmt::format("{} groups", scales.shape[1]));
    MORACLE_TRY(expect_squeezed(scales, module.slice ? shape : Shape{rows, count}));
    matrix.scales = grid_of(module, scales, transposed);
    return Ok{};
  }

  // One scale, of which a stack holds one an expert or one for all.
  Result<> place_tensor_scale(const ModuleRef& module, const TensorView& scales, CodeMatrix& matrix) const {
    matrix.scales = RowGrid{.tensor = scales, .total_rows = 1};
    if (squeezed(scales.shape).empty()) return expect_shape(scales, scales.shape);
    MORACLE_TRY(expect_squeezed(scales, {experts_of(module)}));
    matrix.scales = grid_of(module, scales, false);
    return Ok{};
  }

  Result<SmallParts> claim_small(const ModuleRef& module, TensorClaims& claims) const {
    SmallParts parts;
    if (module.slice) parts.expert = narrow<std::size_t>(module.slice->expert);
    MORACLE_TRY(claim_zeros(module, claims, parts));
    if (scheme_.weight.second_level) {
      MORACLE_ASSIGN(parts.global, claim_scalar(module, claims, scheme_.parts.global));
    }
    if (!scheme_.activation) return parts;
    const QuantKey& key = *scheme_.activation;
    if (key.dynamic && !key.second_level) return parts;
    MORACLE_ASSIGN(parts.input, claim_scalar(module, claims, scheme_.parts.input));
    const TensorView* zeros = find_part(claims, module.path, scheme_.parts.input_zeros);
    if (key.dynamic || zeros == nullptr) return parts;
    MORACLE_ASSIGN(parts.input_zeros, claim(claims, module, *zeros));
    return parts;
  }

  Result<const TensorView*> claim_scalar(const ModuleRef& module, TensorClaims& claims, const std::string& part) const {
    MORACLE_ASSIGN(const TensorView* tensor, claim_existing(claims, module, part));
    MORACLE_TRY(expect_squeezed(*tensor, tensor->elements() == 1 ? Shape{} : Shape{experts_of(module)}));
    MORACLE_TRY(expect_dtype(*tensor, {Dtype::bf16, Dtype::f16, Dtype::f32}));
    return tensor;
  }

  Result<> claim_zeros(const ModuleRef& module, TensorClaims& claims, SmallParts& parts) const {
    const QuantKey& key = scheme_.weight;
    if (key.element != Element::int8 && key.element != Element::int4) return Ok{};
    const TensorView* tensor = find_part(claims, module.path, scheme_.parts.zeros);
    if (tensor == nullptr && key.symmetric) return Ok{};
    MORACLE_ASSIGN(tensor, claim_existing(claims, module, scheme_.parts.zeros));
    MORACLE_TRY(expect_dtype(*tensor, {Dtype::i8, Dtype::i32, Dtype::i64}));
    const std::int64_t rows = scale_rows() == 0 ? 1 : total_rows(module);
    MORACLE_TRY(expect_squeezed(*tensor, {experts_of(module), rows, groups(module)}));
    parts.zeros = grid_of(module, *tensor, false);
    parts.has_zeros = true;
    return Ok{};
  }

  // The weight of a module whose headers have been checked.
  Result<CanonicalLinear> read(MatrixSpec spec, CodeMatrix matrix, const SmallParts& parts,
                               const std::shared_ptr<const Checkpoint>& checkpoint) const {
    if (parts.has_zeros) {
      MORACLE_ASSIGN(matrix.zeros, read_zeros(spec, parts.zeros));
    }
    if (parts.global != nullptr) {
      MORACLE_ASSIGN(const float stored, read_scalar(*parts.global, parts.expert));
      const bool inverted = scheme_.parts.divides && !fault(Fault::reciprocal_not_inverted);
      spec.global_scale = inverted ? 1.0F / stored : stored;
    }
    CanonicalLinear linear;
    linear.activation = scheme_.activation;
    if (parts.input != nullptr) {
      MORACLE_ASSIGN(const float stored, read_scalar(*parts.input, parts.expert));
      // The second level of activations is used as a multiplier, whichever way it is stored.
      linear.input_scale = scheme_.activation->second_level && !scheme_.parts.divides ? 1.0F / stored : stored;
    }
    if (parts.input_zeros != nullptr) MORACLE_TRY(check_input_zeros(*parts.input_zeros));
    if (fault(Fault::activations_not_quantized)) {
      linear.activation.reset();
      linear.input_scale.reset();
    }
    linear.weight = make_code_matrix(std::move(spec), std::move(matrix), checkpoint, notes_);
    return linear;
  }

  // A scalar part as f32: positive and finite, and so is its reciprocal.
  static Result<float> read_scalar(const TensorView& tensor, std::size_t expert) {
    MORACLE_ASSIGN(const std::vector<float> values, read_floats(tensor));
    const std::size_t index = values.size() == 1 ? 0 : expert;
    const float value = values[index];
    const std::string wanted = fmt::format("a positive scale at element {}", index);
    if (value == 0.0F) return tensor_error("value.zero_scales", tensor, wanted, "0");
    if (value < 0.0F || !std::isfinite(1.0F / value))
      return tensor_error("value.range", tensor, wanted, fmt::format("{}", value));
    return value;
  }

  static Result<> check_input_zeros(const TensorView& zeros) {
    for (const std::byte byte : zeros.bytes)
      if (byte != std::byte{0})
        return tensor_error("quant.unsupported", zeros, "symmetric activations: a zero point of 0", "another");
    return Ok{};
  }

  // Zero points of INT8 are stored as signed integers. A scheme that calls itself symmetric may store zeros all the
  // same, and then they are zero.
  Result<std::vector<std::uint8_t>> read_zeros(const MatrixSpec& spec, const RowGrid& grid) const {
    const QuantKey& key = scheme_.weight;
    const TensorView& tensor = grid.tensor;
    const int neutral = 1 << (bits_of(key.element) - 1);
    const std::int64_t width = bits_of(tensor.dtype) / 8;
    const std::int64_t columns = ceil_div(spec.cols, group_cols(spec.cols));
    std::vector<std::uint8_t> zeros;
    for (std::int64_t r = 0; r < spec.rows; ++r)
      for (std::int64_t g = 0; g < columns; ++g) {
        const std::int64_t index = scale_rows() == 0 ? g : grid.stored_row(r) * columns + g;
        const std::byte* at = grid.tensor.bytes.data() + index * width;
        const std::int64_t value = width == 1   ? load<std::int8_t>(at)
                                   : width == 4 ? load<std::int32_t>(at)
                                                : load<std::int64_t>(at);
        if (key.symmetric && value != 0)
          return tensor_error("config.contradiction", tensor, "zero points of 0, since the config says symmetric",
                              fmt::format("{} for row {}", value, r));
        if (value < -neutral || value >= neutral)
          return tensor_error("value.zero_point", tensor,
                              fmt::format("a zero point from {} to {} for row {}", -neutral, neutral - 1, r),
                              std::to_string(value));
        if (!key.symmetric) zeros.push_back(static_cast<std::uint8_t>(value + neutral));
      }
    return zeros;
  }

  CodeScheme scheme_;
  std::shared_ptr<ValueNotes> notes_;
};

}  // namespace

std::shared_ptr<const StoredScheme> make_code_scheme(CodeScheme scheme, std::shared_ptr<ValueNotes> notes) {
  return std::make_shared<CodeModule>(std::move(scheme), std::move(notes));
}

}  // namespace moracle
