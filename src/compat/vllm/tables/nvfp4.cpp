// NVFP4 weights, activations NVFP4 or 16-bit.
#include <array>

#include "compat/vllm/classes/cutlass.h"
#include "compat/vllm/classes/flashinfer.h"
#include "compat/vllm/classes/marlin.h"
#include "compat/vllm/classes/triton.h"
#include "compat/vllm/classes/trtllm.h"
#include "compat/vllm/tables/guards.h"
#include "compat/vllm/tables/tables.h"

namespace moracle::vllm {
namespace {

constexpr std::array kRows{
    Row{.experts = &kTrtLlmNvFp4ExpertsMonolithic, .why = kOrder, .backend = "FLASHINFER_TRTLLM"},
    Row{.experts = &kTrtLlmNvFp4ExpertsModular, .why = kOrder, .backend = "FLASHINFER_TRTLLM"},
    Row{.experts = &kFlashInferCuteDSLExperts, .why = kOrder, .backend = "FLASHINFER_CUTEDSL"},
    Row{.experts = &kFlashInferCuteDSLBatchedExperts,
        .why = kOrder,
        .backend = "FLASHINFER_CUTEDSL_BATCHED",
        .unless = kSwigluLimit},
    Row{.experts = &kFlashInferExperts, .why = kOrder, .backend = "FLASHINFER_CUTLASS"},
    Row{.experts = &kCutlassExpertsFp4, .why = kOrder, .backend = "VLLM_CUTLASS"},
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
    Row{.experts = &kNvfp4QuantizationEmulationTritonExperts, .why = kOrder, .backend = "EMULATION"},
    Row{.experts = &kB12xExperts,
        .why = "only by name",
        .backend = "B12X",
        .when = kForceA16,
        .activation = RowActivation::plain,
        .on_request = true},
    Row{.experts = &kB12xExperts, .why = "only by name", .backend = "B12X", .unless = kForceA16, .on_request = true},
    Row{.experts = &kFlashInferB12xExperts, .why = "only by name", .backend = "FLASHINFER_B12X", .on_request = true},
    Row{.experts = &kFlashInferMoeEpExperts,
        .why = "only by name",
        .backend = "FLASHINFER_MOE_EP_CUTEDSL",
        .on_request = true}};
constexpr std::array kNames{BackendName{"flashinfer_cutedsl", "FLASHINFER_CUTEDSL_BATCHED", Condition{.batched = true}},
                            BackendName{"flashinfer_cutedsl", "FLASHINFER_CUTEDSL", Condition{.batched = false}},
                            BackendName{"b12x", "B12X"},
                            BackendName{"cutlass", "VLLM_CUTLASS"},
                            BackendName{"flashinfer_trtllm", "FLASHINFER_TRTLLM"},
                            BackendName{"flashinfer_cutlass", "FLASHINFER_CUTLASS"},
                            BackendName{"flashinfer_moe_ep_cutedsl", "FLASHINFER_MOE_EP_CUTEDSL"},
                            BackendName{"flashinfer_b12x", "FLASHINFER_B12X"},
                            BackendName{"marlin", "MARLIN"},
                            BackendName{"humming", "HUMMING"},
                            BackendName{"emulation", "EMULATION"}};
constexpr std::array kVerdicts{
    kConfiguration[0], kConfiguration[1],
    Verdict{.code = "override_disabled:no_swiglu_clamp", .when = kSwigluLimit[0], .pinned = "flashinfer_b12x"}};

}  // namespace

constinit const Table kNvfp4Table{
    .name = "nvfp4", .rows = kRows, .names = kNames, .verdicts = kVerdicts, .exhausted = kNoBackend};

}  // namespace moracle::vllm
