// FlashInfer TRT-LLM kernels: compute capability 10.x.
#pragma once

#include <array>

#include "compat/vllm/classes/layouts.h"
#include "compat/vllm/classes/terms.h"

namespace moracle::vllm {

inline constexpr std::array kTrtLlmDevices{kSm10x};
inline constexpr std::array kTrtLlmMxint4MonolithicSchemes{w(kInt4Static32)};
inline constexpr std::array kTrtLlmMxint4MonolithicActivations{Fn::silu, Fn::swigluoai};
inline constexpr std::array kTrtLlmMxint4MonolithicRoutings{
    Routing::topk_sigmoid, Routing::topk_softmax, Routing::softmax_topk_renorm, Routing::grouped_sigmoid_bias};
inline constexpr std::array kTrtLlmMxint4MonolithicRefusals{
    Refusal{.rule = Rule::device,
            .wanted = "the switch that turns it on, or another device",
            .unless = Condition{.facts = {{"VLLM_USE_FLASHINFER_MOE_INT4", "1"}}}},
    Refusal{.rule = rules::router_logits_dtype,
            .wanted = "16-bit router logits",
            .when = {.logits_dtypes = {Element::f32}},
            .unless = Condition{.routings = {Routing::grouped_sigmoid_bias}}}};
inline constexpr ExpertsClass kTrtLlmMxint4ExpertsMonolithic{
    .id = "vllm.TrtLlmMxint4ExpertsMonolithic",
    .backend = "flashinfer_trtllm",
    .summary = "int4 of group 32, routing inside",
    .devices = kTrtLlmDevices,
    .libraries = kFlashInfer,
    .schemes = kTrtLlmMxint4MonolithicSchemes,
    .activations = kTrtLlmMxint4MonolithicActivations,
    .ungated = false,
    .parallel = {.load_balancing = false, .accepted_all2all = kGatherScatter},
    .router = {.monolithic = true, .routings = kTrtLlmMxint4MonolithicRoutings},
    .refusals = kTrtLlmMxint4MonolithicRefusals,
    .layouts = kTrtLlmMxint4Layouts};

inline constexpr std::array kTrtLlmFp8MonolithicSchemes{w(kFp8Static128BlockSym, kFp8Dynamic128Sym),
                                                        w(kMxfp8Static, kMxfp8Dynamic),
                                                        w(kFp8StaticTensorSym, kFp8StaticTensorSym)};
inline constexpr std::array kTrtLlmFp8MonolithicActivations{Fn::silu, Fn::swigluoai_split, Fn::relu2_no_mul};
inline constexpr std::array kTrtLlmFp8MonolithicRoutings{Routing::grouped_sigmoid_bias,
                                                         Routing::sigmoid_bias_renorm,
                                                         Routing::topk_softmax,
                                                         Routing::softmax_topk_renorm,
                                                         Routing::sigmoid,
                                                         Routing::sigmoid_renorm,
                                                         Routing::topk_sigmoid};
inline constexpr std::array kTrtLlmFp8MonolithicLogits{Element::bf16, Element::f32};
inline constexpr std::array kTrtLlmFp8MonolithicRefusals{
    Refusal{.rule = rules::parallel_config, .wanted = "another layout over ranks", .when = {.sp = true}},
    Refusal{.rule = rules::routing,
            .wanted = "another routing",
            .when = {.routings = {Routing::topk_sigmoid}},
            .unless = Condition{.schemes = {w(kFp8StaticTensorSym, kFp8StaticTensorSym)}}},
    Refusal{.rule = Rule::activation,
            .label = "swiglu_params",
            .wanted = "activation parameters that the kernel applies",
            .order = CheckOrder::after_all,
            .when = {.activations = kUngated, .stated_activation = true}},
    Refusal{.rule = Rule::activation,
            .label = "swiglu_params",
            .wanted = "activation parameters that the kernel applies",
            .order = CheckOrder::after_all,
            .when = {.schemes = {w(kFp8StaticTensorSym, kFp8StaticTensorSym)}, .stated_activation = true}},
    Refusal{.rule = Rule::shape,
            .label = "num_experts",
            .wanted = "at most 2048 experts",
            .order = CheckOrder::after_all,
            .when = {.min_experts = 2049}}};
inline constexpr ExpertsClass kTrtLlmFp8ExpertsMonolithic{
    .id = "vllm.TrtLlmFp8ExpertsMonolithic",
    .backend = "flashinfer_trtllm",
    .summary = "FP8, routing inside",
    .devices = kTrtLlmDevices,
    .libraries = kFlashInfer,
    .schemes = kTrtLlmFp8MonolithicSchemes,
    .activations = kTrtLlmFp8MonolithicActivations,
    .parallel = {.load_balancing = false, .accepted_all2all = kGatherScatter},
    .router = {.monolithic = true,
               .routings = kTrtLlmFp8MonolithicRoutings,
               .logits_dtypes = kTrtLlmFp8MonolithicLogits},
    .refusals = kTrtLlmFp8MonolithicRefusals,
    .layouts = kTrtLlmFp8MonolithicLayouts};

inline constexpr std::array kTrtLlmFp8ModularSchemes{w(kFp8Static128BlockSym, kFp8Dynamic128Sym),
                                                     w(kMxfp8Static, kMxfp8Dynamic)};
inline constexpr std::array<std::string_view, 5> kTrtLlmFp8ModularExchanges{
    "allgather_reducescatter", "deepep_v2", "flashinfer_nvlink_two_sided", "flashinfer_all2allv",
    "flashinfer_nvlink_one_sided"};
inline constexpr std::array kTrtLlmFp8ModularRefusals{
    Refusal{.rule = Rule::activation,
            .label = "swiglu_params",
            .wanted = "activation parameters that the kernel applies",
            .order = CheckOrder::after_all,
            .when = {.activations = kUngated, .stated_activation = true}},
    Refusal{.rule = Rule::activation,
            .label = "swiglu_params",
            .wanted = "activation parameters that the kernel applies",
            .order = CheckOrder::after_all,
            .when = {.schemes = {w(kFp8StaticTensorSym, kFp8StaticTensorSym)}, .stated_activation = true}},
    Refusal{.rule = Rule::shape,
            .label = "num_experts",
            .wanted = "at most 2048 experts",
            .order = CheckOrder::after_all,
            .when = {.min_experts = 2049}}};
inline constexpr ExpertsClass kTrtLlmFp8ExpertsModular{
    .id = "vllm.TrtLlmFp8ExpertsModular",
    .backend = "flashinfer_trtllm",
    .summary = "FP8",
    .devices = kTrtLlmDevices,
    .libraries = kFlashInfer,
    .schemes = kTrtLlmFp8ModularSchemes,
    .activations = kTrtLlmFp8MonolithicActivations,
    .parallel = {.load_balancing = false, .accepted_all2all = kTrtLlmFp8ModularExchanges},
    .refusals = kTrtLlmFp8ModularRefusals,
    .layouts = kTrtLlmFp8ModularLayouts};

inline constexpr std::array kTrtLlmBf16MonolithicSchemes{kUnquantized};
inline constexpr std::array kTrtLlmBf16MonolithicActivations{Fn::silu, Fn::relu2_no_mul};
inline constexpr std::array kTrtLlmBf16MonolithicRoutings{Routing::grouped_sigmoid_bias,
                                                          Routing::topk_sigmoid,
                                                          Routing::sigmoid_bias_renorm,
                                                          Routing::topk_softmax,
                                                          Routing::sigmoid_renorm,
                                                          Routing::softmax_topk_renorm,
                                                          Routing::sigmoid};
inline constexpr std::array kTrtLlmBf16MonolithicRefusals{Refusal{.rule = Rule::shape,
                                                                  .label = "num_experts",
                                                                  .wanted = "at most 2048 experts",
                                                                  .order = CheckOrder::after_all,
                                                                  .when = {.min_experts = 2049}}};
inline constexpr ExpertsClass kTrtLlmBf16ExpertsMonolithic{
    .id = "vllm.TrtLlmBf16ExpertsMonolithic",
    .backend = "flashinfer_trtllm",
    .summary = "unquantized, routing inside",
    .devices = kTrtLlmDevices,
    .libraries = kFlashInfer,
    .schemes = kTrtLlmBf16MonolithicSchemes,
    .activations = kTrtLlmBf16MonolithicActivations,
    .parallel = {.load_balancing = false, .accepted_all2all = kGatherScatter},
    .router = {.monolithic = true, .routings = kTrtLlmBf16MonolithicRoutings},
    .refusals = kTrtLlmBf16MonolithicRefusals,
    .layouts = kTrtLlmBf16Layouts};

inline constexpr std::array<std::string_view, 2> kTrtLlmBf16ModularRefusedExchanges{"deepep_high_throughput",
                                                                                    "allgather_reducescatter"};
inline constexpr std::array kTrtLlmBf16ModularRefusals{
    Refusal{.rule = rules::parallel_config, .wanted = "another layout over ranks", .when = {.all2all = false}},
    Refusal{.rule = Rule::shape,
            .label = "num_experts",
            .wanted = "at most 2048 experts",
            .order = CheckOrder::after_all,
            .when = {.min_experts = 2049}}};
inline constexpr ExpertsClass kTrtLlmBf16ExpertsModular{
    .id = "vllm.TrtLlmBf16ExpertsModular",
    .backend = "flashinfer_trtllm",
    .summary = "unquantized",
    .devices = kTrtLlmDevices,
    .libraries = kFlashInfer,
    .schemes = kTrtLlmBf16MonolithicSchemes,
    .activations = kTrtLlmBf16MonolithicActivations,
    .parallel = {.load_balancing = false, .refused_all2all = kTrtLlmBf16ModularRefusedExchanges},
    .refusals = kTrtLlmBf16ModularRefusals,
    .layouts = kTrtLlmBf16Layouts};

inline constexpr std::array kTrtLlmBf16LoRARoutings{Routing::topk_softmax, Routing::softmax_topk_renorm};
inline constexpr ExpertsClass kTrtLlmBf16LoRAExperts{
    .id = "vllm.TrtLlmBf16LoRAExperts",
    .backend = "flashinfer_trtllm",
    .summary = "unquantized with adapters",
    .devices = kTrtLlmDevices,
    .libraries = kFlashInfer,
    .schemes = kTrtLlmBf16MonolithicSchemes,
    .activations = kSilu,
    .ungated = false,
    .parallel = {.load_balancing = false, .all2all = false},
    .router = {.monolithic = true, .routings = kTrtLlmBf16LoRARoutings, .hash_routing = true, .adjusted_routes = true},
    .lora = true,
    .layouts = kTrtLlmBf16Layouts};

inline constexpr std::array kTrtLlmMxfp4MonolithicSchemes{w(kMxfp4Static), w(kMxfp4Static, kMxfp8Dynamic)};
inline constexpr std::array kTrtLlmMxfp4MonolithicActivations{Fn::silu, Fn::swigluoai, Fn::situ};
inline constexpr std::array kTrtLlmMxfp4MonolithicRoutings{Routing::grouped_sigmoid_bias, Routing::topk_softmax,
                                                           Routing::softmax_topk_renorm};
inline constexpr ExpertsClass kTrtLlmMxfp4ExpertsMonolithic{
    .id = "vllm.TrtLlmMxfp4ExpertsMonolithic",
    .backend = "flashinfer_trtllm",
    .summary = "MXFP4, routing inside",
    .devices = kTrtLlmDevices,
    .libraries = kFlashInfer,
    .schemes = kTrtLlmMxfp4MonolithicSchemes,
    .activations = kTrtLlmMxfp4MonolithicActivations,
    .ungated = false,
    .parallel = {.dp = false, .load_balancing = false, .all2all = false},
    .router = {.monolithic = true, .routings = kTrtLlmMxfp4MonolithicRoutings},
    .layouts = kTrtLlmMxfp4Layouts};

inline constexpr ExpertsClass kTrtLlmMxfp4ExpertsModular{.id = "vllm.TrtLlmMxfp4ExpertsModular",
                                                         .backend = "flashinfer_trtllm",
                                                         .summary = "MXFP4",
                                                         .devices = kTrtLlmDevices,
                                                         .libraries = kFlashInfer,
                                                         .schemes = kTrtLlmMxfp4MonolithicSchemes,
                                                         .activations = kTrtLlmMxfp4MonolithicActivations,
                                                         .ungated = false,
                                                         .layouts = kTrtLlmMxfp4Layouts};

inline constexpr std::array<std::string_view, 4> kTrtLlmMxfp4LoRARefusedExchanges{
    "deepep_high_throughput", "flashinfer_nvlink_two_sided", "flashinfer_all2allv", "flashinfer_nvlink_one_sided"};
inline constexpr ExpertsClass kTrtLlmMxfp4LoRAExperts{.id = "vllm.TrtLlmMxfp4LoRAExperts",
                                                      .backend = "flashinfer_trtllm",
                                                      .summary = "MXFP4 with adapters",
                                                      .devices = kTrtLlmDevices,
                                                      .libraries = kFlashInfer,
                                                      .schemes = kTrtLlmMxfp4MonolithicSchemes,
                                                      .activations = kTrtLlmMxint4MonolithicActivations,
                                                      .ungated = false,
                                                      .parallel = {.refused_all2all = kTrtLlmMxfp4LoRARefusedExchanges},
                                                      .lora = true,
                                                      .layouts = kTrtLlmMxfp4Layouts};

inline constexpr std::array kTrtLlmNvFp4MonolithicSchemes{w(kNvfp4Static, kNvfp4Dynamic),
                                                          w(kNvfp4Static, kNvfp4DynamicToken)};
inline constexpr std::array kTrtLlmNvFp4MonolithicActivations{Fn::silu,      Fn::relu2_no_mul,    Fn::gelu,
                                                              Fn::gelu_tanh, Fn::swigluoai_split, Fn::situ};
inline constexpr std::array kTrtLlmNvFp4MonolithicRoutings{Routing::grouped_sigmoid_bias,
                                                           Routing::topk_sigmoid,
                                                           Routing::sigmoid_bias_renorm,
                                                           Routing::topk_softmax,
                                                           Routing::softmax_topk_renorm,
                                                           Routing::sigmoid_renorm,
                                                           Routing::sigmoid};
inline constexpr ExpertsClass kTrtLlmNvFp4ExpertsMonolithic{.id = "vllm.TrtLlmNvFp4ExpertsMonolithic",
                                                            .backend = "flashinfer_trtllm",
                                                            .summary = "NVFP4, routing inside",
                                                            .devices = kTrtLlmDevices,
                                                            .libraries = kFlashInfer,
                                                            .schemes = kTrtLlmNvFp4MonolithicSchemes,
                                                            .activations = kTrtLlmNvFp4MonolithicActivations,
                                                            .parallel = {.load_balancing = false, .all2all = false},
                                                            .router = {.monolithic = true,
                                                                       .routings = kTrtLlmNvFp4MonolithicRoutings,
                                                                       .logits_dtypes = kTrtLlmFp8MonolithicLogits},
                                                            .layouts = kTrtLlmNvFp4Layouts};

inline constexpr ExpertsClass kTrtLlmNvFp4ExpertsModular{.id = "vllm.TrtLlmNvFp4ExpertsModular",
                                                         .backend = "flashinfer_trtllm",
                                                         .summary = "NVFP4",
                                                         .devices = kTrtLlmDevices,
                                                         .libraries = kFlashInfer,
                                                         .schemes = kTrtLlmNvFp4MonolithicSchemes,
                                                         .activations = kTrtLlmNvFp4MonolithicActivations,
                                                         .layouts = kTrtLlmNvFp4Layouts};

}  // namespace moracle::vllm
