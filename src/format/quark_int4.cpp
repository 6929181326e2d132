// Stored per module:
//   in groups    weight I32 [in, out / 8], weight_scale [groups, out], weight_zero_point I32 [groups, out / 8]: the
//   tool
//                transposes what it quantizes in groups, so that words run along the output, as AWQ has them
//   per channel  weight I32 [out, in / 8], weight_scale [out], weight_zero_point I32 [out / 8]: words along the input
//   two levels   per channel with weight_scale_2 [out], and weight_scale [] of the tensor: w = q * weight_scale_2[o] *
//                weight_scale; input_scale [] where activations are static
#include "format/quark_int4.h"

#include <fmt/format.h>

#include <cmath>

#include "format/tensor_check.h"

namespace moracle {
namespace {

Result<const TensorView*> claim_scale(const ModuleRef& module, TensorLedger& ledger, std::string_view part) {
  MORACLE_ASSIGN(const TensorView* tensor, claim_part(ledger, module.path, part));
  if (tensor->elements() != 1) return tensor_error("tensor.shape", *tensor, "[]", shape_text(tensor->shape));
  MORACLE_TRY(expect_dtype(*tensor, {Dtype::bf16, Dtype::f16, Dtype::f32}));
  return tensor;
}

// A stored scalar scale: one positive number.
Result<float> read_scale(const TensorView& tensor) {
  MORACLE_ASSIGN(const std::vector<float> values, read_floats(tensor));
  if (values[0] > 0.0F) return values[0];
  return tensor_error(values[0] == 0.0F ? "value.zero_scales" : "value.range", tensor, "a positive scale",
                      fmt::format("{}", values[0]));
}

class QuarkInt4Module final : public StoredScheme {
 public:
  QuarkInt4Module(const QuarkInt4& scheme, std::shared_ptr<ValueNotes> notes)
      : scheme_(scheme), notes_(std::move(notes)), grouped_(scheme.weight.group_size > 0) {}

  std::string_view codes_part() const override { return "weight"; }

  Scheme scheme(const ModuleRef& module, const TensorLedger& ledger) const override {
    const TensorView* scales = ledger.find(fmt::format("{}.{}", module.path, scales_part()));
    Scheme scheme{.weight = scheme_.weight.key(scales != nullptr ? scales->dtype : Dtype::bf16),
                  .activation = scheme_.activation};
    scheme.weight.second_level = scheme_.two_levels;
    return scheme;
  }

  Result<StoredLinear> open(const ModuleRef& module, TensorLedger& ledger) const override {
    if (module.slice) return stacked_error(module, ledger, "quark int4");
    PackedIntTensors tensors;
    MORACLE_ASSIGN(tensors.codes, claim_part(ledger, module.path, "weight"));
    MORACLE_ASSIGN(tensors.scales, claim_part(ledger, module.path, scales_part()));
    const std::int64_t packed = grouped_ ? module.out : module.in;
    if (packed % 8 != 0)
      return tensor_error("quant.group", *tensors.codes,
                          grouped_ ? "outputs in whole words of 8 codes" : "inputs in whole words of 8 codes",
                          std::to_string(packed));
    MORACLE_TRY(check_codes(*tensors.codes, 4, packed, grouped_ ? module.in : module.out, false));
    MORACLE_TRY(check_scales(*tensors.scales, scheme_.weight, module, false));
    PackedIntLayout layout = layout_of();
    MORACLE_TRY(open_zeros(module, ledger, tensors, layout));
    StoredLinear linear{.spec = int_spec(module, scheme_.weight, tensors.scales->dtype),
                        .activation = scheme_.activation};
    linear.spec.key.second_level = scheme_.two_levels;
    const TensorView* global = nullptr;
    if (scheme_.two_levels) {
      MORACLE_ASSIGN(global, claim_scale(module, ledger, "weight_scale"));
    }
    const TensorView* input = nullptr;
    if (scheme_.activation && !scheme_.activation->dynamic) {
      MORACLE_ASSIGN(input, claim_scale(module, ledger, "input_scale"));
    }
    MORACLE_ASSIGN(linear.bias, claim_bias(module, ledger));
    linear.open = [=, checkpoint = ledger.checkpoint(), notes = notes_,
                   activation = scheme_.activation](MatrixSpec spec) -> Result<CanonicalLinear> {
      CanonicalLinear read{.weight = nullptr, .activation = activation};
      if (global != nullptr) {
        MORACLE_ASSIGN(spec.global_scale, read_scale(*global));
      }
      if (input != nullptr) {
        MORACLE_ASSIGN(read.input_scale, read_scale(*input));
      }
      read.weight = make_packed_int(std::move(spec), layout, tensors, checkpoint, notes);
      return read;
    };
    return linear;
  }

 private:
  [[nodiscard]] std::string_view scales_part() const { return scheme_.two_levels ? "weight_scale_2" : "weight_scale"; }

  [[nodiscard]] PackedIntLayout layout_of() const {
    PackedIntLayout layout{.codes = grouped_ ? PackedIntLayout::Codes::words_along_out_by_in
                                             : PackedIntLayout::Codes::words_along_in_by_out,
                           .twos_complement = scheme_.is_signed};
    if (scheme_.reorder) layout.column_of_nibble = {0, 2, 4, 6, 1, 3, 5, 7};
    return layout;
  }

  Result<> open_zeros(const ModuleRef& module, TensorLedger& ledger, PackedIntTensors& tensors,
                      PackedIntLayout& layout) const {
    if (scheme_.weight.symmetric) {
      MORACLE_ASSIGN(tensors.zeros, claim_optional(ledger, module.path, "weight_zero_point"));
    } else {
      MORACLE_ASSIGN(tensors.zeros, claim_part(ledger, module.path, "weight_zero_point"));
    }
    if (tensors.zeros == nullptr) return Ok{};
    if (module.out % 8 != 0)
      return tensor_error("quant.group", *tensors.zeros, "outputs in whole words of 8 zero points",
                          std::to_string(module.out));
    MORACLE_TRY(expect_dtype(*tensors.zeros, {Dtype::i32, Dtype::u32}));
    if (grouped_ || tensors.zeros->shape.size() != 1) {
      MORACLE_TRY(expect_shape(*tensors.zeros, {scheme_.weight.groups(module.in), module.out / 8}));
    } else {
      MORACLE_TRY(expect_shape(*tensors.zeros, {module.out / 8}));
    }
    layout.zeros = PackedIntLayout::Zeros::by_group;
    return Ok{};
  }

  QuarkInt4 scheme_;
  std::shared_ptr<ValueNotes> notes_;
  bool grouped_;
};

}  // namespace

std::shared_ptr<const StoredScheme> make_quark_int4(const QuarkInt4& scheme, std::shared_ptr<ValueNotes> notes) {
  return std::make_shared<QuarkInt4Module>(scheme, std::move(notes));
}

}  // namespace moracle
