// compressed-tensors pack-quantized: weight_packed I32 [out, ceil(in / per_word)], offset binary, lowest bits first;
// weight_scale [out, groups]; weight_zero_point I32 [ceil(out / per_word), groups], packed along the output with the
// same offset, so that (q - z) * s holds on the raw codes (early files: I8 [out, groups], without the offset);
// weight_shape I64 [2]; weight_g_idx I32 [in] of early files. Stacked experts have all but the last two with a first
// dimension of experts.
#include <algorithm>

#include <fmt/format.h>

#include "base/checked.h"
#include "format/decode/code_module.h"
#include "format/decode/int_module.h"
#include "format/decode/plain.h"
#include "format/publishers/ct_scheme.h"
#include "format/rules/tensor_check.h"

namespace moracle {
namespace {

// One part of a module: a tensor of its own, or its rows of one that stacks the experts.
struct PackedPart {
  const TensorView* whole = nullptr;  // null: not stored
  TensorView view{};

  // `per_row` rows of the matrix share a row of the part.
  static Result<PackedPart> claim(TensorClaims& claims, const ModuleRef& module, std::string_view name, bool needed,
                                  std::int64_t per_row) {
    PackedPart part;
    part.whole = find_part(claims, module.path, name);
    if (part.whole == nullptr) {
      if (needed) return incomplete_error(claims, part_name(claims, module.path, name));
      return part;
    }
    part.view = *part.whole;
    if (!module.slice) {
      MORACLE_TRY(claims.claim(part.whole->name));
      return part;
    }
    MORACLE_TRY(claims.claim_shared(part.whole->name));
    MORACLE_TRY(part.cut(*module.slice, module, per_row));
    return part;
  }

 private:
  Result<> cut(const ModuleRef::Slice& slice, const ModuleRef& module, std::int64_t per_row) {
    if (slice.row_stride != 1 || slice.transposed)
      return tensor_error("quant.unsupported", *whole, "rows of gate and up apart in packed stacked experts",
                          slice.transposed ? "a transposed stack" : "alternating rows");
    const std::int64_t rows = ceil_div(slice.total_rows, per_row);
    if (view.shape.size() == 2 && slice.experts == 1) view.shape.insert(view.shape.begin(), 1);
    if (view.shape.size() != 3 || view.shape[1] != rows || slice.row_begin % per_row != 0)
      return tensor_error("tensor.shape", *whole, fmt::format("[{}, {}, ...]", slice.experts, rows),
                          shape_text(whole->shape));
    if (view.shape[0] != slice.experts)
      return tensor_error("experts.count", *whole, std::to_string(slice.experts) + " experts",
                          std::to_string(view.shape[0]));
    MORACLE_TRY(expect_shape(*whole, whole->shape));
    const std::int64_t first = slice.expert * rows + slice.row_begin / per_row;
    const std::int64_t count = ceil_div(module.out, per_row);
    const auto row_bytes = narrow<std::int64_t>(view.bytes.size()) / (slice.experts * rows);
    if (slice.row_begin / per_row + count > rows)
      return tensor_error("tensor.shape", *whole, fmt::format("room for {} rows of {}", module.out, module.path),
                          std::to_string(slice.total_rows) + " rows an expert");
    view.bytes = view.bytes.subspan(narrow<std::size_t>(first * row_bytes), narrow<std::size_t>(count * row_bytes));
    view.name += fmt::format("[{}, from row {}]", slice.expert, slice.row_begin / per_row);
    view.shape = {count, view.shape[2]};
    return Ok{};
  }
};

class PackQuantized final : public StoredScheme {
 public:
  PackQuantized(IntScheme scheme, bool act_order, std::optional<QuantKey> activation, std::shared_ptr<ValueNotes> notes)
      : scheme_(scheme), act_order_(act_order), activation_(activation), notes_(std::move(notes)) {}

  std::string_view codes_part() const override { return "weight_packed"; }

  Scheme scheme(const ModuleRef& module, const TensorClaims& claims) const override {
    const TensorView* scales = find_part(claims, module.path, "weight_scale");
    return {.weight = scheme_.key(scales != nullptr ? scales->dtype : Dtype::bf16), .activation = activation_};
  }

