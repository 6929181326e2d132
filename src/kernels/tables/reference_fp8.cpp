// FP8 weights.
#include <array>

#include "kernels/foreign/amd.card.h"
#include "kernels/foreign/cutlass.card.h"
#include "kernels/foreign/flashinfer.card.h"
#include "kernels/foreign/host.card.h"
#include "kernels/foreign/marlin.card.h"
#include "kernels/foreign/triton.card.h"
#include "kernels/foreign/trtllm.card.h"
#include "kernels/foreign/xpu.card.h"
#include "kernels/tables/reference_guards.h"
#include "kernels/tables/reference_tables.h"

namespace moracle {
namespace {

using namespace reference;

constexpr std::array kRows{
    TableRow{.card = &reference::kCardXPUExpertsFp8, .why = kOrder, .backend = "XPU", .when = kOnXpu},
    TableRow{.card = &reference::kCardXPUExpertsMxFp8, .why = kOrder, .backend = "XPU", .when = kOnXpu},
    TableRow{.card = &reference::kCardXPUExpertsBlockFp8, .why = kOrder, .backend = "XPU", .when = kOnXpu},
    TableRow{.card = &reference::kCardCPUExpertsFp8W8A8, .why = kOrder, .backend = "CPU_W8A8", .when = kOnCpu},
    TableRow{.card = &reference::kCardCPUExpertsFp8, .why = kOrder, .backend = "CPU", .when = kOnCpu},
    TableRow{.card = &reference::kCardFlashInferExperts,
             .why = "first for 128 blocks on 9.0 under EP",
             .backend = "FLASHINFER_CUTLASS",
             .when = kSm90BlocksWithEp},
    TableRow{.card = &reference::kCardTritonExperts,
             .why = "first for 128 blocks on 9.0",
             .backend = "TRITON",
             .when = kSm90BlocksWithoutEp},
    TableRow{.card = &reference::kCardTrtLlmFp8ExpertsMonolithic,
             .why = "first over DeepEP v2",
             .backend = "FLASHINFER_TRTLLM",
             .when = kSm10xBlocksOverDeepEpV2},
    TableRow{.card = &reference::kCardTrtLlmFp8ExpertsModular,
             .why = "first over DeepEP v2",
             .backend = "FLASHINFER_TRTLLM",
             .when = kSm10xBlocksOverDeepEpV2},
    TableRow{.card = &reference::kCardAiterFp8BlockExperts, .why = kOrder, .backend = "AITER", .unless = kAiterOff},
    TableRow{.card = &reference::kCardAiterFp8TensorExperts, .why = kOrder, .backend = "AITER", .unless = kAiterOff},
    TableRow{.card = &reference::kCardAiterFp8ChannelExperts, .why = kOrder, .backend = "AITER", .unless = kAiterOff},
    TableRow{.card = &reference::kCardTrtLlmFp8ExpertsMonolithic,
             .why = kOrder,
             .backend = "FLASHINFER_TRTLLM",
             .unless = kSm10xBlocksOverDeepEpV2},
    TableRow{.card = &reference::kCardTrtLlmFp8ExpertsModular,
             .why = kOrder,
             .backend = "FLASHINFER_TRTLLM",
             .unless = kSm10xBlocksOverDeepEpV2},
    TableRow{.card = &reference::kCardFlashInferExperts,
             .why = kOrder,
             .backend = "FLASHINFER_CUTLASS",
             .unless = kSm90BlocksWithEp},
    TableRow{
        .card = &reference::kCardTritonOrDeepGemmExperts, .why = kOrder, .backend = "DEEPGEMM", .unless = kDeepGemmOff},
    TableRow{.card = &reference::kCardTritonOrCutlassExperts,
             .why = kOrder,
             .backend = "VLLM_CUTLASS",
             .unless = kCutlassNotAllowed},
    TableRow{
        .card = &reference::kCardTritonExperts, .why = kOrder, .backend = "TRITON", .unless = kSm90BlocksWithoutEp},
    TableRow{.card = &reference::kCardBatchedHummingGroupedExperts,
             .why = "ahead of Marlin on 9.0",
             .backend = "HUMMING",
             .when = kOnSm90},
    TableRow{.card = &reference::kCardHummingGroupedExperts,
             .why = "ahead of Marlin on 9.0",
             .backend = "HUMMING",
             .when = kOnSm90},
    TableRow{.card = &reference::kCardHummingIndexedExperts,
             .why = "ahead of Marlin on 9.0",
             .backend = "HUMMING",
             .when = kOnSm90},
    TableRow{.card = &reference::kCardMarlinExperts, .why = kOrder, .backend = "MARLIN"},
    TableRow{
        .card = &reference::kCardBatchedHummingGroupedExperts, .why = kOrder, .backend = "HUMMING", .unless = kOnSm90},
    TableRow{.card = &reference::kCardHummingGroupedExperts, .why = kOrder, .backend = "HUMMING", .unless = kOnSm90},
    TableRow{.card = &reference::kCardHummingIndexedExperts, .why = kOrder, .backend = "HUMMING", .unless = kOnSm90},
    TableRow{.card = &reference::kCardBatchedDeepGemmExperts,
             .why = kOrder,
             .backend = "BATCHED_DEEPGEMM",
             .unless = kDeepGemmOff},
    TableRow{.card = &reference::kCardCutlassBatchedExpertsFp8,
             .why = kOrder,
             .backend = "BATCHED_VLLM_CUTLASS",
             .unless = kCutlassNotAllowed},
    TableRow{.card = &reference::kCardBatchedTritonExperts, .why = kOrder, .backend = "BATCHED_TRITON"},
    TableRow{.card = &reference::kCardXPUExpertsFp8, .why = kOrder, .backend = "XPU", .unless = kOnXpu},
    TableRow{.card = &reference::kCardXPUExpertsMxFp8, .why = kOrder, .backend = "XPU", .unless = kOnXpu},
    TableRow{.card = &reference::kCardXPUExpertsBlockFp8, .why = kOrder, .backend = "XPU", .unless = kOnXpu},
    TableRow{.card = &reference::kCardCPUExpertsFp8W8A8, .why = kOrder, .backend = "CPU_W8A8", .unless = kOnCpu},
    TableRow{.card = &reference::kCardCPUExpertsFp8, .why = kOrder, .backend = "CPU", .unless = kOnCpu},
    TableRow{.card = &reference::kCardHPCExperts, .why = kOrder, .backend = "HPC"}};
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

constinit const Table kReferenceFp8{.name = "fp8",
                                    .rows = kRows,
                                    .names = kNames,
                                    .emulation_in_place = true,
                                    .verdicts = kVerdicts,
                                    .forced = kForced,
                                    .exhausted = kExhausted};

}  // namespace moracle
