// compressed-tensors float-quantized: weight E4M3 [out, in] with weight_scale [1], [out, 1] or, by blocks,
// [ceil(out / rows), ceil(in / cols)]; input_scale for static activations. MXFP8: weight_scale U8 [out, in / 32].
#include "base/checked.h"
#include "format/decode/code_module.h"
#include "format/publishers/ct_scheme.h"

namespace moracle {
namespace {

bool is_fp8(const CtArgs& weights) {
  return weights.type == "float" && weights.num_bits == 8 && weights.symmetric && weights.dynamic == "false" &&
         weights.actorder.empty();
}

std::optional<Granularity> granularity_of(const CtArgs& weights) {
  if (weights.strategy == "tensor") return Granularity::tensor();
  if (weights.strategy == "channel") return Granularity::channel();
  if (weights.strategy == "block" && weights.block.size() == 2)
    return Granularity::block(narrow<std::int32_t>(weights.block[0]), narrow<std::int32_t>(weights.block[1]));
  return std::nullopt;
}

}  // namespace

std::shared_ptr<const StoredScheme> make_ct_float_quantized(const CtGroup& group,
                                                            const std::shared_ptr<ValueNotes>& notes) {
  const auto granularity = granularity_of(group.weights);
  const auto activation = ct_activation(group);
  if (!is_fp8(group.weights) || !granularity || !activation) return nullptr;
  if (*activation && ((**activation).element != Element::e4m3 || (**activation).scale != ScaleType::f32))
    return nullptr;
  return make_code_scheme({.weight = fp8_key(*granularity), .activation = *activation}, notes);
}

std::shared_ptr<const StoredScheme> make_ct_mxfp8(const CtGroup& group, const std::shared_ptr<ValueNotes>& notes) {
  const CtArgs& weights = group.weights;
  const auto activation = ct_activation(group);
  const bool mx = weights.strategy == "group" && weights.group_size == 32 && weights.scale_dtype.ends_with("uint8");
  if (!is_fp8(weights) || !mx || !activation) return nullptr;
  if (*activation && **activation != dynamic(mx_key(Element::e4m3))) return nullptr;
  return make_code_scheme({.weight = mx_key(Element::e4m3), .activation = *activation}, notes);
}

}  // namespace moracle
