// MXFP8 weights and activations.
#include <array>

#include "compat/vllm/classes/amd.h"
#include "compat/vllm/classes/cutlass.h"
#include "compat/vllm/classes/marlin.h"
#include "compat/vllm/classes/triton.h"
#include "compat/vllm/classes/trtllm.h"
#include "compat/vllm/classes/xpu.h"
#include "compat/vllm/tables/guards.h"
#include "compat/vllm/tables/tables.h"

namespace moracle::vllm {
namespace {

constexpr std::array kRows{
    Row{.experts = &kTrtLlmFp8ExpertsMonolithic, .why = kOrder, .backend = "FLASHINFER_TRTLLM"},
    Row{.experts = &kTrtLlmFp8ExpertsModular, .why = kOrder, .backend = "FLASHINFER_TRTLLM"},
    Row{.experts = &kDeepGemmExperts, .why = kOrder, .backend = "DEEPGEMM"},
    Row{.experts = &kBatchedHummingGroupedExperts,
        .why = "ahead of Marlin on 9.0",
        .backend = "HUMMING",
        .when = kOnSm90},
    Row{.experts = &kHummingGroupedExperts, .why = "ahead of Marlin on 9.0", .backend = "HUMMING", .when = kOnSm90},
    Row{.experts = &kHummingIndexedExperts, .why = "ahead of Marlin on 9.0", .backend = "HUMMING", .when = kOnSm90},
    Row{.experts = &kMarlinExperts, .why = kOrder, .backend = "MARLIN"},
    Row{.experts = &kXPUExpertsFp8, .why = kOrder, .backend = "XPU"},
    Row{.experts = &kXPUExpertsMxFp8, .why = kOrder, .backend = "XPU"},
    Row{.experts = &kXPUExpertsBlockFp8, .why = kOrder, .backend = "XPU"},
    Row{.experts = &kAiterMxfp8Experts, .why = kOrder, .backend = "AITER_MXFP8"},
    Row{.experts = &kBatchedHummingGroupedExperts, .why = kOrder, .backend = "HUMMING", .unless = kOnSm90},
    Row{.experts = &kHummingGroupedExperts, .why = kOrder, .backend = "HUMMING", .unless = kOnSm90},
    Row{.experts = &kHummingIndexedExperts, .why = kOrder, .backend = "HUMMING", .unless = kOnSm90},
    Row{.experts = &kMxfp8NativeTritonExperts, .why = kOrder, .backend = "TRITON_MXFP8"},
    Row{.experts = &kMxfp8EmulationTritonExperts, .why = kOrder, .backend = "EMULATION"}};
constexpr std::array kNames{BackendName{"aiter", "AITER_MXFP8"},
                            BackendName{"deep_gemm", "DEEPGEMM"},
                            BackendName{"flashinfer_trtllm", "FLASHINFER_TRTLLM"},
                            BackendName{"humming", "HUMMING"},
                            BackendName{"marlin", "MARLIN"},
                            BackendName{"triton", "TRITON_MXFP8"},
                            BackendName{"xpu", "XPU"}};

}  // namespace

constinit const Table kMxfp8Table{
    .name = "mxfp8", .rows = kRows, .names = kNames, .verdicts = kConfiguration, .exhausted = kNoBackend};

}  // namespace moracle::vllm
