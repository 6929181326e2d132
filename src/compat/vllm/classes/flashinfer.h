// FlashInfer kernels besides TRT-LLM, and b12x.
#pragma once

#include <array>

#include "compat/vllm/classes/layouts.h"
#include "compat/vllm/classes/terms.h"

namespace moracle::vllm {

inline constexpr std::array kFlashInferDevices{kSm90, kSm10x, kSm12x};
inline constexpr std::array kFlashInferSchemes{kUnquantized,
                                               w(kFp8StaticTensorSym, kFp8StaticTensorSym),
                                               w(kFp8Static128BlockSym, kFp8Dynamic128Sym),
                                               w(kMxfp4Static),
                                               w(kMxfp4Static, kMxfp8Dynamic),
                                               w(kNvfp4Static, kNvfp4Dynamic)};
inline constexpr std::array kFlashInferActivations{Fn::silu, Fn::gelu_tanh, Fn::swigluoai, Fn::swigluoai_split,
                                                   Fn::relu2_no_mul};
inline constexpr std::array kFlashInferRefusals{
    Refusal{.rule = Rule::quant_scheme,
            .wanted = "a scheme that this device has",
            .when = {.devices = {cuda(91)}, .schemes = {w(kFp8Static128BlockSym, kFp8Dynamic128Sym), w(kMxfp4Static)}}},
    Refusal{.rule = Rule::quant_scheme,
            .wanted = "a scheme that this device has",
            .when = {.devices = {cuda(0, 99)},
                     .schemes = {w(kMxfp4Static, kMxfp8Dynamic), w(kNvfp4Static, kNvfp4Dynamic)}}}};
inline constexpr ExpertsClass kFlashInferExperts{.id = "vllm.FlashInferExperts",
                                                 .backend = "flashinfer_cutlass",
                                                 .summary = "FlashInfer CUTLASS",
                                                 .devices = kFlashInferDevices,
                                                 .libraries = kFlashInfer,
                                                 .schemes = kFlashInferSchemes,
                                                 .activations = kFlashInferActivations,
                                                 .refusals = kFlashInferRefusals};

inline constexpr std::array kFlashInferCuteDSLDevices{kSm10x};
inline constexpr std::array kFlashInferCuteDSLSchemes{w(kNvfp4Static, kNvfp4Dynamic),
                                                      w(kNvfp4Static, kNvfp4DynamicToken)};
inline constexpr std::array kFlashInferCuteDSLActivations{Fn::silu, Fn::swigluoai, Fn::swigluoai_split,
                                                          Fn::relu2_no_mul, Fn::situ};
inline constexpr ExpertsClass kFlashInferCuteDSLExperts{.id = "vllm.FlashInferCuteDSLExperts",
                                                        .backend = "flashinfer_cutedsl",
                                                        .summary = "NVFP4 in CuTe DSL",
                                                        .devices = kFlashInferCuteDSLDevices,
                                                        .libraries = kFlashInfer,
                                                        .schemes = kFlashInferCuteDSLSchemes,
                                                        .activations = kFlashInferCuteDSLActivations,
                                                        .layouts = kCuteDslLayouts};

inline constexpr std::array kFlashInferCuteDSLBatchedSchemes{w(kNvfp4Static, kNvfp4Dynamic)};
inline constexpr ExpertsClass kFlashInferCuteDSLBatchedExperts{.id = "vllm.FlashInferCuteDSLBatchedExperts",
                                                               .backend = "flashinfer_cutedsl",
                                                               .summary = "NVFP4 in CuTe DSL, one batch an expert",
                                                               .devices = kFlashInferCuteDSLDevices,
                                                               .libraries = kFlashInfer,
                                                               .schemes = kFlashInferCuteDSLBatchedSchemes,
                                                               .activations = kSilu,
                                                               .ungated = false,
                                                               .activation_format = ActivationFormat::batched,
                                                               .layouts = kCuteDslLayouts};

inline constexpr std::array kFlashInferB12xDevices{kSm12x};
inline constexpr std::array kFlashInferB12xSchemes{w(kNvfp4Static, kNvfp4Dynamic), w(kNvfp4Static)};
inline constexpr std::array kFlashInferB12xActivations{Fn::silu, Fn::gelu_tanh, Fn::relu2_no_mul};
inline constexpr ExpertsClass kFlashInferB12xExperts{
    .id = "vllm.FlashInferB12xExperts",
    .backend = "flashinfer_b12x",
    .summary = "NVFP4 on 12.x; 16-bit activations are quantized inside the kernel",
    .devices = kFlashInferB12xDevices,
    .libraries = kFlashInfer,
    .schemes = kFlashInferB12xSchemes,
    .activations = kFlashInferB12xActivations,
    .parallel = {.ep = false, .all2all = false},
    .layouts = kFlashInferB12xLayouts};

inline constexpr std::array<std::string_view, 1> kB12xLibraries{"b12x"};
inline constexpr std::array kB12xSchemes{w(kMxfp4Static, kMxfp8Dynamic), w(kMxfp4Static),
                                         w(kNvfp4Static, kNvfp4Dynamic), w(kNvfp4Static, kMxfp8Dynamic),
                                         w(kNvfp4Static)};
inline constexpr std::array kB12xActivations{Fn::silu, Fn::situ, Fn::swigluoai_split, Fn::relu2_no_mul};
inline constexpr std::array kB12xRefusals{
    Refusal{.rule = Rule::bias,
            .label = "bias",
            .wanted = "no bias",
            .order = CheckOrder::before_all,
            .when = {.bias = true}},
    Refusal{.rule = rules::dtype,
            .label = "dtype",
            .wanted = "another type at the edge",
            .order = CheckOrder::before_all,
            .when = {.dtypes = {Element::f32}}},
    Refusal{.rule = Rule::activation,
            .wanted = "an activation that the kernel has",
            .order = CheckOrder::before_all,
            .when = {.schemes = {w(kMxfp4Static, kMxfp8Dynamic), w(kNvfp4Static, kMxfp8Dynamic)}},
            .unless = Condition{.activations = {Fn::silu, Fn::situ}}},
    Refusal{.rule = Rule::shape,
            .wanted = "a hidden size in multiples of 256",
            .order = CheckOrder::before_all,
            .when = {.schemes = {w(kMxfp4Static, kMxfp8Dynamic), w(kNvfp4Static, kMxfp8Dynamic)}, .hidden_off = 256}},
    Refusal{.rule = Rule::shape,
            .wanted = "an intermediate size in multiples of 32",
            .order = CheckOrder::before_all,
            .when = {.intermediate_off = 32}}};
inline constexpr ExpertsClass kB12xExperts{.id = "vllm.B12xExperts",
                                           .backend = "b12x",
                                           .summary = "MXFP4 and NVFP4 on 12.x",
                                           .devices = kFlashInferB12xDevices,
                                           .libraries = kB12xLibraries,
                                           .schemes = kB12xSchemes,
                                           .activations = kB12xActivations,
                                           .parallel = {.ep = false, .all2all = false},
                                           .refusals = kB12xRefusals};

inline constexpr std::array kFlashInferMoeEpSchemes{any(kMxfp4Static), any(kNvfp4Static)};
inline constexpr std::array<std::string_view, 2> kFlashInferMoeEpRefusedExchanges{"deepep_low_latency", "nixl_ep"};
inline constexpr Refusal kNeedsExpertParallelism{
    .rule = rules::parallel_config, .wanted = "another layout over ranks", .when = {.ep = false}};
inline constexpr Refusal kFlashInferMoeEpBias{
    .rule = Rule::bias, .label = "bias", .wanted = "no bias", .order = CheckOrder::after_all, .when = {.bias = true}};
inline constexpr Refusal kFlashInferMoeEpDtype{.rule = rules::dtype,
                                               .label = "dtype",
                                               .wanted = "another type at the edge",
                                               .order = CheckOrder::after_all,
                                               .when = {.dtypes = {Element::f16, Element::f32}}};
inline constexpr std::array kFlashInferMoeEpRefusals{kNeedsExpertParallelism,
                                                     Refusal{.rule = Rule::quant_scheme,
                                                             .label = "a16_nvfp4",
                                                             .wanted = "quantized activations",
                                                             .order = CheckOrder::after_all,
                                                             .when = {.schemes = {w(kNvfp4Static)}}},
                                                     kFlashInferMoeEpBias, kFlashInferMoeEpDtype};
inline constexpr ExpertsClass kFlashInferMoeEpExperts{.id = "vllm.FlashInferMoeEpExperts",
                                                      .backend = "flashinfer_moe_ep_cutedsl",
                                                      .summary = "dispatch, experts and combine in one launch",
                                                      .devices = kFlashInferCuteDSLDevices,
                                                      .libraries = kFlashInfer,
                                                      .schemes = kFlashInferMoeEpSchemes,
                                                      .activations = kSilu,
                                                      .ungated = false,
                                                      .parallel = {.refused_all2all = kFlashInferMoeEpRefusedExchanges},
                                                      .any_activation_format = true,
                                                      .refusals = kFlashInferMoeEpRefusals};

// The same class over DeepGEMM, whose kernel multiplies by the routes' weights as DeepSeek-V4 does.
inline constexpr std::array kFlashInferMoeEpDeepGemmRefusals{
    kNeedsExpertParallelism, kFlashInferMoeEpDtype, kFlashInferMoeEpBias,
    Refusal{.rule = rules::routing,
            .wanted = "the routing of DeepSeek-V4",
            .order = CheckOrder::after_all,
            .unless = Condition{.routings = {Routing::sqrtsoftplus_bias}}}};
inline constexpr ExpertsClass kFlashInferMoeEpExpertsDeepGemm = [] {
  ExpertsClass experts = kFlashInferMoeEpExperts;
  experts.id = "vllm.FlashInferMoeEpExperts.deep_gemm";
  experts.backend = "flashinfer_moe_ep_mega_deep_gemm";
  experts.refusals = kFlashInferMoeEpDeepGemmRefusals;
  return experts;
}();

}  // namespace moracle::vllm
