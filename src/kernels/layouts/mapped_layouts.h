// The mapped layouts, as data. docs/layouts.md has each rule in words, with its source.
#pragma once

#include <array>

#include "kernels/layouts/mapped_layout.h"

namespace moracle::layout {

inline constexpr std::array<RowPermutation, 1> kUpFirst{swap_halves};
// up_0, gate_0, up_1, gate_1, ..., then the shuffle of each 32 rows.
inline constexpr std::array<RowPermutation, 3> kTrtLlmGated{swap_halves, interleave_halves<1>, shuffle_32};
inline constexpr std::array<RowPermutation, 1> kTrtLlmPlain{shuffle_32};
// Blocks: up above gate, not in turns.
inline constexpr std::array<RowPermutation, 2> kTrtLlmBlockGated{swap_halves, shuffle_16};
inline constexpr std::array<RowPermutation, 1> kTrtLlmBlockPlain{shuffle_16};
inline constexpr std::array<RowPermutation, 2> kCuteDslGated{swap_halves, interleave_halves<64>};
inline constexpr std::array<RowPermutation, 1> kAiterGated{interleave_halves<16>};
inline constexpr Grid kSwizzleTile{128, 4};

// Integer codes as the checkpoint's words hold them, low nibble first; two rows share a byte of zero points.
inline constexpr MappedLayout kTritonWna16{
    .name = "Triton's WNA16 layout", .sizes = {.hidden = {2}, .intermediate = {2}}, .zero = row_pairs};
// INT8 weights unmoved, two's complement; scales [out, 1], whatever rank they had on disk.
inline constexpr MappedLayout kInt8Rows{.name = "the INT8 layout", .flip = 0x80, .scale_type = ScaleType::f32};
// FP8 weights unmoved; one scale a tensor, a row, or a block.
inline constexpr MappedLayout kFp8Rows{.name = "the FP8 layout", .scale_type = ScaleType::f32};
inline constexpr MappedLayout kXpuInt4{
    .name = "the XPU int4 layout", .sizes = {.hidden = {8}, .intermediate = {8}}, .little_endian_host = true};

// 256 int4 are 128 bytes, the width of a column block.
inline constexpr MappedLayout kTrtLlmMxint4{.name = "TRT-LLM's MXINT4 layout",
                                            .flip = 8,
                                            .sizes = {.hidden = {256}, .intermediate = {256}},
                                            .w13_rows = kTrtLlmGated,
                                            .w2_rows = kTrtLlmPlain,
                                            .weight = column_blocks<256>,
                                            .scale = swizzle_128x4,
                                            .scale_multiple = kSwizzleTile,
                                            .scale_type = ScaleType::bf16,
                                            .bias = false};
inline constexpr MappedLayout kTrtLlmMxfp4{.name = "TRT-LLM's MXFP4 layout",
                                           .sizes = {.hidden = {256, true}, .intermediate = {128, true}},
                                           .w13_rows = kTrtLlmGated,
                                           .w2_rows = kTrtLlmPlain,
                                           .scale = swizzle_128x4,
                                           .scale_multiple = kSwizzleTile};
inline constexpr MappedLayout kTrtLlmNvfp4{.name = "TRT-LLM's NVFP4 layout",
                                           .sizes = {.hidden = {256, true}, .intermediate = {64, true}},
                                           .w13_rows = kTrtLlmGated,
                                           .w2_rows = kTrtLlmPlain,
                                           .scale = swizzle_128x4,
                                           .scale_multiple = kSwizzleTile,
                                           .bias = false};

// FP8. One scale a tensor: a scale for gate and one for up, whose rows take turns.
inline constexpr MappedLayout kTrtLlmFp8Tensor{.name = "TRT-LLM's per-tensor FP8 layout",
                                               .sizes = {.hidden = {32}, .intermediate = {16, true}},
                                               .w13_rows = kTrtLlmGated,
                                               .w2_rows = kTrtLlmPlain,
                                               .w13_shared_rows = kUpFirst,
                                               .scale_type = ScaleType::f32,
                                               .row_scales = false,
                                               .bias = false};
// Blocks of 128 x 128: columns in blocks of 128 bytes, block scales in rows.
inline constexpr MappedLayout kTrtLlmFp8Block{.name = "TRT-LLM's block FP8 layout",
                                              .sizes = {.hidden = {128}, .intermediate = {128}},
                                              .w13_rows = kTrtLlmBlockGated,
                                              .w2_rows = kTrtLlmBlockPlain,
                                              .w13_shared_rows = kUpFirst,
                                              .weight = column_blocks<128>,
                                              .scale_type = ScaleType::f32,
                                              .least_scale = 1e-10F,
                                              .row_scales = false,
                                              .bias = false};
inline constexpr MappedLayout kTrtLlmMxfp8{.name = "TRT-LLM's MXFP8 layout",
                                           .sizes = {.hidden = {128}, .intermediate = {128}},
                                           .w13_rows = kTrtLlmGated,
                                           .w2_rows = kTrtLlmPlain,
                                           .scale = swizzle_128x4,
                                           .scale_multiple = kSwizzleTile,
                                           .bias = false};
inline constexpr MappedLayout kFlashInferFp8Tensor{.name = "FlashInfer's CUTLASS per-tensor FP8 layout",
                                                   .sizes = {.intermediate = {16, true}},
                                                   .w13_rows = kUpFirst,
                                                   .w13_shared_rows = kUpFirst,
                                                   .scale_type = ScaleType::f32,
                                                   .row_scales = false};
inline constexpr MappedLayout kFlashInferFp8Block{.name = "FlashInfer's CUTLASS block FP8 layout",
                                                  .sizes = {.hidden = {128}, .intermediate = {128}},
                                                  .w13_rows = kUpFirst,
                                                  .w13_shared_rows = kUpFirst,
                                                  .scale_type = ScaleType::f32,
                                                  .least_scale = 1e-10F,
                                                  .row_scales = false};

// Unquantized.
inline constexpr MappedLayout kTritonValues{.name = "Triton's unquantized layout"};
inline constexpr MappedLayout kFlashInferValues{.name = "FlashInfer's CUTLASS unquantized layout",
                                                .w13_rows = kUpFirst};
// 64 numbers of 16 bits are 128 bytes.
inline constexpr MappedLayout kTrtLlmValues{.name = "TRT-LLM's bf16 layout",
                                            .sizes = {.hidden = {64}, .intermediate = {128}},
                                            .w13_rows = kTrtLlmGated,
                                            .w2_rows = kTrtLlmPlain,
                                            .weight = column_blocks<64>,
                                            .bias = false};
inline constexpr MappedLayout kAiterValues{.name = "AITER's unquantized layout",
                                           .sizes = {.hidden = {32}, .intermediate = {32}},
                                           .weight = tiles_of_16_rows<8>,
                                           .bias = false};

// FP4 codes unmoved but for the order of gate and up, block scales swizzled.
inline constexpr MappedLayout kCutlassFp4{.name = "the CUTLASS FP4 layout",
                                          .sizes = {.hidden = {32}, .intermediate = {32}},
                                          .scale = swizzle_128x4,
                                          .scale_multiple = kSwizzleTile,
                                          .bias = false};
inline constexpr MappedLayout kFlashInferFp4{.name = "FlashInfer's CUTLASS FP4 layout",
                                             .sizes = {.hidden = {32}, .intermediate = {32}},
                                             .w13_rows = kUpFirst,
                                             .scale = swizzle_128x4,
                                             .scale_multiple = kSwizzleTile};
inline constexpr MappedLayout kCuteDslNvfp4{.name = "the CuTe DSL NVFP4 layout",
                                            .sizes = {.hidden = {32}, .intermediate = {64, true}},
                                            .w13_rows = kCuteDslGated,
                                            .scale = swizzle_128x4,
                                            .scale_multiple = kSwizzleTile,
                                            .bias = false};
inline constexpr MappedLayout kB12xNvfp4{.name = "the b12x NVFP4 layout",
                                         .sizes = {.hidden = {32}, .intermediate = {64, true}},
                                         .w13_rows = kUpFirst,
                                         .scale = swizzle_128x4,
                                         .scale_multiple = kSwizzleTile,
                                         .bias = false};
// The same with quantized activations: gate over up.
inline constexpr MappedLayout kB12xNvfp4Gated{.name = "the b12x NVFP4 layout of quantized activations",
                                              .sizes = {.hidden = {32}, .intermediate = {64, true}},
                                              .scale = swizzle_128x4,
                                              .scale_multiple = kSwizzleTile,
                                              .bias = false};

// AITER: tiles of 16 rows, 16 bytes of each row together.
inline constexpr MappedLayout kAiterFp8{.name = "AITER's FP8 layout",
                                        .sizes = {.hidden = {32}, .intermediate = {32}},
                                        .weight = tiles_of_16_rows<16>,
                                        .scale_type = ScaleType::f32,
                                        .bias = false};
inline constexpr MappedLayout kAiterMxfp4{.name = "AITER's MXFP4 layout",
                                          .sizes = {.hidden = {256, true}, .intermediate = {128, true}},
                                          .weight = tiles_of_16_rows<32>,
                                          .scale = tiles_32x8,
                                          .scale_multiple = {32, 8},
                                          .bias = false};
// 16-bit activations: blocks of 16 gate and 16 up rows take turns.
inline constexpr MappedLayout kAiterMxfp4Gated{.name = "AITER's gated MXFP4 layout",
                                               .sizes = {.hidden = {256, true}, .intermediate = {128, true}},
                                               .w13_rows = kAiterGated,
                                               .weight = tiles_of_16_rows<32>,
                                               .scale = tiles_32x8,
                                               .scale_multiple = {32, 8},
                                               .bias = false};

}  // namespace moracle::layout
