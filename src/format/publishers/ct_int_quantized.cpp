// compressed-tensors int-quantized: weight I8 [out, in] holding int8 or int4 values, weight_scale [out, 1], [1] or
// [out, groups], weight_zero_point I8 of the same shape; input_scale for static activations.
#include "base/checked.h"
#include "format/decode/code_module.h"
#include "format/publishers/ct_scheme.h"

namespace moracle {
namespace {

std::optional<Granularity> granularity_of(const CtArgs& weights) {
  if (weights.strategy == "tensor") return Granularity::tensor();
  if (weights.strategy == "channel") return Granularity::channel();
  if (weights.strategy == "group" && weights.group_size > 0)
    return Granularity::group(narrow<std::int32_t>(weights.group_size));
  return std::nullopt;
}

}  // namespace

std::shared_ptr<const StoredScheme> make_ct_int_quantized(const CtGroup& group,
                                                          const std::shared_ptr<ValueNotes>& notes) {
  const CtArgs& weights = group.weights;
  const auto granularity = granularity_of(weights);
  const bool bits = weights.num_bits == 8 || weights.num_bits == 4;
  const bool order = weights.actorder.empty() || weights.actorder == "static" || weights.actorder == "weight";
  const auto activation = ct_activation(group);
  if (!granularity || !bits || !order || !activation || weights.type != "int" || weights.dynamic != "false")
    return nullptr;
  const bool eight = !*activation || bits_of((**activation).element) == 8;
  if (!eight || (*activation && (**activation).granularity.kind == Granularity::Kind::group)) return nullptr;
  CodeScheme scheme{
      .weight = int8_key(*granularity, weights.symmetric), .form = CodeForm::signed_bytes, .activation = *activation};
  if (weights.num_bits == 4) scheme.weight.element = Element::int4;
  return make_code_scheme(std::move(scheme), notes);
}

}  // namespace moracle
