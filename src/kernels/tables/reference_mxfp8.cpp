// MXFP8 weights and activations.
#include <array>

#include "kernels/foreign/amd.card.h"
#include "kernels/foreign/cutlass.card.h"
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
    TableRow{.card = &reference::kCardTrtLlmFp8ExpertsMonolithic, .why = kOrder, .backend = "FLASHINFER_TRTLLM"},
    TableRow{.card = &reference::kCardTrtLlmFp8ExpertsModular, .why = kOrder, .backend = "FLASHINFER_TRTLLM"},
    TableRow{.card = &reference::kCardDeepGemmExperts, .why = kOrder, .backend = "DEEPGEMM"},
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
    TableRow{.card = &reference::kCardXPUExpertsFp8, .why = kOrder, .backend = "XPU"},
    TableRow{.card = &reference::kCardXPUExpertsMxFp8, .why = kOrder, .backend = "XPU"},
    TableRow{.card = &reference::kCardXPUExpertsBlockFp8, .why = kOrder, .backend = "XPU"},
    TableRow{.card = &reference::kCardAiterMxfp8Experts, .why = kOrder, .backend = "AITER_MXFP8"},
    TableRow{
        .card = &reference::kCardBatchedHummingGroupedExperts, .why = kOrder, .backend = "HUMMING", .unless = kOnSm90},
    TableRow{.card = &reference::kCardHummingGroupedExperts, .why = kOrder, .backend = "HUMMING", .unless = kOnSm90},
    TableRow{.card = &reference::kCardHummingIndexedExperts, .why = kOrder, .backend = "HUMMING", .unless = kOnSm90},
    TableRow{.card = &reference::kCardMxfp8NativeTritonExperts, .why = kOrder, .backend = "TRITON_MXFP8"},
    TableRow{.card = &reference::kCardMxfp8EmulationTritonExperts, .why = kOrder, .backend = "EMULATION"}};
constexpr std::array kNames{BackendName{"aiter", "AITER_MXFP8"},
                            BackendName{"deep_gemm", "DEEPGEMM"},
                            BackendName{"flashinfer_trtllm", "FLASHINFER_TRTLLM"},
                            BackendName{"humming", "HUMMING"},
                            BackendName{"marlin", "MARLIN"},
                            BackendName{"triton", "TRITON_MXFP8"},
                            BackendName{"xpu", "XPU"}};

}  // namespace

constinit const Table kReferenceMxfp8{.name = "mxfp8",
                                      .rows = kRows,
                                      .names = kNames,
                                      .emulation_in_place = true,
                                      .verdicts = kConfiguration,
                                      .exhausted = kNoBackend};

}  // namespace moracle
