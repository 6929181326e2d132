// What the CPU panel kernels serve. One layout and one driver; the cards differ in the instruction set and therefore in
// the arithmetic of the activations.
#pragma once

#include <array>

#include "kernels/schemes.card.h"
#include "oracle/card.h"

namespace moracle {

// Groups are whole steps of 8 columns; these are the widths that publishers use.
inline constexpr std::array<std::int32_t, 6> kPanelGroups{16, 32, 64, 128, 256, 512};
inline constexpr std::array kPanelActivations{ActivationFn::silu, ActivationFn::gelu_tanh, ActivationFn::swigluoai,
                                              ActivationFn::swiglustep};

// What the instruction sets differ in.
struct PanelIsa {
  std::string_view backend;
  CpuFeatures features;
  std::string_view accumulation;
};
inline constexpr PanelIsa kAvx512Bf16{"avx512bf16",
                                      CpuFeature::avx512 | CpuFeature::avx512_bf16 | CpuFeature::avx512_vbmi,
                                      "bf16 products, f32 sums per group, 1 to 4 chains by tile"};
inline constexpr PanelIsa kAvx512{"avx512", static_cast<CpuFeatures>(CpuFeature::avx512),
                                  "f32 fused multiply-add per group, 1 to 4 chains by tile"};
inline constexpr PanelIsa kAvx2{"avx2", static_cast<CpuFeatures>(CpuFeature::avx2),
                                "f32 fused multiply-add per group, 1 to 4 chains by tile"};

constexpr KernelCard panel_card(std::string_view id, const PanelIsa& isa, std::span<const SchemeRule> schemes,
                                std::string_view summary) {
  return {.id = id,
          .backend = isa.backend,
          .summary = summary,
          .numerics = Numerics::exact,
          .device = DeviceKind::cpu,
          .cpu_features = isa.features,
          .schemes = schemes,
          .group_sizes = kPanelGroups,
          .zero_points = true,
          .act_order = true,
          .own_up_order = true,
          .bias = true,
          .activations = kPanelActivations,
          .batch_invariant = false,
          .accumulation = isa.accumulation};
}

inline constexpr KernelCard kCardAvx512Bf16Wna16 =
    panel_card("cpu.avx512bf16.wna16", kAvx512Bf16, schemes::kWna16, "integer weights, 16-bit activations");
inline constexpr KernelCard kCardAvx512Bf16Int8 =
    panel_card("cpu.avx512bf16.int8", kAvx512Bf16, schemes::kInt8, "int8 weights and activations");
inline constexpr KernelCard kCardAvx512Bf16W4A8 =
    panel_card("cpu.avx512bf16.w4a8", kAvx512Bf16, schemes::kW4A8, "int4 weights, 8-bit activations");
inline constexpr KernelCard kCardAvx512Bf16Fp8 =
    panel_card("cpu.avx512bf16.fp8", kAvx512Bf16, schemes::kFp8, "E4M3 weights");
inline constexpr KernelCard kCardAvx512Bf16Mxfp4 =
    panel_card("cpu.avx512bf16.mxfp4", kAvx512Bf16, schemes::kMxfp4, "E2M1 weights under E8M0 scales");
inline constexpr KernelCard kCardAvx512Bf16Mxfp6 = panel_card("cpu.avx512bf16.mxfp6", kAvx512Bf16, schemes::kMxfp6,
                                                              "E2M3 and E3M2 weights under E8M0 scales, kept as E4M3");
inline constexpr KernelCard kCardAvx512Bf16Mxfp8 =
    panel_card("cpu.avx512bf16.mxfp8", kAvx512Bf16, schemes::kMxfp8, "E4M3 weights under E8M0 scales of 32");
inline constexpr KernelCard kCardAvx512Bf16Nvfp4 =
    panel_card("cpu.avx512bf16.nvfp4", kAvx512Bf16, schemes::kNvfp4, "E2M1 weights under E4M3 scales");
inline constexpr KernelCard kCardAvx512Bf16Dense =
    panel_card("cpu.avx512bf16.dense", kAvx512Bf16, schemes::kUnquantized, "unquantized weights");
inline constexpr KernelCard kCardAvx512Wna16 =
    panel_card("cpu.avx512.wna16", kAvx512, schemes::kWna16, "integer weights, 16-bit activations");
inline constexpr KernelCard kCardAvx512Int8 =
    panel_card("cpu.avx512.int8", kAvx512, schemes::kInt8, "int8 weights and activations");
inline constexpr KernelCard kCardAvx512W4A8 =
    panel_card("cpu.avx512.w4a8", kAvx512, schemes::kW4A8, "int4 weights, 8-bit activations");
inline constexpr KernelCard kCardAvx512Fp8 = panel_card("cpu.avx512.fp8", kAvx512, schemes::kFp8, "E4M3 weights");
inline constexpr KernelCard kCardAvx512Mxfp4 =
    panel_card("cpu.avx512.mxfp4", kAvx512, schemes::kMxfp4, "E2M1 weights under E8M0 scales");
inline constexpr KernelCard kCardAvx512Mxfp6 =
    panel_card("cpu.avx512.mxfp6", kAvx512, schemes::kMxfp6, "E2M3 and E3M2 weights under E8M0 scales, kept as E4M3");
inline constexpr KernelCard kCardAvx512Mxfp8 =
    panel_card("cpu.avx512.mxfp8", kAvx512, schemes::kMxfp8, "E4M3 weights under E8M0 scales of 32");
inline constexpr KernelCard kCardAvx512Nvfp4 =
    panel_card("cpu.avx512.nvfp4", kAvx512, schemes::kNvfp4, "E2M1 weights under E4M3 scales");
inline constexpr KernelCard kCardAvx512Dense =
    panel_card("cpu.avx512.dense", kAvx512, schemes::kUnquantized, "unquantized weights");
inline constexpr KernelCard kCardAvx2Wna16 =
    panel_card("cpu.avx2.wna16", kAvx2, schemes::kWna16, "integer weights, 16-bit activations");
inline constexpr KernelCard kCardAvx2Int8 =
    panel_card("cpu.avx2.int8", kAvx2, schemes::kInt8, "int8 weights and activations");
inline constexpr KernelCard kCardAvx2W4A8 =
    panel_card("cpu.avx2.w4a8", kAvx2, schemes::kW4A8, "int4 weights, 8-bit activations");
inline constexpr KernelCard kCardAvx2Fp8 = panel_card("cpu.avx2.fp8", kAvx2, schemes::kFp8, "E4M3 weights");
inline constexpr KernelCard kCardAvx2Mxfp4 =
    panel_card("cpu.avx2.mxfp4", kAvx2, schemes::kMxfp4, "E2M1 weights under E8M0 scales");
inline constexpr KernelCard kCardAvx2Mxfp6 =
    panel_card("cpu.avx2.mxfp6", kAvx2, schemes::kMxfp6, "E2M3 and E3M2 weights under E8M0 scales, kept as E4M3");
inline constexpr KernelCard kCardAvx2Mxfp8 =
    panel_card("cpu.avx2.mxfp8", kAvx2, schemes::kMxfp8, "E4M3 weights under E8M0 scales of 32");
inline constexpr KernelCard kCardAvx2Nvfp4 =
    panel_card("cpu.avx2.nvfp4", kAvx2, schemes::kNvfp4, "E2M1 weights under E4M3 scales");
inline constexpr KernelCard kCardAvx2Dense =
    panel_card("cpu.avx2.dense", kAvx2, schemes::kUnquantized, "unquantized weights");

}  // namespace moracle
