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
  bool batch_invariant;
  InputRounding inputs;
};
// The tile kernels serve runs of tokens, the others what AVX-512 BF16 and VNNI do.
inline constexpr PanelIsa kAmx{
    "amx",
    CpuFeature::avx512 | CpuFeature::avx512_vnni | CpuFeature::avx512_bf16 | CpuFeature::avx512_vbmi |
        CpuFeature::amx_tile | CpuFeature::amx_bf16 | CpuFeature::amx_int8,
    "bf16 or int16 products, f32 or integer sums per group or row, by run length", false, InputRounding::bf16};
// Tiles of bytes, which sum as VNNI does.
inline constexpr PanelIsa kAmxIntegers{"amx", kAmx.features, "int8 or int16 products, integer sums per group", true,
                                       InputRounding::sixteen_bits};
inline constexpr PanelIsa kAvx512Vnni{"avx512vnni", CpuFeature::avx512 | CpuFeature::avx512_vnni,
                                      "int8 or int16 products, integer sums per group", true,
                                      InputRounding::sixteen_bits};
// A head's copy in 8 bits meets VNNI, which every CPU with BF16 has.
inline constexpr PanelIsa kAvx512Bf16{
    "avx512bf16", CpuFeature::avx512 | CpuFeature::avx512_bf16 | CpuFeature::avx512_vnni | CpuFeature::avx512_vbmi,
    "bf16 products, f32 sums per group in 2 chains", true, InputRounding::bf16};
inline constexpr PanelIsa kAvx512{"avx512", static_cast<CpuFeatures>(CpuFeature::avx512),
                                  "f32 fused multiply-add per group in 2 chains", true, InputRounding::none};
// What AVX2 multiplies as integers, and the rest.
inline constexpr PanelIsa kAvx2{"avx2", static_cast<CpuFeatures>(CpuFeature::avx2),
                                "int8 or int16 products, integer sums per group", true, InputRounding::sixteen_bits};
inline constexpr PanelIsa kAvx2Numbers{"avx2", static_cast<CpuFeatures>(CpuFeature::avx2),
                                       "f32 fused multiply-add per group in 1 chain", true, InputRounding::none};

// A sum of tiles has to be spilled at the end of every group. Over so few columns, two planes of bytes spill twice what
// bf16 does.
inline constexpr std::array<std::int32_t, 2> kShortGroups{16, 32};
inline constexpr std::array<std::int32_t, 4> kLongGroups{64, 128, 256, 512};

constexpr KernelCard panel_card(std::string_view id, const PanelIsa& isa, std::span<const SchemeRule> schemes,
                                std::string_view summary, Numerics numerics = Numerics::exact) {
  return {.id = id,
          .backend = isa.backend,
          .summary = summary,
          .numerics = numerics,
          .device = DeviceKind::cpu,
          .cpu_features = isa.features,
          .schemes = schemes,
          .group_sizes = kPanelGroups,
          .zero_points = true,
          .act_order = true,
          .own_up_order = true,
          .bias = true,
          .activations = kPanelActivations,
          .inputs = numerics == Numerics::fast ? InputRounding::eight_bits : isa.inputs,
          .batch_invariant = isa.batch_invariant,
          .accumulation = isa.accumulation};
}

constexpr KernelCard with_groups(KernelCard card, std::span<const std::int32_t> group_sizes) {
  card.group_sizes = group_sizes;
  return card;
}

inline constexpr KernelCard kCardAmxWna16 =
    with_groups(panel_card("cpu.amx.wna16", kAmxIntegers, schemes::kWna16,
                           "integer weights, activations as int16 under a scale a group"),
                kLongGroups);
inline constexpr KernelCard kCardAmxWna16Short =
    with_groups(panel_card("cpu.amx.wna16-short", kAmx, schemes::kWna16Groups, "integer weights in groups of 16 or 32"),
                kShortGroups);
inline constexpr KernelCard kCardAmxWna16Fast =
    panel_card("cpu.amx.wna16-fast", kAmxIntegers, schemes::kWna16,
               "integer weights, activations as int8 under a scale a group", Numerics::fast);
inline constexpr KernelCard kCardAmxInt8 =
    panel_card("cpu.amx.int8", kAmxIntegers, schemes::kInt8, "int8 weights and activations");
inline constexpr KernelCard kCardAmxW4A8 =
    panel_card("cpu.amx.w4a8", kAmx, schemes::kW4A8, "int4 weights, 8-bit activations");
