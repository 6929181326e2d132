// AMD GPUs: AITER and the RDNA3 kernel.
#pragma once

#include <array>

#include "compat/vllm/classes/layouts.h"
#include "compat/vllm/classes/terms.h"

namespace moracle::vllm {

inline constexpr std::array kAiterDevices{rocm("gfx942"), rocm("gfx950"), rocm("gfx1250")};
inline constexpr std::array<std::string_view, 1> kAiterLibraries{"aiter"};
inline constexpr std::array kAiterFp8BlockSchemes{w(kFp8Static128BlockSym, kFp8Dynamic128Sym)};
inline constexpr std::array kAiterActivations{Fn::silu, Fn::gelu, Fn::situ, Fn::swigluoai, Fn::swigluoai_split};
inline constexpr std::array kAiterRefusals{Refusal{.rule = Rule::device,
                                                   .wanted = "the switch that turns it on, or another device",
                                                   .unless = Condition{.facts = {kAiterOn, kAiterExpertsOn}}}};
inline constexpr ExpertsClass kAiterFp8BlockExperts{.id = "vllm.AiterFp8BlockExperts",
                                                    .backend = "aiter",
                                                    .summary = "AITER FP8, 128 x 128 blocks",
                                                    .devices = kAiterDevices,
                                                    .libraries = kAiterLibraries,
                                                    .schemes = kAiterFp8BlockSchemes,
                                                    .activations = kAiterActivations,
                                                    .ungated = false,
                                                    .parallel = {.refused_all2all = kNvlink},
                                                    .refusals = kAiterRefusals,
                                                    .layouts = kAiterFp8Layouts};

inline constexpr std::array kAiterFp8ChannelSchemes{w(kFp8StaticChannelSym, kFp8DynamicTokenSym)};
inline constexpr ExpertsClass kAiterFp8ChannelExperts{.id = "vllm.AiterFp8ChannelExperts",
                                                      .backend = "aiter",
                                                      .summary = "AITER FP8, channel x token",
                                                      .devices = kAiterDevices,
                                                      .libraries = kAiterLibraries,
                                                      .schemes = kAiterFp8ChannelSchemes,
                                                      .activations = kAiterActivations,
                                                      .ungated = false,
                                                      .parallel = {.refused_all2all = kNvlink},
                                                      .refusals = kAiterRefusals,
                                                      .layouts = kAiterFp8Layouts};

inline constexpr std::array kAiterFp8TensorSchemes{w(kFp8StaticTensorSym, kFp8DynamicTensorSym),
                                                   w(kFp8StaticTensorSym, kFp8StaticTensorSym)};
inline constexpr ExpertsClass kAiterFp8TensorExperts{.id = "vllm.AiterFp8TensorExperts",
                                                     .backend = "aiter",
                                                     .summary = "AITER FP8, one scale a tensor",
                                                     .devices = kAiterDevices,
                                                     .libraries = kAiterLibraries,
                                                     .schemes = kAiterFp8TensorSchemes,
                                                     .activations = kAiterActivations,
                                                     .ungated = false,
                                                     .parallel = {.refused_all2all = kNvlink},
                                                     .refusals = kAiterRefusals,
                                                     .layouts = kAiterFp8Layouts};

inline constexpr std::array kAiterUnquantizedSchemes{kUnquantized};
inline constexpr ExpertsClass kAiterUnquantizedExperts{.id = "vllm.AiterUnquantizedExperts",
                                                       .backend = "aiter",
                                                       .summary = "AITER, unquantized",
                                                       .devices = kAiterDevices,
                                                       .libraries = kAiterLibraries,
                                                       .schemes = kAiterUnquantizedSchemes,
                                                       .activations = kAiterActivations,
                                                       .ungated = false,
                                                       .parallel = {.refused_all2all = kNvlink},
                                                       .refusals = kAiterRefusals,
                                                       .layouts = kAiterUnquantizedLayouts};

inline constexpr std::array kAiterMxfp4Schemes{w(kMxfp4Static), w(kMxfp4Static, kMxfp4Dynamic)};
inline constexpr std::array kAiterMxfp4Refusals{Refusal{.rule = Rule::device,
                                                        .wanted = "the switch that turns it on, or another device",
                                                        .unless = Condition{.facts = {kAiterOn, kAiterExpertsOn}}},
                                                Refusal{.rule = Rule::quant_scheme,
                                                        .wanted = "a scheme that this device has",
                                                        .unless = Condition{.devices = {rocm("gfx950")}}}};
inline constexpr ExpertsClass kAiterMxfp4Experts{.id = "vllm.AiterMxfp4Experts",
                                                 .backend = "aiter",
                                                 .summary = "AITER CK MXFP4, gfx950",
                                                 .devices = kAiterDevices,
                                                 .libraries = kAiterLibraries,
                                                 .schemes = kAiterMxfp4Schemes,
                                                 .activations = kAiterActivations,
                                                 .ungated = false,
                                                 .parallel = {.refused_all2all = kNvlink},
                                                 .refusals = kAiterMxfp4Refusals,
                                                 .layouts = kAiterMxfp4Layouts};

inline constexpr std::array kAiterMxfp8Devices{rocm("gfx950"), rocm("gfx1250")};
inline constexpr std::array kAiterMxfp8Schemes{w(kMxfp8Static, kMxfp8Dynamic)};
inline constexpr std::array kAiterMxfp8Refusals{
    Refusal{.rule = Rule::device,
            .wanted = "the switch that turns it on, or another device",
            .unless = Condition{.facts = {kAiterOn, kAiterExpertsOn}}},
    Refusal{.rule = Rule::activation,
            .wanted = "an activation that the kernel has",
            .order = CheckOrder::after_all,
            .unless = Condition{.activations = {Fn::silu, Fn::swigluoai_split}}},
    Refusal{.rule = Rule::activation,
            .label = "swiglu_params",
            .wanted = "activation parameters that the kernel applies",
            .order = CheckOrder::after_all,
            .when = {.activations = {Fn::swigluoai_split}},
            .unless = Condition{.alpha = 1.702F, .beta = 1.0F}}};
inline constexpr ExpertsClass kAiterMxfp8Experts{.id = "vllm.AiterMxfp8Experts",
                                                 .backend = "aiter",
                                                 .summary = "AITER MXFP8",
                                                 .devices = kAiterMxfp8Devices,
                                                 .libraries = kAiterLibraries,
                                                 .schemes = kAiterMxfp8Schemes,
                                                 .activations = kAllButRelu2,
                                                 .lora = true,
                                                 .refusals = kAiterMxfp8Refusals};

inline constexpr std::array kAiterW4A16MonolithicSchemes{w(kMxfp4Static)};
inline constexpr std::array kAiterW4A16MonolithicActivations{Fn::silu, Fn::swigluoai};
inline constexpr std::array kAiterW4A16MonolithicRoutings{Routing::grouped_sigmoid_bias, Routing::sqrtsoftplus_bias,
                                                          Routing::topk_softmax, Routing::softmax_topk_renorm};
inline constexpr std::array kAiterW4A16MonolithicRefusals{
    Refusal{.rule = Rule::device,
            .wanted = "the switch that turns it on, or another device",
            .unless = Condition{.facts = {kAiterOn}}}};
inline constexpr ExpertsClass kAiterW4A16ExpertsMonolithic{
    .id = "vllm.AiterW4A16ExpertsMonolithic",
    .backend = "aiter",
    .summary = "AITER Triton MXFP4, 16-bit activations",
    .devices = kAiterDevices,
    .libraries = kAiterLibraries,
    .schemes = kAiterW4A16MonolithicSchemes,
    .activations = kAiterW4A16MonolithicActivations,
    .ungated = false,
    .parallel = {.dp = false, .load_balancing = false, .all2all = false},
    .router = {.monolithic = true, .routings = kAiterW4A16MonolithicRoutings, .hash_routing = true},
    .refusals = kAiterW4A16MonolithicRefusals};

inline constexpr std::array kAiterW4A8MonolithicSchemes{w(kMxfp4Static, kFp8StaticTensorSym)};
inline constexpr std::array kAiterW4A8MonolithicActivations{Fn::swigluoai};
inline constexpr std::array kAiterW4A8MonolithicRoutings{Routing::topk_softmax, Routing::softmax_topk_renorm};
inline constexpr ExpertsClass kAiterW4A8ExpertsMonolithic{
    .id = "vllm.AiterW4A8ExpertsMonolithic",
    .backend = "aiter",
    .summary = "AITER Triton MXFP4, static FP8 activations",
    .devices = kAiterMxfp8Devices,
    .libraries = kAiterLibraries,
    .schemes = kAiterW4A8MonolithicSchemes,
    .activations = kAiterW4A8MonolithicActivations,
    .ungated = false,
    .parallel = {.ep = false, .dp = false, .load_balancing = false, .all2all = false},
    .router = {.monolithic = true, .routings = kAiterW4A8MonolithicRoutings},
    .refusals = kAiterW4A16MonolithicRefusals};

inline constexpr std::array kAiterW4A4MonolithicDevices{rocm("gfx1250")};
inline constexpr std::array kAiterW4A4MonolithicSchemes{w(kMxfp4Static, kMxfp4Dynamic)};
inline constexpr std::array kAiterW4A4MonolithicActivations{Fn::silu, Fn::swigluoai, Fn::swigluoai_split};
inline constexpr ExpertsClass kAiterW4A4ExpertsMonolithic{
    .id = "vllm.AiterW4A4ExpertsMonolithic",
    .backend = "aiter",
    .summary = "AITER Triton MXFP4, MXFP4 activations",
    .devices = kAiterW4A4MonolithicDevices,
    .libraries = kAiterLibraries,
    .schemes = kAiterW4A4MonolithicSchemes,
    .activations = kAiterW4A4MonolithicActivations,
    .ungated = false,
    .parallel = {.dp = false, .load_balancing = false, .all2all = false},
    .router = {.monolithic = true, .routings = kAiterW4A16MonolithicRoutings},
    .refusals = kAiterW4A16MonolithicRefusals};

inline constexpr std::array kRdna3WNA16Devices{rocm("gfx1100")};
inline constexpr std::array<std::string_view, 1> kRdna3WNA16Libraries{"rdna3_wna16"};
inline constexpr std::array kRdna3WNA16Schemes{w(kInt4Static), w(kInt4Static32)};
inline constexpr ExpertsClass kRdna3WNA16Experts{.id = "vllm.Rdna3WNA16Experts",
                                                 .backend = "rdna3",
                                                 .summary = "int4 on gfx1100",
                                                 .devices = kRdna3WNA16Devices,
                                                 .libraries = kRdna3WNA16Libraries,
                                                 .schemes = kRdna3WNA16Schemes,
                                                 .activations = kAllButRelu2,
                                                 .parallel = {.refused_all2all = kNvlink}};

}  // namespace moracle::vllm
