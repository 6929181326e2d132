// What the CPU panel kernels serve. One layout and one driver; the cards differ in the instruction set and therefore in
// the arithmetic of the activations.
#pragma once

#include <array>

#include "oracle/card.h"

namespace moracle {

inline constexpr std::array kPanelWna16Schemes{
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
inline constexpr std::array kPanelDenseSchemes{
    SchemeRule{.element = Element::bf16},
    SchemeRule{.element = Element::f16},
    SchemeRule{.element = Element::f32},
};
// Groups are whole steps of 8 columns; these are the widths that publishers use.
inline constexpr std::array<std::int32_t, 6> kPanelGroups{16, 32, 64, 128, 256, 512};
inline constexpr std::array kPanelActivations{ActivationFn::silu, ActivationFn::gelu_tanh, ActivationFn::swigluoai,
                                              ActivationFn::swiglustep};

constexpr KernelCard panel_card(std::string_view id, std::string_view backend, CpuFeatures features,
                                std::span<const SchemeRule> schemes, std::string_view summary,
                                std::string_view accumulation) {
  return {.id = id,
          .backend = backend,
          .summary = summary,
          .numerics = Numerics::exact,
          .device = DeviceKind::cpu,
          .cpu_features = features,
          .schemes = schemes,
          .group_sizes = kPanelGroups,
          .zero_points = true,
          .act_order = true,
          .bias = true,
          .activations = kPanelActivations,
          .batch_invariant = false,
          .accumulation = accumulation};
}

inline constexpr std::string_view kBf16Sums = "bf16 products, f32 sums per group, 1 to 4 chains by tile";
inline constexpr std::string_view kF32Sums = "f32 fused multiply-add per group, 1 to 4 chains by tile";

inline constexpr KernelCard kCardAvx512Bf16Wna16 =
    panel_card("cpu.avx512bf16.wna16", "avx512bf16", CpuFeature::avx512 | CpuFeature::avx512_bf16, kPanelWna16Schemes,
               "AVX-512 BF16, 16-bit activations", kBf16Sums);
inline constexpr KernelCard kCardAvx512Wna16 =
    panel_card("cpu.avx512.wna16", "avx512", static_cast<CpuFeatures>(CpuFeature::avx512), kPanelWna16Schemes,
               "AVX-512, f32 activations", kF32Sums);
inline constexpr KernelCard kCardAvx2Wna16 =
    panel_card("cpu.avx2.wna16", "avx2", static_cast<CpuFeatures>(CpuFeature::avx2), kPanelWna16Schemes,
               "AVX2, f32 activations", kF32Sums);
inline constexpr KernelCard kCardAvx512Bf16Dense =
    panel_card("cpu.avx512bf16.dense", "avx512bf16", CpuFeature::avx512 | CpuFeature::avx512_bf16, kPanelDenseSchemes,
               "AVX-512 BF16, unquantized weights", kBf16Sums);
inline constexpr KernelCard kCardAvx512Dense =
    panel_card("cpu.avx512.dense", "avx512", static_cast<CpuFeatures>(CpuFeature::avx512), kPanelDenseSchemes,
               "AVX-512, unquantized weights", kF32Sums);
inline constexpr KernelCard kCardAvx2Dense =
    panel_card("cpu.avx2.dense", "avx2", static_cast<CpuFeatures>(CpuFeature::avx2), kPanelDenseSchemes,
               "AVX2, unquantized weights", kF32Sums);

}  // namespace moracle
