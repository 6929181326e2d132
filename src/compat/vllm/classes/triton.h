// Triton kernels, the emulations built on them, and the triton_kernels of OpenAI.
#pragma once

#include <array>

#include "compat/vllm/classes/layouts.h"
#include "compat/vllm/classes/terms.h"

namespace moracle::vllm {

inline constexpr std::array kTritonSchemes{kUnquantized,
                                           w(kInt8StaticChannelSym, kInt8DynamicTokenSym),
                                           w(kInt8StaticTensorSym, kInt8DynamicTensorSym),
                                           kFp8AnyBlock128,
                                           w(kFp8StaticChannelSym, kFp8DynamicTokenSym),
                                           w(kFp8StaticTensorSym, kFp8DynamicTokenSym),
                                           w(kFp8StaticTensorSym, kFp8StaticTensorSym),
                                           w(kFp8StaticTensorSym, kFp8DynamicTensorSym)};
inline constexpr std::array kTritonRefusals{Refusal{.rule = Rule::quant_scheme,
                                                    .wanted = "a scheme that this device has",
                                                    .when = {.devices = {cuda(0, 88)}, .schemes = kFp8Weights}},
                                            Refusal{.rule = Rule::shape,
                                                    .label = "num_experts",
                                                    .wanted = "at most 992 experts",
                                                    .order = CheckOrder::after_all,
                                                    .when = {.devices = {cuda(), rocm()}, .min_experts = 993}}};
inline constexpr ExpertsClass kTritonExperts{.id = "vllm.TritonExperts",
                                             .backend = "triton",
                                             .summary = "Triton, unquantized, FP8 and INT8",
                                             .devices = kAllGpus,
                                             .schemes = kTritonSchemes,
                                             .activations = kAllButRelu2,
                                             .batch_invariant = true,
                                             .parallel = {.refused_all2all = kNvlink},
                                             .lora = true,
                                             .refusals = kTritonRefusals,
                                             .layouts = kTritonLayouts};

inline constexpr std::array kBatchedTritonSchemes{kUnquantized,
                                                  w(kFp8Static128BlockSym, kFp8Dynamic128Sym),
                                                  w(kFp8StaticChannelSym, kFp8DynamicTokenSym),
                                                  w(kFp8StaticTensorSym, kFp8DynamicTokenSym),
                                                  w(kFp8StaticTensorSym, kFp8StaticTensorSym),
                                                  w(kFp8StaticTensorSym, kFp8DynamicTensorSym)};
inline constexpr std::array kBatchedTritonRefusals{
    Refusal{.rule = Rule::activation,
            .wanted = "an activation that the kernel has",
            .when = {.devices = {kXpu}, .activations = {Fn::situ, Fn::swiglustep, Fn::swigluoai_split}}},
    Refusal{
        .rule = Rule::quant_scheme,
        .wanted = "a scheme that this device has",
        .when = {.schemes = kFp8Weights},
        .unless = Condition{.devices = {cuda(89), rocm("gfx942"), rocm("gfx950"), rocm("gfx1201"), rocm("gfx1250")}}}};
inline constexpr ExpertsClass kBatchedTritonExperts{.id = "vllm.BatchedTritonExperts",
                                                    .backend = "triton",
                                                    .summary = "Triton, one batch an expert",
                                                    .devices = kAllGpus,
                                                    .schemes = kBatchedTritonSchemes,
                                                    .activations = kAllButRelu2,
                                                    .activation_format = ActivationFormat::batched,
                                                    .refusals = kBatchedTritonRefusals,
                                                    .layouts = kBatchedTritonLayouts};

inline constexpr std::array kTritonWNA16Schemes{any(kInt4Static), any(kInt4Static32), any(kInt4StaticAsym),
                                                any(kInt4Static32Asym), any(kInt8Static)};
inline constexpr std::array kTritonWNA16Activations{
    Fn::silu,       Fn::gelu,        Fn::gelu_tanh,   Fn::swigluoai,        Fn::swigluoai_split,
    Fn::swiglustep, Fn::silu_no_mul, Fn::gelu_no_mul, Fn::gelu_tanh_no_mul, Fn::relu2_no_mul};
inline constexpr std::array kTritonWNA16Refusals{Refusal{.rule = Rule::shape,
                                                         .label = "num_experts",
                                                         .wanted = "at most 992 experts",
                                                         .order = CheckOrder::after_all,
                                                         .when = {.devices = {cuda(), rocm()}, .min_experts = 993}}};
inline constexpr ExpertsClass kTritonWNA16Experts{.id = "vllm.TritonWNA16Experts",
                                                  .backend = "triton",
                                                  .summary = "Triton, integer weights",
                                                  .devices = kAllGpus,
                                                  .schemes = kTritonWNA16Schemes,
                                                  .activations = kTritonWNA16Activations,
                                                  .batch_invariant = true,
                                                  .parallel = {.refused_all2all = kNvlink},
                                                  .lora = true,
                                                  .refusals = kTritonWNA16Refusals,
                                                  .layouts = kTritonWNA16Layouts};

inline constexpr std::array kInt4EmulationTritonDevices{cuda(), rocm()};
inline constexpr std::array kInt4EmulationTritonSchemes{w(kInt4Static), w(kInt4Static32), w(kInt4StaticAsym),
                                                        w(kInt4Static32Asym)};
inline constexpr ExpertsClass kInt4EmulationTritonExperts{.id = "vllm.Int4EmulationTritonExperts",
                                                          .backend = "emulation",
                                                          .summary = "int4 dequantized on the fly",
                                                          .emulation = true,
                                                          .devices = kInt4EmulationTritonDevices,
                                                          .schemes = kInt4EmulationTritonSchemes,
                                                          .activations = kAllButRelu2,
                                                          .batch_invariant = true,
                                                          .parallel = {.refused_all2all = kNvlink},
                                                          .lora = true,
                                                          .refusals = kTritonWNA16Refusals};

inline constexpr std::array kMxfp8EmulationTritonDevices{cuda(), rocm(), kXpu, host()};
inline constexpr std::array kMxfp8EmulationTritonSchemes{w(kMxfp8Static, kMxfp8Dynamic)};
inline constexpr ExpertsClass kMxfp8EmulationTritonExperts{.id = "vllm.Mxfp8EmulationTritonExperts",
                                                           .backend = "emulation",
                                                           .summary = "MXFP8 dequantized on the fly",
                                                           .emulation = true,
                                                           .devices = kMxfp8EmulationTritonDevices,
                                                           .schemes = kMxfp8EmulationTritonSchemes,
                                                           .activations = kAllButRelu2,
                                                           .batch_invariant = true,
                                                           .parallel = {.refused_all2all = kNvlink},
                                                           .lora = true,
                                                           .refusals = kTritonWNA16Refusals};

inline constexpr std::array kMxfp8NativeTritonDevices{rocm("gfx950"), rocm("gfx1250")};
inline constexpr ExpertsClass kMxfp8NativeTritonExperts{.id = "vllm.Mxfp8NativeTritonExperts",
                                                        .backend = "triton",
                                                        .summary = "Triton, MXFP8 in hardware",
                                                        .devices = kMxfp8NativeTritonDevices,
                                                        .schemes = kMxfp8EmulationTritonSchemes,
                                                        .activations = kAllButRelu2,
                                                        .batch_invariant = true,
                                                        .parallel = {.refused_all2all = kNvlink},
                                                        .lora = true,
                                                        .refusals = kTritonWNA16Refusals};

inline constexpr std::array kNvfp4QuantizationEmulationTritonSchemes{w(kNvfp4Static, kNvfp4Dynamic)};
inline constexpr std::array kNvfp4QuantizationEmulationTritonRefusals{
    Refusal{.rule = rules::lora, .wanted = "no adapters", .order = CheckOrder::before_all, .when = {.lora = true}},
    Refusal{.rule = Rule::bias,
            .label = "bias",
            .wanted = "no bias",
            .order = CheckOrder::before_all,
            .when = {.bias = true}},
    Refusal{.rule = Rule::shape,
            .label = "num_experts",
            .wanted = "at most 992 experts",
            .order = CheckOrder::after_all,
            .when = {.devices = {cuda(), rocm()}, .min_experts = 993}}};
inline constexpr ExpertsClass kNvfp4QuantizationEmulationTritonExperts{
    .id = "vllm.Nvfp4QuantizationEmulationTritonExperts",
    .backend = "emulation",
    .summary = "NVFP4 weights and activations emulated",
    .emulation = true,
    .devices = kAllGpus,
    .schemes = kNvfp4QuantizationEmulationTritonSchemes,
    .activations = kAllButRelu2,
    .batch_invariant = true,
    .parallel = {.refused_all2all = kNvlink},
    .lora = true,
    .refusals = kNvfp4QuantizationEmulationTritonRefusals};

inline constexpr std::array kOcpMxQuantizationEmulationTritonSchemes{any(kMxfp4Static)};
inline constexpr std::array kOcpMxQuantizationEmulationTritonRefusals{
    Refusal{.rule = rules::library,
            .label = "library",
            .wanted = "the library that emulates",
            .order = CheckOrder::before_all,
            .unless = Condition{.libraries = {"quark"}}},
    Refusal{.rule = Rule::shape,
            .label = "num_experts",
            .wanted = "at most 992 experts",
            .order = CheckOrder::after_all,
            .when = {.devices = {cuda(), rocm()}, .min_experts = 993}}};
inline constexpr ExpertsClass kOcpMxQuantizationEmulationTritonExperts{
    .id = "vllm.OCP_MXQuantizationEmulationTritonExperts",
    .backend = "emulation",
    .summary = "any OCP MX scheme emulated",
    .emulation = true,
    .devices = kAllGpus,
    .schemes = kOcpMxQuantizationEmulationTritonSchemes,
    .activations = kAllButRelu2,
    .batch_invariant = true,
    .parallel = {.refused_all2all = kNvlink},
    .lora = true,
    .refusals = kOcpMxQuantizationEmulationTritonRefusals};

inline constexpr std::array kOAITritonMxfp4MonolithicDevices{cuda(90, 129),  rocm("gfx90a"),  rocm("gfx942"),
                                                             rocm("gfx950"), rocm("gfx1100"), rocm("gfx1201")};
inline constexpr std::array<std::string_view, 1> kOAITritonMxfp4MonolithicLibraries{"triton_kernels"};
inline constexpr std::array kOAITritonMxfp4MonolithicSchemes{w(kMxfp4Static)};
inline constexpr std::array kOAITritonMxfp4MonolithicActivations{Fn::swigluoai};
inline constexpr std::array kOAITritonMxfp4MonolithicRoutings{Routing::topk_softmax, Routing::softmax_topk_renorm};
inline constexpr ExpertsClass kOAITritonMxfp4ExpertsMonolithic{
    .id = "vllm.OAITritonMxfp4ExpertsMonolithic",
    .backend = "triton",
    .summary = "triton_kernels MXFP4, routing inside",
    .devices = kOAITritonMxfp4MonolithicDevices,
    .libraries = kOAITritonMxfp4MonolithicLibraries,
    .schemes = kOAITritonMxfp4MonolithicSchemes,
    .activations = kOAITritonMxfp4MonolithicActivations,
    .ungated = false,
    .parallel = {.dp = false, .load_balancing = false, .all2all = false},
    .router = {.monolithic = true, .routings = kOAITritonMxfp4MonolithicRoutings}};

inline constexpr ExpertsClass kOAITritonExperts{.id = "vllm.OAITritonExperts",
                                                .backend = "triton",
                                                .summary = "triton_kernels MXFP4",
                                                .devices = kOAITritonMxfp4MonolithicDevices,
                                                .libraries = kOAITritonMxfp4MonolithicLibraries,
                                                .schemes = kOAITritonMxfp4MonolithicSchemes,
                                                .activations = kOAITritonMxfp4MonolithicActivations,
                                                .ungated = false};

inline constexpr std::array kUnfusedOAITritonActivations{Fn::silu, Fn::gelu, Fn::swigluoai, Fn::swigluoai_split,
                                                         Fn::swiglustep};
inline constexpr ExpertsClass kUnfusedOAITritonExperts{.id = "vllm.UnfusedOAITritonExperts",
                                                       .backend = "triton_unfused",
                                                       .summary = "triton_kernels MXFP4, activation apart",
                                                       .devices = kOAITritonMxfp4MonolithicDevices,
                                                       .libraries = kOAITritonMxfp4MonolithicLibraries,
                                                       .schemes = kOAITritonMxfp4MonolithicSchemes,
                                                       .activations = kUnfusedOAITritonActivations,
                                                       .ungated = false,
                                                       .lora = true};

}  // namespace moracle::vllm