inline constexpr KernelCard kCardAmxFp8 = panel_card("cpu.amx.fp8", kAmx, schemes::kFp8, "E4M3 weights");
inline constexpr KernelCard kCardAmxMxfp4 =
    panel_card("cpu.amx.mxfp4", kAmx, schemes::kMxfp4, "E2M1 weights under E8M0 scales");
inline constexpr KernelCard kCardAmxMxfp4Fast = panel_card(
    "cpu.amx.mxfp4-fast", kAmx, schemes::kMxfp4A16,
    "E2M1 weights under E8M0 scales, up to 15 tokens of an expert as int8 under a scale a group", Numerics::fast);
inline constexpr KernelCard kCardAmxMxfp6 =
    panel_card("cpu.amx.mxfp6", kAmx, schemes::kMxfp6, "E2M3 and E3M2 weights under E8M0 scales, kept as E4M3");
inline constexpr KernelCard kCardAmxMxfp8 =
    panel_card("cpu.amx.mxfp8", kAmx, schemes::kMxfp8, "E4M3 weights under E8M0 scales of 32");
inline constexpr KernelCard kCardAmxNvfp4 =
    panel_card("cpu.amx.nvfp4", kAmx, schemes::kNvfp4, "E2M1 weights under E4M3 scales");
inline constexpr KernelCard kCardAmxNvfp4Fast = panel_card(
    "cpu.amx.nvfp4-fast", kAmx, schemes::kNvfp4A16,
    "E2M1 weights under E4M3 scales, up to 15 tokens of an expert as int8 under a scale a group", Numerics::fast);
inline constexpr KernelCard kCardAmxDense =
    panel_card("cpu.amx.dense", kAmx, schemes::kUnquantized, "unquantized weights");
inline constexpr KernelCard kCardAvx512VnniInt8 =
    panel_card("cpu.avx512vnni.int8", kAvx512Vnni, schemes::kInt8, "int8 weights and activations");
inline constexpr KernelCard kCardAvx512VnniW4A8 =
    panel_card("cpu.avx512vnni.w4a8", kAvx512Vnni, schemes::kW4A8Int8, "int4 weights, int8 activations");
inline constexpr KernelCard kCardAvx512VnniWna16 =
    panel_card("cpu.avx512vnni.wna16", kAvx512Vnni, schemes::kWna16,
               "integer weights, activations as int16 under a scale a group");
inline constexpr KernelCard kCardAvx512VnniWna16Fast =
    panel_card("cpu.avx512vnni.wna16-fast", kAvx512Vnni, schemes::kWna16,
               "integer weights, activations as int8 under a scale a group", Numerics::fast);
inline constexpr KernelCard kCardAvx512VnniMxfp4 =
    panel_card("cpu.avx512vnni.mxfp4", kAvx512Vnni, schemes::kMxfp4A16,
               "E2M1 weights under E8M0 scales, activations as int16 under a scale a group");
inline constexpr KernelCard kCardAvx512VnniMxfp4Fast =
    panel_card("cpu.avx512vnni.mxfp4-fast", kAvx512Vnni, schemes::kMxfp4A16,
               "E2M1 weights under E8M0 scales, activations as int8 under a scale a group", Numerics::fast);
inline constexpr KernelCard kCardAvx512VnniNvfp4 =
    panel_card("cpu.avx512vnni.nvfp4", kAvx512Vnni, schemes::kNvfp4A16,
               "E2M1 weights under E4M3 scales, activations as int16 under a scale a group");
inline constexpr KernelCard kCardAvx512VnniNvfp4Fast =
    panel_card("cpu.avx512vnni.nvfp4-fast", kAvx512Vnni, schemes::kNvfp4A16,
               "E2M1 weights under E4M3 scales, activations as int8 under a scale a group", Numerics::fast);
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
    panel_card("cpu.avx2.wna16", kAvx2, schemes::kWna16, "integer weights, activations as int16 under a scale a group");
inline constexpr KernelCard kCardAvx2Wna16Fast =
    panel_card("cpu.avx2.wna16-fast", kAvx2, schemes::kInt4A16,
               "int4 weights, activations as int8 under a scale a group", Numerics::fast);
inline constexpr KernelCard kCardAvx2Int8 =
    panel_card("cpu.avx2.int8", kAvx2, schemes::kInt8, "int8 weights and activations");
