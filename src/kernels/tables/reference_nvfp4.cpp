// NVFP4 weights, activations NVFP4 or 16-bit.
#include <array>

#include "kernels/foreign/cutlass.card.h"
#include "kernels/foreign/flashinfer.card.h"
#include "kernels/foreign/marlin.card.h"
#include "kernels/foreign/triton.card.h"
#include "kernels/foreign/trtllm.card.h"
#include "kernels/tables/reference_guards.h"
#include "kernels/tables/reference_tables.h"

namespace moracle {
namespace {

using namespace reference;

constexpr std::array kRows{
    TableRow{.card = &reference::kCardTrtLlmNvFp4ExpertsMonolithic, .why = kOrder, .backend = "FLASHINFER_TRTLLM"},
    TableRow{.card = &reference::kCardTrtLlmNvFp4ExpertsModular, .why = kOrder, .backend = "FLASHINFER_TRTLLM"},
    TableRow{.card = &reference::kCardFlashInferCuteDSLExperts, .why = kOrder, .backend = "FLASHINFER_CUTEDSL"},
    TableRow{.card = &reference::kCardFlashInferCuteDSLBatchedExperts,
             .why = kOrder,
             .backend = "FLASHINFER_CUTEDSL_BATCHED",
             .unless = kSwigluLimit},
    TableRow{.card = &reference::kCardFlashInferExperts, .why = kOrder, .backend = "FLASHINFER_CUTLASS"},
    TableRow{.card = &reference::kCardCutlassExpertsFp4, .why = kOrder, .backend = "VLLM_CUTLASS"},
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
    TableRow{.card = &reference::kCardNvfp4QuantizationEmulationTritonExperts, .why = kOrder, .backend = "EMULATION"},
    TableRow{.card = &reference::kCardB12xExperts,
             .why = "only by name",
             .backend = "B12X",
             .when = kForceA16,
             .activation = RowActivation::plain,
             .on_request = true},
    TableRow{.card = &reference::kCardB12xExperts,
             .why = "only by name",
             .backend = "B12X",
             .unless = kForceA16,
             .on_request = true},
    TableRow{.card = &reference::kCardFlashInferB12xExperts,
             .why = "only by name",
             .backend = "FLASHINFER_B12X",
             .on_request = true},
    TableRow{.card = &reference::kCardFlashInferMoeEpExperts,
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

constinit const Table kReferenceNvfp4{.name = "nvfp4",
                                      .rows = kRows,
                                      .names = kNames,
                                      .emulation_in_place = true,
                                      .verdicts = kVerdicts,
                                      .exhausted = kNoBackend};

}  // namespace moracle
