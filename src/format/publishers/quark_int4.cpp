// Stored per module:
//   in groups    weight I32 [in, out / 8], weight_scale [groups, out], weight_zero_point I32 [groups, out / 8]: the
//   tool
//                transposes what it quantizes in groups, so that words run along the output, as AWQ has them
//   per channel  weight I32 [out, in / 8], weight_scale [out], weight_zero_point I32 [out / 8]: words along the input
//   two levels   per channel with weight_scale_2 [out], and weight_scale [] of the tensor: w = q * weight_scale_2[o] *
//                weight_scale; input_scale [] where activations are static
#include "format/publishers/quark_int4.h"

#include <fmt/format.h>

#include <cmath>

#include "base/checked.h"
#include "format/decode/plain.h"
#include "format/rules/spelling.h"
#include "format/rules/tensor_check.h"

namespace moracle {
namespace {

// A scalar scale, of which stacked experts hold one each or one for all.
Result<const TensorView*> claim_scale(const ModuleRef& module, TensorClaims& claims, std::string_view part) {
  const TensorView* stored = find_part(claims, module.path, part);
  if (stored == nullptr) return incomplete_error(claims, part_name(claims, module.path, part));
  MORACLE_ASSIGN(stored, module.slice ? claims.claim_shared(stored->name) : claims.claim(stored->name));
  const std::int64_t experts = module.slice ? module.slice->experts : 1;
  if (stored->elements() != 1 && stored->elements() != experts)
    return tensor_error("tensor.shape", *stored, experts == 1 ? "[]" : shape_text({experts}),
                        shape_text(stored->shape));
  MORACLE_TRY(expect_dtype(*stored, {Dtype::bf16, Dtype::f16, Dtype::f32}));
  return stored;
}

// One positive number, of an expert where there is one for each.
Result<float> read_scale(const TensorView& tensor, std::size_t expert) {
  MORACLE_ASSIGN(const std::vector<float> values, read_floats(tensor));
  const float value = values[values.size() == 1 ? 0 : expert];
  if (value > 0.0F) return value;
  return tensor_error(value == 0.0F ? "value.zero_scales" : "value.range", tensor, "a positive scale",
                      fmt::format("{}", value));
}

class QuarkInt4Module final : public StoredScheme {
 public:
  QuarkInt4Module(const QuarkInt4& scheme, std::shared_ptr<ValueNotes> notes)
      : scheme_(scheme), notes_(std::move(notes)), grouped_(scheme.weight.group_size > 0) {}

  std::string_view codes_part() const override { return "weight"; }

  Scheme scheme(const ModuleRef& module, const TensorClaims& claims) const override {
    const TensorView* scales = find_part(claims, module.path, scales_part());
    Scheme scheme{.weight = scheme_.weight.key(scales != nullptr ? scales->dtype : Dtype::bf16),
                  .activation = scheme_.activation};
    scheme.weight.second_level = scheme_.two_levels;
    return scheme;
  }

  Result<StoredLinear> open(const ModuleRef& module, TensorClaims& claims) const override {
    return open_rows(module, [&](const ModuleRef& whole) { return open_whole(whole, claims); });
  }

 private:
  Result<StoredLinear> open_whole(const ModuleRef& module, TensorClaims& claims) const {
    MORACLE_ASSIGN(const std::optional<TensorView> codes, claim_int_part(claims, module, "weight", true));
    MORACLE_ASSIGN(const std::optional<TensorView> scales, claim_int_part(claims, module, scales_part(), true));
    const std::int64_t packed = grouped_ ? module.out : module.in;
    if (packed % 8 != 0)
      return tensor_error("quant.group", *codes,
                          grouped_ ? "outputs in whole words of 8 codes" : "inputs in whole words of 8 codes",
                          std::to_string(packed));
    MORACLE_TRY(check_codes(*codes, 4, packed, grouped_ ? module.in : module.out, false));
    MORACLE_TRY(check_scales(*scales, scheme_.weight, module, false));
    PackedIntLayout layout = layout_of();
    MORACLE_ASSIGN(const std::optional<TensorView> zeros, open_zeros(module, claims, layout));
    StoredLinear linear{.spec = int_spec(module, scheme_.weight, scales->dtype), .activation = scheme_.activation};
    linear.spec.key.second_level = scheme_.two_levels;
    const TensorView* global = nullptr;
    if (scheme_.two_levels) {
      MORACLE_ASSIGN(global, claim_scale(module, claims, "weight_scale"));
    }
    const TensorView* input = nullptr;
    if (scheme_.activation && !scheme_.activation->dynamic) {
      MORACLE_ASSIGN(input, claim_scale(module, claims, "input_scale"));
    }
    MORACLE_ASSIGN(linear.bias, module.slice ? claim_slice_bias(module, claims) : claim_bias(module, claims));
    const std::size_t expert = module.slice ? narrow<std::size_t>(module.slice->expert) : 0;
    linear.open = [=, checkpoint = claims.checkpoint(), notes = notes_,
                   activation = scheme_.activation](MatrixSpec spec) -> Result<CanonicalLinear> {
      CanonicalLinear read{.weight = nullptr, .activation = activation};
      if (global != nullptr) {
        MORACLE_ASSIGN(spec.global_scale, read_scale(*global, expert));
      }
      if (input != nullptr) {
        MORACLE_ASSIGN(read.input_scale, read_scale(*input, expert));
      }
      const PackedIntTensors tensors{.codes = &*codes, .scales = &*scales, .zeros = zeros ? &*zeros : nullptr};
      read.weight = make_packed_int(std::move(spec), layout, tensors, checkpoint, notes);
      return read;
    };
    return linear;
  }

  [[nodiscard]] std::string_view scales_part() const { return scheme_.two_levels ? "weight_scale_2" : "weight_scale"; }

  [[nodiscard]] PackedIntLayout layout_of() const {
    PackedIntLayout layout{.codes = grouped_ ? PackedIntLayout::Codes::words_along_out_by_in
                                             : PackedIntLayout::Codes::words_along_in_by_out,
                           .twos_complement = scheme_.is_signed};
    if (scheme_.reorder) layout.column_of_nibble = {0, 2, 4, 6, 1, 3, 5, 7};
    return layout;
  }

  Result<std::optional<TensorView>> open_zeros(const ModuleRef& module, TensorClaims& claims,
                                               PackedIntLayout& layout) const {
    MORACLE_ASSIGN(std::optional<TensorView> zeros,
                   claim_int_part(claims, module, "weight_zero_point", !scheme_.weight.symmetric));
    if (!zeros) return zeros;
    if (module.out % 8 != 0)
      return tensor_error("quant.group", *zeros, "outputs in whole words of 8 zero points", std::to_string(module.out));
    MORACLE_TRY(expect_dtype(*zeros, {Dtype::i32, Dtype::u32}));
    if (grouped_ || zeros->shape.size() != 1) {
      MORACLE_TRY(expect_shape(*zeros, {scheme_.weight.groups(module.in), module.out / 8}));
    } else {
      MORACLE_TRY(expect_shape(*zeros, {module.out / 8}));
    }
    layout.zeros = PackedIntLayout::Zeros::by_group;
    return zeros;
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
