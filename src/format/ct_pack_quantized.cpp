// compressed-tensors pack-quantized: weight_packed I32 [out, ceil(in / per_word)], offset binary, lowest bits first;
// weight_scale [out, groups]; weight_zero_point I32 [ceil(out / per_word), groups], packed along the output with the
// same offset, so that (q - z) * s holds on the raw codes (early files: I8 [out, groups], without the offset);
// weight_shape I64 [2]; weight_g_idx I32 [in] of early files.
#include <algorithm>

#include "base/checked.h"
#include "format/ct_scheme.h"
#include "format/int_module.h"
#include "format/tensor_check.h"

namespace moracle {
namespace {

class PackQuantized final : public StoredScheme {
 public:
  PackQuantized(IntScheme scheme, bool act_order, std::optional<QuantKey> activation, std::shared_ptr<ValueNotes> notes)
      : scheme_(scheme), act_order_(act_order), activation_(activation), notes_(std::move(notes)) {}

  std::string_view codes_part() const override { return "weight_packed"; }

  Scheme scheme(const ModuleRef& module, const TensorLedger& ledger) const override {
    const TensorView* scales = ledger.find(module.path + ".weight_scale");
    return {.weight = scheme_.key(scales != nullptr ? scales->dtype : Dtype::bf16), .activation = activation_};
  }

  Result<CanonicalLinear> open(const ModuleRef& module, TensorLedger& ledger) const override {
    PackedIntTensors tensors;
    MORACLE_ASSIGN(tensors.codes, claim_part(ledger, module.path, "weight_packed"));
    MORACLE_ASSIGN(tensors.scales, claim_part(ledger, module.path, "weight_scale"));
    MORACLE_TRY(check_weight_shape(module, ledger));
    MORACLE_TRY(check_codes(*tensors.codes, scheme_.bits, module.in, module.out, false));
    MORACLE_TRY(check_scales(*tensors.scales, scheme_, module, true));
    PackedIntLayout layout{.codes = PackedIntLayout::Codes::words_along_in_by_out, .scales_by_out = true};
    if (scheme_.symmetric) {
      MORACLE_ASSIGN(tensors.zeros, claim_optional(ledger, module.path, "weight_zero_point"));
    } else {
      MORACLE_ASSIGN(tensors.zeros, claim_part(ledger, module.path, "weight_zero_point"));
    }
    if (tensors.zeros != nullptr) {
      MORACLE_TRY(expect_dtype(*tensors.zeros, {Dtype::i32, Dtype::u32, Dtype::i8}));
      // Early tools left zero points unpacked.
      const bool bytes = tensors.zeros->dtype == Dtype::i8;
      const std::int64_t rows = bytes ? module.out : ceil_div(module.out, 32 / scheme_.bits);
      MORACLE_TRY(expect_shape(*tensors.zeros, {rows, scheme_.groups(module.in)}));
      layout.zeros = bytes ? PackedIntLayout::Zeros::bytes_by_out : PackedIntLayout::Zeros::by_out;
    }
    MORACLE_ASSIGN(std::vector<std::int32_t> g_idx, open_group_index(module, ledger));
    CanonicalLinear linear;
    linear.weight = make_packed_int(int_spec(module, scheme_, tensors.scales->dtype, std::move(g_idx)), layout, tensors,
                                    ledger.checkpoint(), notes_);
    linear.activation = activation_;
    MORACLE_ASSIGN(linear.bias, open_bias(module, ledger));
    return linear;
  }

 private:
  static Result<> check_weight_shape(const ModuleRef& module, TensorLedger& ledger) {
    MORACLE_ASSIGN(const TensorView* tensor, claim_optional(ledger, module.path, "weight_shape"));
    if (tensor == nullptr) return Ok{};
    MORACLE_TRY(expect_shape(*tensor, {2}));
    MORACLE_ASSIGN(const std::vector<std::int32_t> shape, read_integers(*tensor));
    if (shape[0] == module.out && shape[1] == module.in) return Ok{};
    return tensor_error("tensor.shape", *tensor, shape_text({module.out, module.in}), shape_text({shape[0], shape[1]}));
  }

  // Present only for `actorder: group`. Files of other orders may hold one filled with -1, which says nothing.
  Result<std::vector<std::int32_t>> open_group_index(const ModuleRef& module, TensorLedger& ledger) const {
    MORACLE_ASSIGN(const TensorView* tensor, claim_optional(ledger, module.path, "weight_g_idx"));
    if (tensor == nullptr && act_order_ && scheme_.groups(module.in) > 1)
      MORACLE_TRY(claim_part(ledger, module.path, "weight_g_idx"));
    if (tensor == nullptr) return std::vector<std::int32_t>{};
    const auto unset = [](std::byte b) { return b == std::byte{0xFF}; };
    if (!act_order_ && std::all_of(tensor->bytes.begin(), tensor->bytes.end(), unset))
      return std::vector<std::int32_t>{};
    return check_group_index(*tensor, module.in, scheme_.group_cols(module.in));
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
