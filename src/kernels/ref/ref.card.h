// What the reference kernel serves: every scheme it can dequantize, on any machine the program runs on.
#pragma once

#include <array>

#include "kernels/schemes.card.h"
#include "oracle/card.h"

namespace moracle {

inline constexpr std::array kRefActivations{
    ActivationFn::silu,       ActivationFn::gelu, ActivationFn::gelu_tanh,   ActivationFn::swigluoai,
    ActivationFn::swiglustep, ActivationFn::situ, ActivationFn::relu2_no_mul};

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
          .own_up_order = true,
          .bias = true,
          .activations = kRefActivations,
          .inputs = InputRounding::none,
          .batch_invariant = true,
          .accumulation = "f32, 16 partial sums over k, added pairwise"};
}
inline constexpr KernelCard kCardRefWna16 = ref_card("ref.wna16", schemes::kWna16);
inline constexpr KernelCard kCardRefInt8 = ref_card("ref.int8", schemes::kInt8);
inline constexpr KernelCard kCardRefW4A8 = ref_card("ref.w4a8", schemes::kW4A8);
inline constexpr KernelCard kCardRefFp8 = ref_card("ref.fp8", schemes::kFp8);
inline constexpr KernelCard kCardRefMxfp4 = ref_card("ref.mxfp4", schemes::kMxfp4);
inline constexpr KernelCard kCardRefMxfp6 = ref_card("ref.mxfp6", schemes::kMxfp6);
inline constexpr KernelCard kCardRefMxfp8 = ref_card("ref.mxfp8", schemes::kMxfp8);
inline constexpr KernelCard kCardRefNvfp4 = ref_card("ref.nvfp4", schemes::kNvfp4);
inline constexpr KernelCard kCardRefDense = ref_card("ref.dense", schemes::kUnquantized);

}  // namespace moracle
