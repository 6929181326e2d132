// What the reference kernel serves: every scheme it can dequantize, on any machine the program runs on.
#pragma once

#include <array>

#include "oracle/card.h"

namespace moracle {

inline constexpr std::array kRefWna16Schemes{
    SchemeRule{.element = Element::int4,
               .scale = ScaleType::f32,
               .granularity = Granularity::Kind::group,
               .allow_asymmetric = true},
    SchemeRule{.element = Element::int4,
               .scale = ScaleType::f32,
               .granularity = Granularity::Kind::channel,
               .allow_asymmetric = true},
    SchemeRule{.element = Element::int8,
               .scale = ScaleType::f32,
               .granularity = Granularity::Kind::group,
               .allow_asymmetric = true},
    SchemeRule{.element = Element::int8,
               .scale = ScaleType::f32,
               .granularity = Granularity::Kind::channel,
               .allow_asymmetric = true},
};
inline constexpr std::array kRefDenseSchemes{
    SchemeRule{.element = Element::bf16},
    SchemeRule{.element = Element::f16},
    SchemeRule{.element = Element::f32},
};
inline constexpr std::array kRefActivations{ActivationFn::silu,      ActivationFn::gelu,       ActivationFn::gelu_tanh,
                                            ActivationFn::swigluoai, ActivationFn::swiglustep, ActivationFn::situ};

constexpr KernelCard ref_card(std::string_view id, std::span<const SchemeRule> schemes) {
  return {.id = id,
          .backend = "ref",
          .summary = "fp32 reference, dequantizes row by row",
          .numerics = Numerics::exact,
          .device = DeviceKind::cpu,
          .any_device_of_host = true,
          .schemes = schemes,
          .zero_points = true,
          .act_order = true,
          .bias = true,
          .activations = kRefActivations,
          .batch_invariant = true,
          .accumulation = "f32, 16 partial sums over k, added pairwise"};
}
inline constexpr KernelCard kCardRefWna16 = ref_card("ref.wna16", kRefWna16Schemes);
inline constexpr KernelCard kCardRefDense = ref_card("ref.dense", kRefDenseSchemes);

}  // namespace moracle
