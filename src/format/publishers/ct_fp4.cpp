// compressed-tensors with E2M1 codes, weight_packed U8 [out, in / 2], low half first.
// nvfp4-pack-quantized: weight_scale E4M3 [out, in / 16] under weight_global_scale F32 [1]; input_global_scale F32 [1]
// where activations are quantized. Both global scales are quantizing multipliers, 448 * 6 / amax: weights divide by it.
// mxfp4-pack-quantized: weight_scale U8 [out, in / 32], powers of two.
#include "format/decode/code_module.h"
#include "format/publishers/ct_scheme.h"

namespace moracle {
namespace {

bool is_fp4(const CtArgs& weights) {
  return weights.type == "float" && weights.num_bits == 4 && weights.symmetric && weights.dynamic == "false" &&
         weights.actorder.empty();
}

}  // namespace

std::shared_ptr<const StoredScheme> make_ct_nvfp4(const CtGroup& group, const std::shared_ptr<ValueNotes>& notes) {
  const CtArgs& weights = group.weights;
  const auto activation = ct_activation(group);
  if (!is_fp4(weights) || weights.strategy != "tensor_group" || weights.group_size != 16 || !activation) return nullptr;
  if (*activation && **activation != dynamic(nvfp4_key())) return nullptr;
  return make_code_scheme({.weight = nvfp4_key(),
                           .form = CodeForm::nibbles,
                           .activation = *activation,
                           .parts = {.codes = "weight_packed",
                                     .global = "weight_global_scale",
                                     .input = "input_global_scale",
                                     .divides = true}},
                          notes);
}

std::shared_ptr<const StoredScheme> make_ct_mxfp4(const CtGroup& group, const std::shared_ptr<ValueNotes>& notes) {
  const CtArgs& weights = group.weights;
  const auto activation = ct_activation(group);
  if (!is_fp4(weights) || weights.strategy != "group" || weights.group_size != 32 || !activation) return nullptr;
  const bool floats =
      !*activation || (**activation).element == Element::e2m1 || (**activation).element == Element::e4m3;
  if (!floats || (*activation && (**activation).second_level)) return nullptr;
  return make_code_scheme({.weight = mx_key(Element::e2m1),
                           .form = CodeForm::nibbles,
                           .activation = *activation,
                           .parts = {.codes = "weight_packed"}},
                          notes);
}

}  // namespace moracle