inline constexpr KernelCard kCardAvx2W4A8 =
    panel_card("cpu.avx2.w4a8", kAvx2, schemes::kW4A8, "int4 weights, 8-bit activations");
inline constexpr KernelCard kCardAvx2Fp8 = panel_card("cpu.avx2.fp8", kAvx2Numbers, schemes::kFp8, "E4M3 weights");
inline constexpr KernelCard kCardAvx2Mxfp4 =
    panel_card("cpu.avx2.mxfp4", kAvx2, schemes::kMxfp4, "E2M1 weights under E8M0 scales");
inline constexpr KernelCard kCardAvx2Mxfp4Fast =
    panel_card("cpu.avx2.mxfp4-fast", kAvx2, schemes::kMxfp4A16,
               "E2M1 weights under E8M0 scales, activations as int8 under a scale a group", Numerics::fast);
inline constexpr KernelCard kCardAvx2Mxfp6 = panel_card("cpu.avx2.mxfp6", kAvx2Numbers, schemes::kMxfp6,
                                                        "E2M3 and E3M2 weights under E8M0 scales, kept as E4M3");
inline constexpr KernelCard kCardAvx2Mxfp8 =
    panel_card("cpu.avx2.mxfp8", kAvx2Numbers, schemes::kMxfp8, "E4M3 weights under E8M0 scales of 32");
inline constexpr KernelCard kCardAvx2Nvfp4 =
    panel_card("cpu.avx2.nvfp4", kAvx2, schemes::kNvfp4, "E2M1 weights under E4M3 scales");
inline constexpr KernelCard kCardAvx2Nvfp4Fast =
    panel_card("cpu.avx2.nvfp4-fast", kAvx2, schemes::kNvfp4A16,
               "E2M1 weights under E4M3 scales, activations as int8 under a scale a group", Numerics::fast);
inline constexpr KernelCard kCardAvx2Dense =
    panel_card("cpu.avx2.dense", kAvx2Numbers, schemes::kUnquantized, "unquantized weights");

// All of them; each names its target by its backend.
inline constexpr std::array kCpuCards{&kCardAmxWna16,
                                      &kCardAmxWna16Short,
                                      &kCardAmxWna16Fast,
                                      &kCardAmxInt8,
                                      &kCardAmxW4A8,
                                      &kCardAmxFp8,
                                      &kCardAmxMxfp4,
                                      &kCardAmxMxfp4Fast,
                                      &kCardAmxMxfp6,
                                      &kCardAmxMxfp8,
                                      &kCardAmxNvfp4,
                                      &kCardAmxNvfp4Fast,
                                      &kCardAmxDense,
                                      &kCardAvx512VnniInt8,
                                      &kCardAvx512VnniW4A8,
                                      &kCardAvx512VnniWna16,
                                      &kCardAvx512VnniWna16Fast,
                                      &kCardAvx512VnniMxfp4,
                                      &kCardAvx512VnniMxfp4Fast,
                                      &kCardAvx512VnniNvfp4,
                                      &kCardAvx512VnniNvfp4Fast,
                                      &kCardAvx512Bf16Wna16,
                                      &kCardAvx512Bf16Int8,
                                      &kCardAvx512Bf16W4A8,
                                      &kCardAvx512Bf16Fp8,
                                      &kCardAvx512Bf16Mxfp4,
                                      &kCardAvx512Bf16Mxfp6,
                                      &kCardAvx512Bf16Mxfp8,
                                      &kCardAvx512Bf16Nvfp4,
                                      &kCardAvx512Bf16Dense,
                                      &kCardAvx512Wna16,
                                      &kCardAvx512Int8,
                                      &kCardAvx512W4A8,
                                      &kCardAvx512Fp8,
                                      &kCardAvx512Mxfp4,
                                      &kCardAvx512Mxfp6,
                                      &kCardAvx512Mxfp8,
                                      &kCardAvx512Nvfp4,
                                      &kCardAvx512Dense,
                                      &kCardAvx2Wna16,
                                      &kCardAvx2Wna16Fast,
                                      &kCardAvx2Int8,
                                      &kCardAvx2W4A8,
                                      &kCardAvx2Fp8,
                                      &kCardAvx2Mxfp4,
                                      &kCardAvx2Mxfp4Fast,
                                      &kCardAvx2Mxfp6,
                                      &kCardAvx2Mxfp8,
                                      &kCardAvx2Nvfp4,
                                      &kCardAvx2Nvfp4Fast,
                                      &kCardAvx2Dense};

}  // namespace moracle
