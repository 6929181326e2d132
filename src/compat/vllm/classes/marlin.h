// Marlin and Humming: weight-only kernels for NVIDIA GPUs, whatever the activations were published as.
#pragma once

#include <array>

#include "compat/vllm/classes/layouts.h"
#include "compat/vllm/classes/terms.h"

namespace moracle::vllm {

inline constexpr std::array kMarlinDevices{cuda(75)};
inline constexpr std::array kMarlinSchemes{
    any(kInt4Static),  any(kInt4Static32),       any(kInt4StaticAsym),      any(kInt4Static32Asym),
    any(kInt8Static),  any(kFp8StaticTensorSym), any(kFp8StaticChannelSym), any(kFp8Static128BlockSym),
    any(kMxfp4Static), any(kMxfp8Static),        any(kNvfp4Static)};
inline constexpr ExpertsClass kMarlinExperts{.id = "vllm.MarlinExperts",
                                             .backend = "marlin",
                                             .summary = "Marlin, weights unpacked in registers",
                                             .devices = kMarlinDevices,
                                             .schemes = kMarlinSchemes,
                                             .activations = kAllButRelu2,
                                             .parallel = {.refused_all2all = kTwoSided},
                                             .lora = true,
                                             .layouts = kMarlinLayouts};

inline constexpr ExpertsClass kBatchedMarlinExperts{.id = "vllm.BatchedMarlinExperts",
                                                    .backend = "marlin",
                                                    .summary = "Marlin, one batch an expert",
                                                    .devices = kMarlinDevices,
                                                    .schemes = kMarlinSchemes,
                                                    .activations = kAllButRelu2,
                                                    .parallel = {.refused_all2all = kTwoSided},
                                                    .activation_format = ActivationFormat::batched,
                                                    .layouts = kMarlinLayouts};

inline constexpr std::array<std::string_view, 1> kHummingLibraries{"humming"};
inline constexpr std::array kHummingSchemes{w(kInt4Static),
                                            w(kInt4Static32),
                                            w(kInt4Static32Asym),
                                            w(kInt8Static),
                                            kNarrowInt,
                                            w(kMxfp4Static),
                                            w(kNvfp4Static),
                                            w(kFp8StaticTensorSym),
                                            w(kInt8StaticChannelSym),
                                            w(kFp8StaticChannelSym),
                                            w(kFp8Static128BlockSym, kFp8Dynamic128Sym),
                                            w(kFp8StaticChannelSym, kFp8DynamicTokenSym),
                                            w(kFp8StaticChannelSym, kFp8StaticTensorSym),
                                            w(kFp8StaticTensorSym, kFp8Dynamic128Sym),
                                            w(kFp8StaticTensorSym, kFp8DynamicTokenSym),
                                            w(kFp8StaticTensorSym, kFp8StaticTensorSym),
                                            w(kInt4Static, kFp8DynamicTokenSym),
                                            w(kInt4Static32, kFp8DynamicTokenSym),
                                            w(kInt8StaticChannelSym, kInt8DynamicTokenSym),
                                            w(kMxfp8Static, kMxfp8Dynamic),
                                            w(kNvfp4Static, kNvfp4Dynamic),
                                            w(kNvfp4Static, kNvfp4DynamicToken),
                                            any(kMxfp4Static)};
inline constexpr std::array kBatchedHummingGroupedRefusals{Refusal{.rule = rules::parallel_config,
                                                                   .label = "gemm_type",
                                                                   .wanted = "the preferred way to group tokens",
                                                                   .order = CheckOrder::after_all}};
inline constexpr ExpertsClass kBatchedHummingGroupedExperts{.id = "vllm.BatchedHummingGroupedExperts",
                                                            .backend = "humming",
                                                            .summary = "Humming, grouped, one batch an expert",
                                                            .devices = kMarlinDevices,
                                                            .libraries = kHummingLibraries,
                                                            .schemes = kHummingSchemes,
                                                            .activations = kAllButRelu2,
                                                            .batch_invariant = true,
                                                            .activation_format = ActivationFormat::batched,
                                                            .refusals = kBatchedHummingGroupedRefusals};

inline constexpr std::array kHummingGroupedRefusals{
    Refusal{.rule = rules::parallel_config,
            .label = "gemm_type",
            .wanted = "the preferred way to group tokens",
            .order = CheckOrder::after_all,
            .when = {.facts = {{"VLLM_HUMMING_MOE_GEMM_TYPE", "indexed"}}}},
    Refusal{.rule = rules::parallel_config,
            .label = "gemm_type",
            .wanted = "the preferred way to group tokens",
            .order = CheckOrder::after_all,
            .when = {.facts = {{"VLLM_HUMMING_MOE_GEMM_TYPE", "grouped", false}}, .ep = false}}};
inline constexpr ExpertsClass kHummingGroupedExperts{.id = "vllm.HummingGroupedExperts",
                                                     .backend = "humming",
                                                     .summary = "Humming, grouped",
                                                     .devices = kMarlinDevices,
                                                     .libraries = kHummingLibraries,
                                                     .schemes = kHummingSchemes,
                                                     .activations = kAllButRelu2,
                                                     .batch_invariant = true,
                                                     .refusals = kHummingGroupedRefusals};

inline constexpr std::array kHummingIndexedRefusals{
    Refusal{.rule = rules::parallel_config,
            .label = "gemm_type",
            .wanted = "the preferred way to group tokens",
            .order = CheckOrder::after_all,
            .when = {.facts = {{"VLLM_HUMMING_MOE_GEMM_TYPE", "grouped"}}}},
    Refusal{.rule = rules::parallel_config,
            .label = "gemm_type",
            .wanted = "the preferred way to group tokens",
            .order = CheckOrder::after_all,
            .when = {.facts = {{"VLLM_HUMMING_MOE_GEMM_TYPE", "indexed", false}}, .ep = true}}};
inline constexpr ExpertsClass kHummingIndexedExperts{.id = "vllm.HummingIndexedExperts",
                                                     .backend = "humming",
                                                     .summary = "Humming, indexed",
                                                     .devices = kMarlinDevices,
                                                     .libraries = kHummingLibraries,
                                                     .schemes = kHummingSchemes,
                                                     .activations = kAllButRelu2,
                                                     .batch_invariant = true,
                                                     .refusals = kHummingIndexedRefusals};

}  // namespace moracle::vllm
