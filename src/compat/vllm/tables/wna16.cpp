// Integer weights with 16-bit activations, and the state before Triton came back.
#include <array>

#include "compat/vllm/classes/amd.h"
#include "compat/vllm/classes/host.h"
#include "compat/vllm/classes/marlin.h"
#include "compat/vllm/classes/triton.h"
#include "compat/vllm/classes/trtllm.h"
#include "compat/vllm/classes/xpu.h"
#include "compat/vllm/tables/guards.h"
#include "compat/vllm/tables/tables.h"

namespace moracle::vllm {
namespace {

// Before a backend is asked at all: what the checkpoint holds and who packed it.
constexpr std::array kTrtllmSource{Refusal{.rule = Rule::zero_points,
                                           .label = "zp_or_bias",
                                           .wanted = "neither zero points nor a bias",
                                           .when = {.zero_points = true}},
                                   Refusal{.rule = Rule::zero_points,
                                           .label = "zp_or_bias",
                                           .wanted = "neither zero points nor a bias",
                                           .when = {.facts = {{"caller.may_have_bias", "1"}}}}};
constexpr std::array kRdna3Source{
    Refusal{.rule = Rule::source_layout,
            .label = "ct_only",
            .wanted = "compressed-tensors",
            .unless = Condition{.source_layouts = {"CT"}}},
    Refusal{.rule = Rule::zero_points, .label = "zp", .wanted = "no zero points", .when = {.zero_points = true}},
    Refusal{
        .rule = Rule::bias, .label = "bias", .wanted = "no bias", .when = {.facts = {{"caller.may_have_bias", "1"}}}},
    Refusal{
        .rule = Rule::act_order, .label = "act_order", .wanted = "columns in group order", .when = {.act_order = true}},
    Refusal{.rule = Rule::quant_scheme,
            .label = "not_group_strategy",
            .wanted = "groups along the inputs",
            .when = {.source_groups = {-1}}}};
constexpr std::array kTritonSource{
    Refusal{
        .rule = Rule::bias, .label = "bias", .wanted = "no bias", .when = {.facts = {{"caller.may_have_bias", "1"}}}},
    Refusal{.rule = Rule::source_layout,
            .label = "awq_layout",
            .wanted = "another layout than AWQ",
            .when = {.source_layouts = {"AWQ"}}},
    Refusal{.rule = Rule::act_order,
            .label = "act_order",
            .wanted = "columns in group order",
            .when = {.act_order = true}}};
constexpr std::array kZenSource{
    Refusal{.rule = Rule::device,
            .label = "env_disabled",
            .wanted = "the kernel switched on",
            .when = {.facts = {{"VLLM_CPU_INT4_W4A8", "0"}}}},
    Refusal{.rule = Rule::zero_points, .label = "zp", .wanted = "no zero points", .when = {.zero_points = true}},
    Refusal{.rule = Rule::source_layout,
            .label = "moe_wna16_layout",
            .wanted = "another layout than MoeWNA16",
            .when = {.source_layouts = {"MoeWNA16"}}},
    Refusal{
        .rule = Rule::act_order, .label = "act_order", .wanted = "columns in group order", .when = {.act_order = true}},
    Refusal{.rule = Rule::quant_scheme,
            .label = "not_group",
            .wanted = "groups along the inputs",
            .when = {.source_groups = {-1}}},
    Refusal{.rule = Rule::quant_scheme,
            .label = "not_group",
            .wanted = "groups along the inputs",
            .when = {.source_layouts = {"QUARK"}}},
    Refusal{
        .rule = Rule::shape, .label = "group_mod4", .wanted = "groups of a multiple of 4", .when = {.group_off = 4}}};
constexpr std::array kEmulationSource{Refusal{.rule = Rule::source_layout,
                                              .label = "moe_wna16_layout",
                                              .wanted = "another layout than MoeWNA16",
                                              .when = {.source_layouts = {"MoeWNA16"}}}};
// Tiles of 64 columns a group; publishers that allow padding only need whole groups.
constexpr std::array kMarlinSource{
    Refusal{.rule = Rule::source_layout,
            .label = "moe_wna16_layout",
            .wanted = "another layout than MoeWNA16",
            .when = {.source_layouts = {"MoeWNA16"}}},
    Refusal{.rule = Rule::shape,
            .label = "marlin_shape_or_group",
            .wanted = "sizes and groups that fill the tiles",
            .when = {.devices = {rocm()}}},
    Refusal{.rule = Rule::shape,
            .label = "marlin_shape_or_group",
            .wanted = "sizes and groups that fill the tiles",
            .when = {.source_layouts = {"QUARK"}}},
    Refusal{.rule = Rule::shape,
            .label = "marlin_shape_or_group",
            .wanted = "sizes and groups that fill the tiles",
            .unless = Condition{.source_groups = {-1, 32, 64, 128}}},
    Refusal{.rule = Rule::shape,
            .label = "marlin_shape_or_group",
            .wanted = "sizes and groups that fill the tiles",
            .when = {.hidden_off = 128}},
    Refusal{.rule = Rule::shape,
            .label = "marlin_shape_or_group",
            .wanted = "sizes and groups that fill the tiles",
            .when = {.facts = {{"caller.allow_tile_padding", "1", false}},
                     .source_groups = {-1, 32, 64},
                     .intermediate_off = 64}},
    Refusal{.rule = Rule::shape,
            .label = "marlin_shape_or_group",
            .wanted = "sizes and groups that fill the tiles",
            .when = {.source_groups = {128}, .intermediate_off = 128}},
    Refusal{.rule = Rule::shape,
            .label = "marlin_shape_or_group",
            .wanted = "sizes and groups that fill the tiles",
            .when = {.facts = {{"caller.allow_tile_padding", "1"}}, .source_groups = {32}, .intermediate_off = 32}},
    Refusal{.rule = Rule::shape,
            .label = "marlin_shape_or_group",
            .wanted = "sizes and groups that fill the tiles",
            .when = {.facts = {{"caller.allow_tile_padding", "1"}}, .source_groups = {64}, .intermediate_off = 64}}};
constexpr std::array kRows{
    Row{.experts = &kRdna3WNA16Experts,
        .why = kOrder,
        .backend = "RDNA3",
        .when = kOnCudaOrRocm,
        .refusals = kRdna3Source},
    Row{.experts = &kTrtLlmMxint4ExpertsMonolithic,
        .why = kOrder,
        .backend = "FLASHINFER_TRTLLM",
        .when = kOnCudaOrRocm,
        .refusals = kTrtllmSource},
    Row{.experts = &kBatchedHummingGroupedExperts,
        .why = "ahead of Marlin on 9.0",
        .backend = "HUMMING",
        .when = kOnSm90},
    Row{.experts = &kHummingGroupedExperts, .why = "ahead of Marlin on 9.0", .backend = "HUMMING", .when = kOnSm90},
    Row{.experts = &kHummingIndexedExperts, .why = "ahead of Marlin on 9.0", .backend = "HUMMING", .when = kOnSm90},
    Row{.experts = &kMarlinExperts,
        .why = kOrder,
        .backend = "MARLIN",
        .when = kOnCudaOrRocm,
        .refusals = kMarlinSource},
    Row{.experts = &kBatchedMarlinExperts,
        .why = kOrder,
        .backend = "BATCHED_MARLIN",
        .when = kOnCudaOrRocm,
        .refusals = kMarlinSource},
    Row{.experts = &kTritonWNA16Experts,
        .why = kOrder,
        .backend = "TRITON",
        .when = kOnCudaOrRocm,
        .refusals = kTritonSource},
    Row{.experts = &kBatchedHummingGroupedExperts,
        .why = kOrder,
        .backend = "HUMMING",
        .when = kOnCudaOrRocm,
        .unless = kOnSm90},
    Row{.experts = &kHummingGroupedExperts,
        .why = kOrder,
        .backend = "HUMMING",
        .when = kOnCudaOrRocm,
        .unless = kOnSm90},
    Row{.experts = &kHummingIndexedExperts,
        .why = kOrder,
        .backend = "HUMMING",
        .when = kOnCudaOrRocm,
        .unless = kOnSm90},
    Row{.experts = &kInt4EmulationTritonExperts,
        .why = kOrder,
        .backend = "EMULATION",
        .when = kOnCudaOrRocm,
        .refusals = kEmulationSource},
    Row{.experts = &kXPUExpertsWNA16, .why = kOrder, .backend = "XPU", .when = kOnXpu},
    Row{.experts = &kZentorchExpertsInt4, .why = kOrder, .backend = "ZEN_CPU", .when = kOnCpu, .refusals = kZenSource},
    Row{.experts = &kCPUExpertsInt4, .why = kOrder, .backend = "CPU", .when = kOnCpu}};
constexpr std::array kNames{BackendName{"rdna3", "RDNA3"},     BackendName{"flashinfer_trtllm", "FLASHINFER_TRTLLM"},
                            BackendName{"marlin", "MARLIN"},   BackendName{"triton", "TRITON"},
                            BackendName{"humming", "HUMMING"}, BackendName{"emulation", "EMULATION"}};
// The order after the Triton backend was backed out: no look at zero points, biases or who packed the checkpoint.
constexpr std::array kRevertedRows{
    Row{.experts = &kTrtLlmMxint4ExpertsMonolithic, .why = kOrder, .backend = "FLASHINFER_TRTLLM"},
    Row{.experts = &kMarlinExperts, .why = kOrder, .backend = "MARLIN"},
    Row{.experts = &kBatchedMarlinExperts, .why = kOrder, .backend = "BATCHED_MARLIN"}};
constexpr std::array kRevertedNames{BackendName{"flashinfer_trtllm", "FLASHINFER_TRTLLM"},
                                    BackendName{"marlin", "MARLIN"}};

}  // namespace

constinit const Table kWna16Table{
    .name = "wna16", .rows = kRows, .names = kNames, .verdicts = kConfiguration, .exhausted = kNoBackend};
constinit const Table kWna16RevertedTable{.name = "wna16_reverted",
                                          .rows = kRevertedRows,
                                          .names = kRevertedNames,
                                          .verdicts = kConfiguration,
                                          .exhausted = kNoBackend};

}  // namespace moracle::vllm
