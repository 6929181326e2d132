// CPUs. vLLM's quantized x86 kernels all need AMX tiles.
#pragma once

#include <array>

#include "compat/vllm/classes/terms.h"

namespace moracle::vllm {

inline constexpr std::array kCPUInt4Devices{host(static_cast<CpuFeatures>(CpuFeature::amx_tile))};
inline constexpr std::array kCPUInt4Schemes{w(kInt4Static)};
inline constexpr std::array kCPUInt4Activations{Fn::silu, Fn::gelu_tanh};
inline constexpr std::array kCPUInt4Routings{Routing::softmax_topk, Routing::topk_softmax};
inline constexpr ExpertsClass kCPUExpertsInt4{
    .id = "vllm.CPUExpertsInt4",
    .backend = "cpu",
    .summary = "int4, AMX",
    .devices = kCPUInt4Devices,
    .schemes = kCPUInt4Schemes,
    .activations = kCPUInt4Activations,
    .router = {.monolithic = true, .routings = kCPUInt4Routings, .hash_routing = true, .adjusted_routes = true}};

inline constexpr std::array kCPUFp8Schemes{w(kFp8Static128BlockSym, kFp8Dynamic128Sym)};
inline constexpr std::array kCPUFp8Activations{Fn::silu, Fn::gelu, Fn::gelu_tanh};
inline constexpr std::array kCPUFp8Routings{Routing::grouped_sigmoid_bias, Routing::sqrtsoftplus_bias,
                                            Routing::softmax_topk, Routing::topk_softmax, Routing::softmax_topk_renorm};
inline constexpr ExpertsClass kCPUExpertsFp8{
    .id = "vllm.CPUExpertsFp8",
    .backend = "cpu",
    .summary = "FP8 blocks, 16-bit activations, AMX",
    .devices = kCPUInt4Devices,
    .schemes = kCPUFp8Schemes,
    .activations = kCPUFp8Activations,
    .router = {.monolithic = true, .routings = kCPUFp8Routings, .hash_routing = true, .adjusted_routes = true}};

inline constexpr std::array kCPUFp8W8A8Devices{host(static_cast<CpuFeatures>(CpuFeature::amx_fp8))};
inline constexpr ExpertsClass kCPUExpertsFp8W8A8{
    .id = "vllm.CPUExpertsFp8W8A8",
    .backend = "cpu",
    .summary = "FP8 blocks, both operands, AMX-FP8",
    .devices = kCPUFp8W8A8Devices,
    .schemes = kCPUFp8Schemes,
    .activations = kCPUInt4Activations,
    .router = {.monolithic = true, .routings = kCPUFp8Routings, .hash_routing = true, .adjusted_routes = true}};

inline constexpr std::array kCPUInt8Schemes{w(kInt8StaticChannelSym, kInt8DynamicTokenSym)};
inline constexpr std::array kCPUInt8Refusals{Refusal{.rule = Rule::shape,
                                                     .wanted = "a hidden size in multiples of 32",
                                                     .order = CheckOrder::after_all,
                                                     .when = {.hidden_off = 32}}};
inline constexpr ExpertsClass kCPUExpertsInt8{
    .id = "vllm.CPUExpertsInt8",
    .backend = "cpu",
    .summary = "INT8, AMX",
    .devices = kCPUInt4Devices,
    .schemes = kCPUInt8Schemes,
    .activations = kCPUInt4Activations,
    .router = {.monolithic = true, .routings = kCPUInt4Routings, .hash_routing = true, .adjusted_routes = true},
    .refusals = kCPUInt8Refusals};

inline constexpr std::array kCPUMxfp4Schemes{w(kMxfp4Static)};
inline constexpr std::array kCPUMxfp4Activations{Fn::silu, Fn::swigluoai, Fn::gelu, Fn::gelu_tanh};
inline constexpr std::array kCPUMxfp4Routings{Routing::sqrtsoftplus_bias, Routing::softmax_topk, Routing::topk_softmax,
                                              Routing::softmax_topk_renorm};
inline constexpr ExpertsClass kCPUExpertsMxfp4{
    .id = "vllm.CPUExpertsMxfp4",
    .backend = "cpu",
    .summary = "MXFP4, AMX",
    .devices = kCPUInt4Devices,
    .schemes = kCPUMxfp4Schemes,
    .activations = kCPUMxfp4Activations,
    .router = {.monolithic = true, .routings = kCPUMxfp4Routings, .hash_routing = true, .adjusted_routes = true}};

inline constexpr std::array kX86CPUUnquantizedSchemes{kUnquantized};
inline constexpr std::array kX86CPUUnquantizedActivations{Fn::silu, Fn::gelu, Fn::gelu_tanh, Fn::swigluoai};
inline constexpr std::array kX86CPUUnquantizedRefusals{Refusal{.rule = rules::dtype,
                                                               .label = "dtype",
                                                               .wanted = "another type at the edge",
                                                               .order = CheckOrder::after_all,
                                                               .when = {.dtypes = {Element::f16, Element::f32}}},
                                                       Refusal{.rule = Rule::shape,
                                                               .wanted = "a hidden size in multiples of 32",
                                                               .order = CheckOrder::after_all,
                                                               .when = {.hidden_off = 32}}};
inline constexpr ExpertsClass kX86CPUUnquantizedExperts{.id = "vllm.X86CPUUnquantizedExperts",
                                                        .backend = "cpu",
                                                        .summary = "unquantized, AMX",
                                                        .devices = kCPUInt4Devices,
                                                        .schemes = kX86CPUUnquantizedSchemes,
                                                        .activations = kX86CPUUnquantizedActivations,
                                                        .refusals = kX86CPUUnquantizedRefusals};

inline constexpr std::array kArmCPUUnquantizedDevices{host_arch("aarch64")};
inline constexpr std::array kArmCPUUnquantizedRefusals{Refusal{.rule = rules::dtype,
                                                               .label = "dtype",
                                                               .wanted = "another type at the edge",
                                                               .order = CheckOrder::after_all,
                                                               .when = {.dtypes = {Element::f16, Element::f32}}}};
inline constexpr ExpertsClass kArmCPUUnquantizedExperts{.id = "vllm.ArmCPUUnquantizedExperts",
                                                        .backend = "cpu",
                                                        .summary = "unquantized, Arm",
                                                        .devices = kArmCPUUnquantizedDevices,
                                                        .schemes = kX86CPUUnquantizedSchemes,
                                                        .activations = kX86CPUUnquantizedActivations,
                                                        .refusals = kArmCPUUnquantizedRefusals};

inline constexpr std::array kPowerCPUUnquantizedDevices{host_arch("ppc64le")};
inline constexpr std::array kPowerCPUUnquantizedRefusals{Refusal{.rule = rules::dtype,
                                                                 .label = "dtype",
                                                                 .wanted = "another type at the edge",
                                                                 .order = CheckOrder::after_all,
                                                                 .when = {.dtypes = {Element::f16, Element::f32}}},
                                                         Refusal{.rule = Rule::shape,
                                                                 .wanted = "a hidden size in multiples of 16",
                                                                 .order = CheckOrder::after_all,
                                                                 .when = {.hidden_off = 16}}};
inline constexpr ExpertsClass kPowerCPUUnquantizedExperts{.id = "vllm.PowerCPUUnquantizedExperts",
                                                          .backend = "cpu",
                                                          .summary = "unquantized, POWER",
                                                          .devices = kPowerCPUUnquantizedDevices,
                                                          .schemes = kX86CPUUnquantizedSchemes,
                                                          .activations = kX86CPUUnquantizedActivations,
                                                          .refusals = kPowerCPUUnquantizedRefusals};

inline constexpr std::array kCPUUnquantizedDevices{host()};
// zentorch takes any hidden size.
inline constexpr std::array kCPUUnquantizedRefusals{Refusal{.rule = Rule::shape,
                                                            .wanted = "a hidden size in multiples of 32",
                                                            .order = CheckOrder::after_all,
                                                            .when = {.hidden_off = 32},
                                                            .unless = Condition{.libraries = {"zentorch"}}}};
inline constexpr ExpertsClass kCPUUnquantizedExperts{.id = "vllm.CPUUnquantizedExperts",
                                                     .backend = "cpu",
                                                     .summary = "unquantized, any CPU",
                                                     .devices = kCPUUnquantizedDevices,
                                                     .schemes = kX86CPUUnquantizedSchemes,
                                                     .activations = kX86CPUUnquantizedActivations,
                                                     .refusals = kCPUUnquantizedRefusals};

inline constexpr std::array kZenCPUInt8Devices{host_arch("x86_64")};
inline constexpr std::array<std::string_view, 1> kZenCPUInt8Libraries{"zentorch"};
inline constexpr ExpertsClass kZenCPUExpertsInt8{
    .id = "vllm.ZenCPUExpertsInt8",
    .backend = "cpu",
    .summary = "INT8, zentorch",
    .devices = kZenCPUInt8Devices,
    .libraries = kZenCPUInt8Libraries,
    .schemes = kCPUInt8Schemes,
    .activations = kEveryActivation,
    .parallel = {.ep = false},
    .router = {.monolithic = true, .routings = kCPUInt4Routings, .hash_routing = true, .adjusted_routes = true}};

inline constexpr std::array<std::string_view, 1> kArmCPUInt8Libraries{"cpu_int8"};
inline constexpr std::array kArmCPUInt8Refusals{Refusal{.rule = Rule::shape,
                                                        .wanted = "a hidden size in multiples of 32",
                                                        .order = CheckOrder::after_all,
                                                        .when = {.hidden_off = 32}},
                                                Refusal{.rule = Rule::shape,
                                                        .wanted = "an intermediate size in multiples of 32",
                                                        .order = CheckOrder::after_all,
                                                        .when = {.intermediate_off = 32}}};
inline constexpr ExpertsClass kArmCPUExpertsInt8{.id = "vllm.ArmCPUExpertsInt8",
                                                 .backend = "cpu",
                                                 .summary = "INT8, Arm",
                                                 .devices = kArmCPUUnquantizedDevices,
                                                 .libraries = kArmCPUInt8Libraries,
                                                 .schemes = kCPUInt8Schemes,
                                                 .activations = kX86CPUUnquantizedActivations,
                                                 .parallel = {.ep = false},
                                                 .refusals = kArmCPUInt8Refusals};

inline constexpr std::array kPowerCPUInt8Refusals{Refusal{.rule = Rule::shape,
                                                          .wanted = "a hidden size in multiples of 16",
                                                          .order = CheckOrder::after_all,
                                                          .when = {.hidden_off = 16}},
                                                  Refusal{.rule = rules::dtype,
                                                          .label = "dtype",
                                                          .wanted = "another type at the edge",
                                                          .order = CheckOrder::after_all,
                                                          .when = {.dtypes = {Element::f16, Element::f32}}}};
inline constexpr ExpertsClass kPowerCPUExpertsInt8{.id = "vllm.PowerCPUExpertsInt8",
                                                   .backend = "cpu",
                                                   .summary = "INT8, POWER",
                                                   .devices = kPowerCPUUnquantizedDevices,
                                                   .libraries = kArmCPUInt8Libraries,
                                                   .schemes = kCPUInt8Schemes,
                                                   .activations = kX86CPUUnquantizedActivations,
                                                   .parallel = {.ep = false},
                                                   .refusals = kPowerCPUInt8Refusals};

inline constexpr std::array kZentorchInt4Schemes{w(kInt4Static), w(kInt4Static32)};
inline constexpr std::array kZentorchInt4Refusals{Refusal{.rule = rules::dtype,
                                                          .label = "dtype",
                                                          .wanted = "another type at the edge",
                                                          .order = CheckOrder::after_all,
                                                          .when = {.dtypes = {Element::f16, Element::f32}}},
                                                  Refusal{.rule = Rule::shape,
                                                          .label = "topk",
                                                          .wanted = "two or more experts a token",
                                                          .order = CheckOrder::after_all,
                                                          .when = {.max_top_k = 1}}};
inline constexpr ExpertsClass kZentorchExpertsInt4{
    .id = "vllm.ZentorchExpertsInt4",
    .backend = "cpu",
    .summary = "int4, zentorch",
    .devices = kZenCPUInt8Devices,
    .libraries = kZenCPUInt8Libraries,
    .schemes = kZentorchInt4Schemes,
    .activations = kX86CPUUnquantizedActivations,
    .parallel = {.ep = false},
    .router = {.monolithic = true, .hash_routing = true, .adjusted_routes = true},
    .refusals = kZentorchInt4Refusals};

inline constexpr std::array kCPUInt4DynamicSchemes{w(kInt4W4A8StaticGroup128Sym), w(kInt4W4A8StaticGroup64Sym),
                                                   w(kInt4W4A8StaticGroup32Sym), w(kInt4W4A8StaticGroupSym),
                                                   w(kInt8StaticChannelSym)};
inline constexpr std::array kCPUInt4DynamicActivations{Fn::silu, Fn::swigluoai, Fn::swiglustep};
inline constexpr ExpertsClass kCPUExpertsInt4Dynamic{
    .id = "vllm.CPUExpertsInt4.dynamic",
    .backend = "cpu",
    .summary = "int4 with dynamic INT8 activations, Arm",
    .devices = kArmCPUUnquantizedDevices,
    .schemes = kCPUInt4DynamicSchemes,
    .activations = kCPUInt4DynamicActivations,
    .parallel = {.ep = false, .all2all = false},
    .router = {.monolithic = true, .routings = kCPUInt4Routings, .hash_routing = true, .adjusted_routes = true}};

}  // namespace moracle::vllm