  Result<StoredLinear> open(const ModuleRef& module, TensorClaims& claims) const override {
    MORACLE_ASSIGN(const PackedPart codes, PackedPart::claim(claims, module, "weight_packed", true, 1));
    MORACLE_ASSIGN(const PackedPart scales, PackedPart::claim(claims, module, "weight_scale", true, 1));
    MORACLE_ASSIGN(const TensorView* const shape, claim_weight_shape(module, claims));
    MORACLE_TRY(check_codes(codes.view, scheme_.bits, module.in, module.out, false));
    MORACLE_TRY(check_scales(scales.view, scheme_, module, true));
    PackedIntLayout layout{.codes = PackedIntLayout::Codes::words_along_in_by_out, .scales_by_out = true};
    // Early tools left zero points unpacked.
    const TensorView* stored = find_part(claims, module.path, "weight_zero_point");
    const bool bytes = stored != nullptr && stored->dtype == Dtype::i8;
    MORACLE_ASSIGN(const PackedPart zeros, PackedPart::claim(claims, module, "weight_zero_point", !scheme_.symmetric,
                                                             bytes ? 1 : 32 / scheme_.bits));
    if (zeros.whole != nullptr) {
      MORACLE_TRY(expect_dtype(zeros.view, {Dtype::i32, Dtype::u32, Dtype::i8}));
      const std::int64_t rows = bytes ? module.out : ceil_div(module.out, 32 / scheme_.bits);
      MORACLE_TRY(expect_shape(zeros.view, {rows, scheme_.groups(module.in)}));
      layout.zeros = bytes ? PackedIntLayout::Zeros::bytes_by_out : PackedIntLayout::Zeros::by_out;
    }
    MORACLE_ASSIGN(const TensorView* const index, claim_group_index(module, claims));
    StoredLinear linear{.spec = int_spec(module, scheme_, scales.view.dtype), .activation = activation_};
    linear.act_order = act_order_ && index != nullptr && linear.spec.groups > 1;
    MORACLE_ASSIGN(linear.bias, module.slice ? claim_slice_bias(module, claims) : claim_bias(module, claims));
    linear.open = [=, checkpoint = claims.checkpoint(), notes = notes_, activation = activation_,
                   ordered = act_order_](MatrixSpec spec) -> Result<CanonicalLinear> {
      if (shape != nullptr) MORACLE_TRY(check_weight_shape(*shape, spec));
      if (index != nullptr && (ordered || !is_unset(*index))) {
        MORACLE_ASSIGN(spec.g_idx, check_group_index(*index, *checkpoint, spec.cols, spec.group_cols));
      }
      const PackedIntTensors tensors{
          .codes = &codes.view, .scales = &scales.view, .zeros = zeros.whole == nullptr ? nullptr : &zeros.view};
      return CanonicalLinear{.weight = make_packed_int(std::move(spec), layout, tensors, checkpoint, notes),
                             .activation = activation};
    };
    return linear;
  }

 private:
  // Of stacked experts it says what the tensors say themselves: [2] or [3], whichever the tool meant.
  // Null where there is nothing to check.
  static Result<const TensorView*> claim_weight_shape(const ModuleRef& module, TensorClaims& claims) {
    const TensorView* const found = find_part(claims, module.path, "weight_shape");
    if (found == nullptr) return found;
    MORACLE_ASSIGN(const TensorView* tensor,
                   module.slice ? claims.claim_shared(found->name) : claims.claim(found->name));
    if (module.slice) return static_cast<const TensorView*>(nullptr);
    MORACLE_TRY(expect_shape(*tensor, {2}));
    MORACLE_TRY(expect_dtype(*tensor, {Dtype::i32, Dtype::i64}));
    return tensor;
  }

  static Result<> check_weight_shape(const TensorView& tensor, const MatrixSpec& spec) {
    MORACLE_ASSIGN(const std::vector<std::int32_t> shape, read_integers(tensor));
    if (shape[0] == spec.rows && shape[1] == spec.cols) return Ok{};
    return tensor_error("tensor.shape", tensor, shape_text({spec.rows, spec.cols}), shape_text({shape[0], shape[1]}));
  }

  // Present only for `actorder: group`. Files of other orders may hold one filled with -1, which says nothing.
  Result<const TensorView*> claim_group_index(const ModuleRef& module, TensorClaims& claims) const {
    MORACLE_ASSIGN(const TensorView* tensor, claim_optional(claims, module.path, "weight_g_idx"));
    if (tensor == nullptr && act_order_ && scheme_.groups(module.in) > 1)
      MORACLE_TRY(claim_part(claims, module.path, "weight_g_idx"));
    if (tensor != nullptr && act_order_) MORACLE_TRY(expect_group_index(*tensor, module.in));
    return tensor;
  }
  static bool is_unset(const TensorView& index) {
    return std::all_of(index.bytes.begin(), index.bytes.end(), [](std::byte b) { return b == std::byte{0xFF}; });
  }

  IntScheme scheme_;
  bool act_order_;
  std::optional<QuantKey> activation_;
  std::shared_ptr<ValueNotes> notes_;
};

}  // namespace

std::shared_ptr<const StoredScheme> make_ct_pack_quantized(const CtGroup& group,
                                                           const std::shared_ptr<ValueNotes>& notes) {
  const CtArgs& weights = group.weights;
  const bool bits = weights.num_bits == 4 || weights.num_bits == 8;
  const bool strategy = weights.strategy == "channel" || (weights.strategy == "group" && weights.group_size > 0);
  const bool order = weights.actorder.empty() || weights.actorder == "static" || weights.actorder == "weight" ||
                     weights.actorder == "group";
  const auto activation = ct_activation(group);
  // Activations of 8 bits, scaled token by token: nothing of them is stored.
  const bool known = activation && (!*activation || (**activation).granularity == Granularity::token());
  if (!bits || !strategy || !order || weights.type != "int" || weights.dynamic != "false" || !known) return nullptr;
  const IntScheme scheme{.bits = weights.num_bits,
                         .group_size = weights.strategy == "group" ? weights.group_size : -1,
                         .symmetric = weights.symmetric};
  return std::make_shared<PackQuantized>(scheme, weights.actorder == "group", *activation, notes);
}

}  // namespace moracle
