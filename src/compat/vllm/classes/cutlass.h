// CUTLASS kernels of vLLM itself, DeepGEMM, HPC and MoonEP.
#pragma once

#include <array>

#include "compat/vllm/classes/layouts.h"
#include "compat/vllm/classes/terms.h"

namespace moracle::vllm {

inline constexpr std::array kTritonOrCutlassDevices{kSm90, kSm10x};
inline constexpr std::array kTritonOrCutlassSchemes{w(kFp8StaticChannelSym, kFp8DynamicTokenSym),
                                                    w(kFp8StaticTensorSym, kFp8DynamicTensorSym),
                                                    w(kFp8StaticTensorSym, kFp8StaticTensorSym)};
inline constexpr ExpertsClass kTritonOrCutlassExperts{.id = "vllm.TritonOrCutlassExperts",
                                                      .backend = "cutlass",
                                                      .summary = "FP8 CUTLASS, Triton for small batches",
                                                      .devices = kTritonOrCutlassDevices,
                                                      .schemes = kTritonOrCutlassSchemes,
                                                      .activations = kAllButRelu2,
                                                      .ungated = false,
                                                      .parallel = {.refused_all2all = kNvlink}};

inline constexpr ExpertsClass kCutlassBatchedExpertsFp8{.id = "vllm.CutlassBatchedExpertsFp8",
                                                        .backend = "cutlass",
                                                        .summary = "FP8 CUTLASS, one batch an expert",
                                                        .devices = kTritonOrCutlassDevices,
                                                        .schemes = kTritonOrCutlassSchemes,
                                                        .activations = kAllButRelu2,
                                                        .ungated = false,
                                                        .activation_format = ActivationFormat::batched};

inline constexpr std::array kCutlassFp4Devices{kSm10x, cuda(110, 119), kSm12x};
inline constexpr std::array kCutlassFp4Schemes{w(kNvfp4Static, kNvfp4Dynamic)};
inline constexpr std::array<std::string_view, 4> kCutlassFp4RefusedExchanges{
    "flashinfer_nvlink_two_sided", "flashinfer_all2allv", "flashinfer_nvlink_one_sided", "deepep_high_throughput"};
inline constexpr ExpertsClass kCutlassExpertsFp4{.id = "vllm.CutlassExpertsFp4",
                                                 .backend = "cutlass",
                                                 .summary = "NVFP4 CUTLASS",
                                                 .devices = kCutlassFp4Devices,
                                                 .schemes = kCutlassFp4Schemes,
                                                 .activations = kAllButRelu2,
                                                 .batch_invariant = true,
                                                 .parallel = {.refused_all2all = kCutlassFp4RefusedExchanges},
                                                 .layouts = kCutlassFp4Layouts};

inline constexpr std::array kCutlassMxfp4Devices{kSm10x};
inline constexpr std::array kCutlassMxfp4Schemes{w(kMxfp4Static, kMxfp4Dynamic)};
inline constexpr ExpertsClass kCutlassExpertsMxfp4{.id = "vllm.CutlassExpertsMxfp4",
                                                   .backend = "cutlass",
                                                   .summary = "MXFP4 CUTLASS, both operands",
                                                   .devices = kCutlassMxfp4Devices,
                                                   .schemes = kCutlassMxfp4Schemes,
                                                   .activations = kEveryActivation,
                                                   .batch_invariant = true,
                                                   .parallel = {.refused_all2all = kCutlassFp4RefusedExchanges},
                                                   .layouts = kCutlassMxfp4Layouts};

inline constexpr std::array kCutlassW4A8Fp8Devices{kSm90};
inline constexpr std::array kCutlassW4A8Fp8Schemes{w(kInt4Static, kFp8DynamicTokenSym)};
inline constexpr std::array kCutlassW4A8Fp8Refusals{Refusal{.rule = rules::dtype,
                                                            .label = "dtype",
                                                            .wanted = "another type at the edge",
                                                            .order = CheckOrder::before_all,
                                                            .when = {.dtypes = {Element::f16, Element::f32}}}};
inline constexpr ExpertsClass kCutlassExpertsW4A8Fp8{.id = "vllm.CutlassExpertsW4A8Fp8",
                                                     .backend = "cutlass",
                                                     .summary = "int4 weights, FP8 activations",
                                                     .devices = kCutlassW4A8Fp8Devices,
                                                     .schemes = kCutlassW4A8Fp8Schemes,
                                                     .activations = kEveryActivation,
                                                     .ungated = false,
                                                     .refusals = kCutlassW4A8Fp8Refusals};

inline constexpr std::array kDeepGemmDevices{kSm90, kSm10x, kSm12x};
inline constexpr std::array<std::string_view, 1> kDeepGemmLibraries{"deep_gemm"};
inline constexpr std::array kDeepGemmSchemes{w(kFp8Static128BlockSym, kFp8Dynamic128Sym),
                                             w(kMxfp8Static, kMxfp8Dynamic)};
inline constexpr std::array kDeepGemmActivations{Fn::silu, Fn::swiglustep, Fn::swigluoai_split};
inline constexpr std::array kDeepGemmRefusals{
    Refusal{.rule = Rule::device,
            .wanted = "the switch that turns it on, or another device",
            .unless = Condition{.facts = {{"VLLM_USE_DEEP_GEMM", "0", false}}}},
    Refusal{.rule = Rule::quant_scheme,
            .wanted = "a scheme that this device has",
            .when = {.schemes = {any(kMxfp8Static)}},
            .unless = Condition{.devices = {kSm10x}}}};
inline constexpr ExpertsClass kDeepGemmExperts{.id = "vllm.DeepGemmExperts",
                                               .backend = "deep_gemm",
                                               .summary = "DeepGEMM FP8 and MXFP8",
                                               .devices = kDeepGemmDevices,
                                               .libraries = kDeepGemmLibraries,
                                               .schemes = kDeepGemmSchemes,
                                               .activations = kDeepGemmActivations,
                                               .ungated = false,
                                               .parallel = {.refused_all2all = kNvlink},
                                               .refusals = kDeepGemmRefusals};

inline constexpr std::array kTritonOrDeepGemmSchemes{w(kFp8Static128BlockSym, kFp8Dynamic128Sym)};
inline constexpr std::array kTritonOrDeepGemmRefusals{
    Refusal{.rule = Rule::device,
            .wanted = "the switch that turns it on, or another device",
            .unless = Condition{.facts = {{"VLLM_USE_DEEP_GEMM", "0", false}}}}};
inline constexpr ExpertsClass kTritonOrDeepGemmExperts{.id = "vllm.TritonOrDeepGemmExperts",
                                                       .backend = "deep_gemm",
                                                       .summary = "DeepGEMM FP8, Triton for small batches",
                                                       .devices = kDeepGemmDevices,
                                                       .libraries = kDeepGemmLibraries,
                                                       .schemes = kTritonOrDeepGemmSchemes,
                                                       .activations = kDeepGemmActivations,
                                                       .ungated = false,
                                                       .parallel = {.refused_all2all = kNvlink},
                                                       .refusals = kTritonOrDeepGemmRefusals};

inline constexpr ExpertsClass kBatchedDeepGemmExperts{.id = "vllm.BatchedDeepGemmExperts",
                                                      .backend = "deep_gemm",
                                                      .summary = "DeepGEMM FP8, one batch an expert",
                                                      .devices = kDeepGemmDevices,
                                                      .libraries = kDeepGemmLibraries,
                                                      .schemes = kTritonOrDeepGemmSchemes,
                                                      .activations = kSilu,
                                                      .ungated = false,
                                                      .activation_format = ActivationFormat::batched,
                                                      .refusals = kTritonOrDeepGemmRefusals};

inline constexpr std::array kDeepGemmFP4Devices{kSm10x, kSm12x};
inline constexpr std::array kDeepGemmFP4Schemes{w(kMxfp4Static, kFp8Dynamic128Sym)};
inline constexpr std::array kDeepGemmFP4Activations{Fn::silu, Fn::swiglustep, Fn::situ};
inline constexpr ExpertsClass kDeepGemmFP4Experts{.id = "vllm.DeepGemmFP4Experts",
                                                  .backend = "deep_gemm",
                                                  .summary = "DeepGEMM MXFP4 weights, FP8 activations",
                                                  .devices = kDeepGemmFP4Devices,
                                                  .libraries = kDeepGemmLibraries,
                                                  .schemes = kDeepGemmFP4Schemes,
                                                  .activations = kDeepGemmFP4Activations,
                                                  .ungated = false,
                                                  .parallel = {.refused_all2all = kNvlink},
                                                  .refusals = kTritonOrDeepGemmRefusals};

inline constexpr std::array<std::string_view, 1> kHPCLibraries{"hpc"};
inline constexpr std::array kHPCSchemes{w(kFp8Static128BlockSym, kFp8Dynamic128Sym),
                                        w(kFp8StaticTensorSym, kFp8StaticTensorSym)};
inline constexpr std::array kHPCRefusals{
    Refusal{.rule = Rule::shape, .wanted = "a hidden size in multiples of 128", .when = {.hidden_off = 128}}};
inline constexpr ExpertsClass kHPCExperts{.id = "vllm.HPCExperts",
                                          .backend = "hpc",
                                          .summary = "HPC FP8",
                                          .devices = kCutlassW4A8Fp8Devices,
                                          .libraries = kHPCLibraries,
                                          .schemes = kHPCSchemes,
                                          .activations = kSilu,
                                          .batch_invariant = true,
                                          .ungated = false,
                                          .refusals = kHPCRefusals};

inline constexpr std::array kMoonEPDevices{cuda()};
inline constexpr std::array kMoonEPSchemes{kUnquantized};
inline constexpr ExpertsClass kMoonEPExperts{.id = "vllm.MoonEPExperts",
                                             .backend = "moonep",
                                             .summary = "MoonEP, unquantized",
                                             .devices = kMoonEPDevices,
                                             .schemes = kMoonEPSchemes,
                                             .activations = kSilu,
                                             .ungated = false};

}  // namespace moracle::vllm
