// Weights as floats of 16 or 32 bits.
#include <array>

#include "kernels/foreign/amd.card.h"
#include "kernels/foreign/cutlass.card.h"
#include "kernels/foreign/flashinfer.card.h"
#include "kernels/foreign/host.card.h"
#include "kernels/foreign/triton.card.h"
#include "kernels/foreign/trtllm.card.h"
#include "kernels/foreign/xpu.card.h"
#include "kernels/tables/reference_guards.h"
#include "kernels/tables/reference_tables.h"

namespace moracle {
namespace {

using namespace reference;

constexpr std::array kRows{
    TableRow{.card = &reference::kCardTrtLlmBf16LoRAExperts,
             .why = "only by name",
             .backend = "FLASHINFER_TRTLLM",
             .when = kLora,
             .on_request = true},
    TableRow{.card = &reference::kCardAiterUnquantizedExperts,
             .why = kOrder,
             .backend = "AITER",
             .when = kOnRocm,
             .unless = kAiterOff},
    TableRow{.card = &reference::kCardTrtLlmBf16ExpertsMonolithic,
             .why = kOrder,
             .backend = "FLASHINFER_TRTLLM",
             .when = kOnCuda,
             .unless = kTrtllmLast},
    TableRow{.card = &reference::kCardTrtLlmBf16ExpertsModular,
             .why = kOrder,
             .backend = "FLASHINFER_TRTLLM",
             .when = kOnCuda,
             .unless = kTrtllmLast},
    TableRow{.card = &reference::kCardFlashInferExperts,
             .why = kOrder,
             .backend = "FLASHINFER_CUTLASS",
             .when = kOnCuda,
             .unless = kCutlassLast},
    TableRow{.card = &reference::kCardXPUExperts, .why = kOrder, .backend = "XPU", .when = kOnXpu},
    TableRow{.card = &reference::kCardTritonExperts, .why = kOrder, .backend = "TRITON", .when = kOnGpu},
    TableRow{.card = &reference::kCardBatchedTritonExperts,
             .why = kOrder,
             .backend = "BATCHED_TRITON",
             .when = kOnCudaOrRocm,
             .in_own_format = true},
    TableRow{.card = &reference::kCardTrtLlmBf16ExpertsMonolithic,
             .why = "behind Triton here",
             .backend = "FLASHINFER_TRTLLM",
             .when = kTrtllmLast},
    TableRow{.card = &reference::kCardTrtLlmBf16ExpertsModular,
             .why = "behind Triton here",
             .backend = "FLASHINFER_TRTLLM",
             .when = kTrtllmLast},
    TableRow{.card = &reference::kCardFlashInferExperts,
             .why = "behind Triton here",
             .backend = "FLASHINFER_CUTLASS",
             .when = kCutlassLast},
    TableRow{.card = &reference::kCardX86CPUUnquantizedExperts, .why = kOrder, .backend = "CPU", .when = kOnCpu},
    TableRow{.card = &reference::kCardArmCPUUnquantizedExperts, .why = kOrder, .backend = "CPU", .when = kOnCpu},
    TableRow{.card = &reference::kCardPowerCPUUnquantizedExperts, .why = kOrder, .backend = "CPU", .when = kOnCpu},
    TableRow{.card = &reference::kCardCPUUnquantizedExperts, .why = kOrder, .backend = "CPU", .when = kOnCpu},
    TableRow{.card = &reference::kCardMoonEPExperts, .why = "only by name", .backend = "MOONEP", .on_request = true}};
constexpr std::array kNames{BackendName{"triton", "BATCHED_TRITON", Condition{.batched = true}},
                            BackendName{"triton", "TRITON", Condition{.batched = false}},
                            BackendName{"batched_triton", "BATCHED_TRITON"},
                            BackendName{"aiter", "AITER"},
                            BackendName{"flashinfer_trtllm", "FLASHINFER_TRTLLM"},
                            BackendName{"flashinfer_cutlass", "FLASHINFER_CUTLASS"}};
constexpr std::array<std::string_view, 2> kQuantizedOnly{"humming", "marlin"};
// Adapters leave one kernel, and Triton unchecked where it cannot serve.
constexpr std::array kForced{ForcedRule{.backend = "FLASHINFER_TRTLLM",
                                        .when = kLora[0],
                                        .over_pin = true,
                                        .otherwise = &kCardTritonExperts,
                                        .otherwise_backend = "TRITON"},
                             ForcedRule{.backend = "MOONEP", .when = {.all2alls = {"moonep"}}, .over_pin = true},
                             ForcedRule{.backend = "AITER",
                                        .when = {.devices = {rocm()}, .facts = {kAiterOn, kAiterExpertsOn}},
                                        .unless = kAiterOff.back(),
                                        .fallback = true}};

}  // namespace

constinit const Table kReferenceUnquantized{.name = "unquantized",
                                            .rows = kRows,
                                            .names = kNames,
                                            .emulation_in_place = true,
                                            .names_as_auto = kQuantizedOnly,
                                            .verdicts = kConfiguration,
                                            .forced = kForced,
                                            .exhausted = kNoBackend};

}  // namespace moracle
