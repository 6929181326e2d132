// FP8 weights.
#include <array>

#include "compat/vllm/classes/amd.h"
#include "compat/vllm/classes/cutlass.h"
#include "compat/vllm/classes/flashinfer.h"
#include "compat/vllm/classes/host.h"
#include "compat/vllm/classes/marlin.h"
#include "compat/vllm/classes/triton.h"
#include "compat/vllm/classes/trtllm.h"
#include "compat/vllm/classes/xpu.h"
#include "compat/vllm/tables/guards.h"
#include "compat/vllm/tables/tables.h"

namespace moracle::vllm {
namespace {

constexpr std::array kRows{
    Row{.experts = &kXPUExpertsFp8, .why = kOrder, .backend = "XPU", .when = kOnXpu},
    Row{.experts = &kXPUExpertsMxFp8, .why = kOrder, .backend = "XPU", .when = kOnXpu},
    Row{.experts = &kXPUExpertsBlockFp8, .why = kOrder, .backend = "XPU", .when = kOnXpu},
    Row{.experts = &kCPUExpertsFp8W8A8, .why = kOrder, .backend = "CPU_W8A8", .when = kOnCpu},
    Row{.experts = &kCPUExpertsFp8, .why = kOrder, .backend = "CPU", .when = kOnCpu},
    Row{.experts = &kFlashInferExperts,
        .why = "first for 128 blocks on 9.0 under EP",
        .backend = "FLASHINFER_CUTLASS",
        .when = kSm90BlocksWithEp},
    Row{.experts = &kTritonExperts,
        .why = "first for 128 blocks on 9.0",
        .backend = "TRITON",
        .when = kSm90BlocksWithoutEp},
    Row{.experts = &kTrtLlmFp8ExpertsMonolithic,
        .why = "first over DeepEP v2",
        .backend = "FLASHINFER_TRTLLM",
        .when = kSm10xBlocksOverDeepEpV2},
    Row{.experts = &kTrtLlmFp8ExpertsModular,
        .why = "first over DeepEP v2",
        .backend = "FLASHINFER_TRTLLM",
        .when = kSm10xBlocksOverDeepEpV2},
    Row{.experts = &kAiterFp8BlockExperts, .why = kOrder, .backend = "AITER", .unless = kAiterOff},
    Row{.experts = &kAiterFp8TensorExperts, .why = kOrder, .backend = "AITER", .unless = kAiterOff},
    Row{.experts = &kAiterFp8ChannelExperts, .why = kOrder, .backend = "AITER", .unless = kAiterOff},
    Row{.experts = &kTrtLlmFp8ExpertsMonolithic,
        .why = kOrder,
        .backend = "FLASHINFER_TRTLLM",
        .unless = kSm10xBlocksOverDeepEpV2},
    Row{.experts = &kTrtLlmFp8ExpertsModular,
        .why = kOrder,
        .backend = "FLASHINFER_TRTLLM",
        .unless = kSm10xBlocksOverDeepEpV2},
    Row{.experts = &kFlashInferExperts, .why = kOrder, .backend = "FLASHINFER_CUTLASS", .unless = kSm90BlocksWithEp},
    Row{.experts = &kTritonOrDeepGemmExperts, .why = kOrder, .backend = "DEEPGEMM", .unless = kDeepGemmOff},
    Row{.experts = &kTritonOrCutlassExperts, .why = kOrder, .backend = "VLLM_CUTLASS", .unless = kCutlassNotAllowed},
    Row{.experts = &kTritonExperts, .why = kOrder, .backend = "TRITON", .unless = kSm90BlocksWithoutEp},
    Row{.experts = &kBatchedHummingGroupedExperts,
        .why = "ahead of Marlin on 9.0",
        .backend = "HUMMING",
        .when = kOnSm90},
    Row{.experts = &kHummingGroupedExperts, .why = "ahead of Marlin on 9.0", .backend = "HUMMING", .when = kOnSm90},
    Row{.experts = &kHummingIndexedExperts, .why = "ahead of Marlin on 9.0", .backend = "HUMMING", .when = kOnSm90},
    Row{.experts = &kMarlinExperts, .why = kOrder, .backend = "MARLIN"},
    Row{.experts = &kBatchedHummingGroupedExperts, .why = kOrder, .backend = "HUMMING", .unless = kOnSm90},
    Row{.experts = &kHummingGroupedExperts, .why = kOrder, .backend = "HUMMING", .unless = kOnSm90},
    Row{.experts = &kHummingIndexedExperts, .why = kOrder, .backend = "HUMMING", .unless = kOnSm90},
    Row{.experts = &kBatchedDeepGemmExperts, .why = kOrder, .backend = "BATCHED_DEEPGEMM", .unless = kDeepGemmOff},
    Row{.experts = &kCutlassBatchedExpertsFp8,
        .why = kOrder,
        .backend = "BATCHED_VLLM_CUTLASS",
        .unless = kCutlassNotAllowed},
    Row{.experts = &kBatchedTritonExperts, .why = kOrder, .backend = "BATCHED_TRITON"},
    Row{.experts = &kXPUExpertsFp8, .why = kOrder, .backend = "XPU", .unless = kOnXpu},
    Row{.experts = &kXPUExpertsMxFp8, .why = kOrder, .backend = "XPU", .unless = kOnXpu},
    Row{.experts = &kXPUExpertsBlockFp8, .why = kOrder, .backend = "XPU", .unless = kOnXpu},
    Row{.experts = &kCPUExpertsFp8W8A8, .why = kOrder, .backend = "CPU_W8A8", .unless = kOnCpu},
    Row{.experts = &kCPUExpertsFp8, .why = kOrder, .backend = "CPU", .unless = kOnCpu},
    Row{.experts = &kHPCExperts, .why = kOrder, .backend = "HPC"}};
constexpr std::array kNames{BackendName{"triton", "BATCHED_TRITON", Condition{.batched = true}},
                            BackendName{"triton", "TRITON", Condition{.batched = false}},
                            BackendName{"deep_gemm", "BATCHED_DEEPGEMM", Condition{.batched = true}},
                            BackendName{"deep_gemm", "DEEPGEMM", Condition{.batched = false}},
                            BackendName{"cutlass", "BATCHED_VLLM_CUTLASS", Condition{.batched = true}},
                            BackendName{"cutlass", "VLLM_CUTLASS", Condition{.batched = false}},
                            BackendName{"flashinfer_trtllm", "FLASHINFER_TRTLLM"},
                            BackendName{"flashinfer_cutlass", "FLASHINFER_CUTLASS"},
                            BackendName{"marlin", "MARLIN"},
                            BackendName{"humming", "HUMMING"},
                            BackendName{"aiter", "AITER"},
                            BackendName{"hpc", "HPC"}};
constexpr std::array kVerdicts{kConfiguration[0], kConfiguration[1],
                               Verdict{.code = "override_disabled:cutlass_not_allowed",
                                       .when = {.facts = {{"caller.allow_vllm_cutlass", "1", false}}},
                                       .pinned = "cutlass"}};
// A switch that is set, either way, is obeyed; its default is not.
constexpr std::array kForced{
    ForcedRule{
        .backend = "BATCHED_DEEPGEMM",
        .when = {.facts = {{"VLLM_USE_DEEP_GEMM", "1"}, {"VLLM_MOE_USE_DEEP_GEMM", "0", false}}, .batched = true}},
    ForcedRule{
        .backend = "BATCHED_DEEPGEMM",
        .when = {.facts = {{"VLLM_MOE_USE_DEEP_GEMM", "1"}, {"VLLM_USE_DEEP_GEMM", "0", false}}, .batched = true}},
    ForcedRule{
        .backend = "DEEPGEMM",
        .when = {.facts = {{"VLLM_USE_DEEP_GEMM", "1"}, {"VLLM_MOE_USE_DEEP_GEMM", "0", false}}, .batched = false}},
    ForcedRule{
        .backend = "DEEPGEMM",
        .when = {.facts = {{"VLLM_MOE_USE_DEEP_GEMM", "1"}, {"VLLM_USE_DEEP_GEMM", "0", false}}, .batched = false}},
    ForcedRule{.backend = "AITER",
               .when = {.devices = {rocm()}, .facts = {kAiterOn, kAiterExpertsOn}},
               .unless = kAiterOff.back()}};
constexpr std::array kExhausted{Exhausted{.code = "NONE", .when = {.devices = {kXpu, host()}}}, kNoBackend[0]};

}  // namespace

constinit const Table kFp8Table{
    .name = "fp8", .rows = kRows, .names = kNames, .verdicts = kVerdicts, .forced = kForced, .exhausted = kExhausted};

}  // namespace moracle::vllm
