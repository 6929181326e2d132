// Kernels of other devices whose layout is public: Moracle packs their weights, bit for bit, and runs the packed bytes
// on the host to prove them. Their cards claim what the layout holds; the devices are those of the published kernels.
#pragma once

#include <array>

#include "kernels/schemes.card.h"
#include "oracle/card.h"

namespace moracle {

// Every gated function: what comes between the two multiplications is no part of a layout.
inline constexpr std::array kLayoutActivations{ActivationFn::silu,       ActivationFn::gelu,
                                               ActivationFn::gelu_tanh,  ActivationFn::swigluoai,
                                               ActivationFn::swiglustep, ActivationFn::situ};

constexpr DeviceRule on_cuda(int low, int high = 9999) {
  return {.device = DeviceKind::cuda, .min_capability = low, .max_capability = high};
}
constexpr DeviceRule on_rocm(std::string_view arch) {
  return {.device = DeviceKind::rocm, .arch = arch};
}
inline constexpr std::array kFromTuring{on_cuda(75)};
inline constexpr std::array kHopper{on_cuda(90, 90)};
inline constexpr std::array kFlashInferCuda{on_cuda(90, 90), on_cuda(100, 109), on_cuda(120, 129)};
inline constexpr std::array kBlackwell{on_cuda(100, 109)};
inline constexpr std::array kFp4Cuda{on_cuda(100, 129)};
inline constexpr std::array kRtxBlackwell{on_cuda(120, 129)};
inline constexpr std::array kInstinct{on_rocm("gfx942"), on_rocm("gfx950")};
inline constexpr std::array kInstinctFp4{on_rocm("gfx950")};
inline constexpr std::array kAnyXpu{DeviceRule{.device = DeviceKind::xpu}};
inline constexpr std::array kTritonDevices{on_cuda(75), DeviceRule{.device = DeviceKind::rocm},
                                           DeviceRule{.device = DeviceKind::xpu}};

// Marlin has tables for these widths; other layouts keep any.
inline constexpr std::array<std::int32_t, 3> kMarlinGroups{32, 64, 128};
inline constexpr std::array<std::int32_t, 4> kIntegerGroups{32, 64, 128, 256};
inline constexpr std::array<std::int32_t, 1> kGroup16{16};
inline constexpr std::array<std::int32_t, 1> kGroup32{32};

constexpr KernelCard layout_card(KernelCard card) {
  card.kind = CardKind::external;
  card.device = card.devices.front().device;
  card.serves_linear = false;
  card.activations = kLayoutActivations;
  return card;
}

constexpr SchemeRule with_scale(SchemeRule rule, ScaleType scale) {
  rule.scale = scale;
  rule.allow_asymmetric = false;
  return rule;
}

inline constexpr KernelCard kCardMarlinWna16 = layout_card({.id = "marlin.wna16",
                                                            .backend = "marlin",
                                                            .summary = "int4 and int8, tiles of tensor-core operands",
                                                            .devices = kFromTuring,
                                                            .schemes = schemes::kWna16,
                                                            .group_sizes = kMarlinGroups,
                                                            .zero_points = true,
                                                            .act_order = true,
                                                            .bias = true,
                                                            .hidden_multiple = 128});
inline constexpr std::array kMarlinFp8Schemes{schemes::kFp8WeightTensor, schemes::kFp8WeightChannel,
                                              schemes::kFp8WeightBlock};
inline constexpr KernelCard kCardMarlinFp8 = layout_card({.id = "marlin.fp8",
                                                          .backend = "marlin",
                                                          .summary = "FP8 weights, 16-bit activations",
                                                          .devices = kFromTuring,
                                                          .schemes = kMarlinFp8Schemes,
                                                          .bias = true,
                                                          .hidden_multiple = 128});
inline constexpr std::array kMarlinMxfp4Schemes{schemes::kMxfp4Weight};
inline constexpr KernelCard kCardMarlinMxfp4 = layout_card({.id = "marlin.mxfp4",
                                                            .backend = "marlin",
                                                            .summary = "MXFP4 weights, 16-bit activations",
                                                            .devices = kFromTuring,
                                                            .schemes = kMarlinMxfp4Schemes,
                                                            .group_sizes = kGroup32,
                                                            .bias = true});
inline constexpr std::array kMarlinMxfp8Schemes{schemes::kMxfp8Weight};
inline constexpr KernelCard kCardMarlinMxfp8 = layout_card({.id = "marlin.mxfp8",
                                                            .backend = "marlin",
                                                            .summary = "MXFP8 weights, 16-bit activations",
                                                            .devices = kFromTuring,
                                                            .schemes = kMarlinMxfp8Schemes,
                                                            .group_sizes = kGroup32,
                                                            .bias = true,
                                                            .hidden_multiple = 128});
inline constexpr std::array kNvfp4WeightOnly{schemes::kNvfp4Weight};
inline constexpr std::array kNvfp4Both{schemes::with(schemes::kNvfp4Weight, schemes::kNvfp4Group)};
inline constexpr KernelCard kCardMarlinNvfp4 = layout_card({.id = "marlin.nvfp4",
                                                            .backend = "marlin",
                                                            .summary = "NVFP4 weights, 16-bit activations",
                                                            .devices = kFromTuring,
                                                            .schemes = kNvfp4WeightOnly,
                                                            .group_sizes = kGroup16,
                                                            .bias = true,
                                                            .hidden_multiple = 64});

// Marlin for linears: the same tiles, padded on both sides, so that any size fits.
constexpr KernelCard linear_card(std::string_view id, KernelCard experts) {
  experts.id = id;
  experts.serves_experts = false;
  experts.serves_linear = true;
  experts.hidden_multiple = 1;
  return experts;
}
inline constexpr KernelCard kCardMarlinLinearWna16 = linear_card("marlin.linear.wna16", kCardMarlinWna16);
inline constexpr KernelCard kCardMarlinLinearFp8 = linear_card("marlin.linear.fp8", kCardMarlinFp8);
inline constexpr KernelCard kCardMarlinLinearMxfp4 = linear_card("marlin.linear.mxfp4", kCardMarlinMxfp4);
inline constexpr KernelCard kCardMarlinLinearMxfp8 = linear_card("marlin.linear.mxfp8", kCardMarlinMxfp8);
inline constexpr KernelCard kCardMarlinLinearNvfp4 = linear_card("marlin.linear.nvfp4", kCardMarlinNvfp4);

inline constexpr KernelCard kCardTritonWna16 = layout_card({.id = "triton.wna16",
                                                            .backend = "triton",
                                                            .summary = "int4 and int8, rows as in the checkpoint",
                                                            .devices = kTritonDevices,
                                                            .schemes = schemes::kWna16,
                                                            .group_sizes = kIntegerGroups,
                                                            .zero_points = true,
                                                            .bias = true,
                                                            .hidden_multiple = 2,
                                                            .intermediate_multiple = 2});
inline constexpr std::array kTritonInt8Schemes{
    schemes::with(with_scale(schemes::kInt8Channel, ScaleType::f32), schemes::kInt8Token),
    schemes::with(with_scale(schemes::kInt8PerTensor, ScaleType::f32), schemes::kInt8Token),
    schemes::with(with_scale(schemes::kInt8PerTensor, ScaleType::f32), schemes::kInt8Tensor)};
inline constexpr KernelCard kCardTritonInt8 = layout_card({.id = "triton.int8",
                                                           .backend = "triton",
                                                           .summary = "INT8 rows, scales [out, 1]",
                                                           .devices = kTritonDevices,
                                                           .schemes = kTritonInt8Schemes,
                                                           .bias = true});
inline constexpr std::array kFp8BothSchemes{schemes::with(schemes::kFp8WeightTensor, schemes::kFp8Tensor),
                                            schemes::with(schemes::kFp8WeightTensor, schemes::kFp8Token),
                                            schemes::with(schemes::kFp8WeightChannel, schemes::kFp8Token),
                                            schemes::with(schemes::kFp8WeightBlock, schemes::kFp8Group128)};
inline constexpr KernelCard kCardTritonFp8 = layout_card({.id = "triton.fp8",
                                                          .backend = "triton",
                                                          .summary = "FP8 rows",
                                                          .devices = kTritonDevices,
                                                          .schemes = kFp8BothSchemes,
                                                          .bias = true});

inline constexpr std::array kXpuInt4Schemes{
    SchemeRule{.element = Element::int4, .scale = ScaleType::f32, .granularity = Granularity::Kind::group}};
inline constexpr KernelCard kCardXpuInt4 = layout_card({.id = "xpu.int4",
                                                        .backend = "xpu",
                                                        .summary = "int4 rows, low nibble first",
                                                        .devices = kAnyXpu,
                                                        .schemes = kXpuInt4Schemes,
                                                        .group_sizes = kIntegerGroups,
                                                        .bias = true,
                                                        .hidden_multiple = 8,
                                                        .intermediate_multiple = 8});

// Unquantized weights.
inline constexpr std::array kHalfSchemes{SchemeRule{.element = Element::bf16}, SchemeRule{.element = Element::f16}};
inline constexpr std::array kBf16Schemes{SchemeRule{.element = Element::bf16}};
inline constexpr KernelCard kCardTritonValues = layout_card({.id = "triton.unquantized",
                                                             .backend = "triton",
                                                             .summary = "rows as in the checkpoint",
                                                             .devices = kTritonDevices,
                                                             .schemes = schemes::kUnquantized,
                                                             .bias = true});
inline constexpr KernelCard kCardFlashInferValues = layout_card({.id = "flashinfer_cutlass.unquantized",
                                                                 .backend = "flashinfer_cutlass",
                                                                 .summary = "16-bit weights, up first",
                                                                 .devices = kFlashInferCuda,
                                                                 .schemes = kHalfSchemes,
                                                                 .bias = true});
inline constexpr KernelCard kCardTrtLlmValues = layout_card({.id = "trtllm.unquantized",
                                                             .backend = "trtllm",
                                                             .summary = "bf16, rows shuffled, columns in blocks",
                                                             .devices = kBlackwell,
                                                             .schemes = kBf16Schemes,
                                                             .hidden_multiple = 64,
                                                             .intermediate_multiple = 128});
inline constexpr KernelCard kCardAiterValues = layout_card({.id = "aiter.unquantized",
                                                            .backend = "aiter",
                                                            .summary = "16-bit weights in tiles of 16 rows x 16 bytes",
                                                            .devices = kInstinct,
                                                            .schemes = kHalfSchemes,
                                                            .hidden_multiple = 32,
                                                            .intermediate_multiple = 32});

// One scale serves a block, or a tensor, in these kernels: interleaved rows on disk shared theirs with other rows.
inline constexpr SchemeRule kFp8Block128 = [] {
  SchemeRule rule = schemes::with(schemes::kFp8WeightBlock, schemes::kFp8Group128);
  rule.rows = rule.cols = 128;
  return rule;
}();
inline constexpr std::array kFp8TensorSchemes{schemes::with(schemes::kFp8WeightTensor, schemes::kFp8Tensor)};
inline constexpr std::array kFp8BlockSchemes{kFp8Block128};
inline constexpr KernelCard kCardTrtLlmFp8 = layout_card({.id = "trtllm.fp8",
                                                          .backend = "trtllm",
                                                          .summary = "FP8 of one scale a tensor, rows shuffled",
                                                          .devices = kBlackwell,
                                                          .schemes = kFp8TensorSchemes,
                                                          .hidden_multiple = 32,
                                                          .interleaved = false});
inline constexpr KernelCard kCardTrtLlmFp8Block =
    layout_card({.id = "trtllm.fp8_block",
                 .backend = "trtllm",
                 .summary = "FP8 blocks, rows shuffled, columns in blocks",
                 .devices = kBlackwell,
                 .schemes = kFp8BlockSchemes,
                 .hidden_multiple = 128,
                 .intermediate_multiple = 128,
                 .interleaved = false});
inline constexpr KernelCard kCardFlashInferFp8 = layout_card({.id = "flashinfer_cutlass.fp8",
                                                              .backend = "flashinfer_cutlass",
                                                              .summary = "FP8 of one scale a tensor, up first",
                                                              .devices = kFlashInferCuda,
                                                              .schemes = kFp8TensorSchemes,
                                                              .bias = true,
                                                              .interleaved = false});
inline constexpr KernelCard kCardFlashInferFp8Block = layout_card({.id = "flashinfer_cutlass.fp8_block",
                                                                   .backend = "flashinfer_cutlass",
                                                                   .summary = "FP8 blocks, up first",
                                                                   .devices = kHopper,
                                                                   .schemes = kFp8BlockSchemes,
                                                                   .bias = true,
                                                                   .hidden_multiple = 128,
                                                                   .intermediate_multiple = 128,
                                                                   .interleaved = false});
inline constexpr std::array kMxfp8Both{schemes::with(schemes::kMxfp8Weight, schemes::kMxfp8Group)};
inline constexpr KernelCard kCardTrtLlmMxfp8 = layout_card({.id = "trtllm.mxfp8",
                                                            .backend = "trtllm",
                                                            .summary = "MXFP8, rows shuffled, scales swizzled",
                                                            .devices = kBlackwell,
                                                            .schemes = kMxfp8Both,
                                                            .group_sizes = kGroup32,
                                                            .hidden_multiple = 128,
                                                            .intermediate_multiple = 128});

inline constexpr std::array kMxint4Schemes{SchemeRule{
    .element = Element::int4, .scale = ScaleType::bf16, .granularity = Granularity::Kind::group, .cols = 32}};
inline constexpr KernelCard kCardTrtLlmMxint4 = layout_card({.id = "trtllm.mxint4",
                                                             .backend = "trtllm",
                                                             .summary = "int4 of group 32, rows shuffled",
                                                             .devices = kBlackwell,
                                                             .schemes = kMxint4Schemes,
                                                             .group_sizes = kGroup32,
                                                             .hidden_multiple = 256,
                                                             .intermediate_multiple = 256});
inline constexpr KernelCard kCardTrtLlmMxfp4 = layout_card({.id = "trtllm.mxfp4",
                                                            .backend = "trtllm",
                                                            .summary = "MXFP4, rows shuffled, scales swizzled",
                                                            .devices = kBlackwell,
                                                            .schemes = kMarlinMxfp4Schemes,
                                                            .group_sizes = kGroup32,
                                                            .bias = true});
inline constexpr KernelCard kCardTrtLlmNvfp4 = layout_card({.id = "trtllm.nvfp4",
                                                            .backend = "trtllm",
                                                            .summary = "NVFP4, rows shuffled, scales swizzled",
                                                            .devices = kBlackwell,
                                                            .schemes = kNvfp4Both,
                                                            .group_sizes = kGroup16});

inline constexpr std::array kMxfp4Both{schemes::with(schemes::kMxfp4Weight, schemes::kMxfp4Group)};
inline constexpr std::array kMxfp4WithMxfp8{schemes::with(schemes::kMxfp4Weight, schemes::kMxfp8Group)};
inline constexpr KernelCard kCardCutlassMxfp4 = layout_card({.id = "cutlass.mxfp4",
                                                             .backend = "cutlass",
                                                             .summary = "MXFP4 rows, scales swizzled",
                                                             .devices = kBlackwell,
                                                             .schemes = kMxfp4Both,
                                                             .group_sizes = kGroup32,
                                                             .hidden_multiple = 32,
                                                             .intermediate_multiple = 32});
inline constexpr KernelCard kCardCutlassNvfp4 = layout_card({.id = "cutlass.nvfp4",
                                                             .backend = "cutlass",
                                                             .summary = "NVFP4 rows, scales swizzled",
                                                             .devices = kFp4Cuda,
                                                             .schemes = kNvfp4Both,
                                                             .group_sizes = kGroup16,
                                                             .hidden_multiple = 32,
                                                             .intermediate_multiple = 32});
inline constexpr KernelCard kCardFlashInferMxfp4 = layout_card({.id = "flashinfer_cutlass.mxfp4",
                                                                .backend = "flashinfer_cutlass",
                                                                .summary = "MXFP4 with MXFP8 activations, up first",
                                                                .devices = kFp4Cuda,
                                                                .schemes = kMxfp4WithMxfp8,
                                                                .group_sizes = kGroup32,
                                                                .bias = true,
                                                                .hidden_multiple = 32,
                                                                .intermediate_multiple = 32});
inline constexpr KernelCard kCardFlashInferNvfp4 = layout_card({.id = "flashinfer_cutlass.nvfp4",
                                                                .backend = "flashinfer_cutlass",
                                                                .summary = "NVFP4, up first, scales swizzled",
                                                                .devices = kFp4Cuda,
                                                                .schemes = kNvfp4Both,
                                                                .group_sizes = kGroup16,
                                                                .bias = true,
                                                                .hidden_multiple = 32,
                                                                .intermediate_multiple = 32});
inline constexpr KernelCard kCardCuteDslNvfp4 = layout_card({.id = "cutedsl.nvfp4",
                                                             .backend = "cutedsl",
                                                             .summary = "NVFP4, 64 up and 64 gate rows interleaved",
                                                             .devices = kBlackwell,
                                                             .schemes = kNvfp4Both,
                                                             .group_sizes = kGroup16,
                                                             .hidden_multiple = 32});
inline constexpr KernelCard kCardB12xNvfp4 = layout_card({.id = "b12x.nvfp4",
                                                          .backend = "b12x",
                                                          .summary = "NVFP4, up first where activations have 16 bits",
                                                          .devices = kRtxBlackwell,
                                                          .schemes = schemes::kNvfp4,
                                                          .group_sizes = kGroup16,
                                                          .hidden_multiple = 32});
inline constexpr KernelCard kCardFlashInferB12xNvfp4 = layout_card({.id = "flashinfer_b12x.nvfp4",
                                                                    .backend = "flashinfer_b12x",
                                                                    .summary = "NVFP4, up first, scales swizzled",
                                                                    .devices = kRtxBlackwell,
                                                                    .schemes = schemes::kNvfp4,
                                                                    .group_sizes = kGroup16,
                                                                    .hidden_multiple = 32,
                                                                    .intermediate_multiple = 32});

inline constexpr KernelCard kCardAiterFp8 = layout_card({.id = "aiter.fp8",
                                                         .backend = "aiter",
                                                         .summary = "FP8 in tiles of 16 rows x 16 bytes",
                                                         .devices = kInstinct,
                                                         .schemes = kFp8BothSchemes,
                                                         .hidden_multiple = 32,
                                                         .intermediate_multiple = 32});
inline constexpr std::array kAiterGatedSchemes{schemes::kMxfp4Weight,
                                               schemes::with(schemes::kMxfp4Weight, schemes::kMxfp4Group)};
inline constexpr KernelCard kCardAiterMxfp4 = layout_card({.id = "aiter.mxfp4",
                                                           .backend = "aiter",
                                                           .summary = "MXFP4 in tiles of 16 rows x 16 bytes",
                                                           .devices = kInstinctFp4,
                                                           .schemes = kAiterGatedSchemes,
                                                           .group_sizes = kGroup32});

}  // namespace moracle
