// Weights as floats of 16 or 32 bits.
#include <array>

#include "compat/vllm/classes/amd.h"
#include "compat/vllm/classes/cutlass.h"
#include "compat/vllm/classes/flashinfer.h"
#include "compat/vllm/classes/host.h"
#include "compat/vllm/classes/triton.h"
#include "compat/vllm/classes/trtllm.h"
#include "compat/vllm/classes/xpu.h"
#include "compat/vllm/tables/guards.h"
#include "compat/vllm/tables/tables.h"

namespace moracle::vllm {
namespace {

constexpr std::array kRows{
    Row{.experts = &kTrtLlmBf16LoRAExperts,
        .why = "only by name",
        .backend = "FLASHINFER_TRTLLM",
        .when = kLora,
        .on_request = true},
    Row{.experts = &kAiterUnquantizedExperts, .why = kOrder, .backend = "AITER", .when = kOnRocm, .unless = kAiterOff},
    Row{.experts = &kTrtLlmBf16ExpertsMonolithic,
        .why = kOrder,
        .backend = "FLASHINFER_TRTLLM",
        .when = kOnCuda,
        .unless = kTrtllmLast},
    Row{.experts = &kTrtLlmBf16ExpertsModular,
        .why = kOrder,
        .backend = "FLASHINFER_TRTLLM",
        .when = kOnCuda,
        .unless = kTrtllmLast},
    Row{.experts = &kFlashInferExperts,
        .why = kOrder,
        .backend = "FLASHINFER_CUTLASS",
        .when = kOnCuda,
        .unless = kCutlassLast},
    Row{.experts = &kXPUExperts, .why = kOrder, .backend = "XPU", .when = kOnXpu},
    Row{.experts = &kTritonExperts, .why = kOrder, .backend = "TRITON", .when = kOnGpu},
    Row{.experts = &kBatchedTritonExperts,
        .why = kOrder,
        .backend = "BATCHED_TRITON",
        .when = kOnCudaOrRocm,
        .in_own_format = true},
    Row{.experts = &kTrtLlmBf16ExpertsMonolithic,
        .why = "behind Triton here",
        .backend = "FLASHINFER_TRTLLM",
        .when = kTrtllmLast},
    Row{.experts = &kTrtLlmBf16ExpertsModular,
        .why = "behind Triton here",
        .backend = "FLASHINFER_TRTLLM",
        .when = kTrtllmLast},
    Row{.experts = &kFlashInferExperts,
        .why = "behind Triton here",
        .backend = "FLASHINFER_CUTLASS",
        .when = kCutlassLast},
    Row{.experts = &kX86CPUUnquantizedExperts, .why = kOrder, .backend = "CPU", .when = kOnCpu},
    Row{.experts = &kArmCPUUnquantizedExperts, .why = kOrder, .backend = "CPU", .when = kOnCpu},
    Row{.experts = &kPowerCPUUnquantizedExperts, .why = kOrder, .backend = "CPU", .when = kOnCpu},
    Row{.experts = &kCPUUnquantizedExperts, .why = kOrder, .backend = "CPU", .when = kOnCpu},
    Row{.experts = &kMoonEPExperts, .why = "only by name", .backend = "MOONEP", .on_request = true}};
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
                                        .otherwise = &kTritonExperts,
                                        .otherwise_backend = "TRITON"},
                             ForcedRule{.backend = "MOONEP", .when = {.all2alls = {"moonep"}}, .over_pin = true},
                             ForcedRule{.backend = "AITER",
                                        .when = {.devices = {rocm()}, .facts = {kAiterOn, kAiterExpertsOn}},
                                        .unless = kAiterOff.back(),
                                        .fallback = true}};

}  // namespace

constinit const Table kUnquantizedTable{.name = "unquantized",
                                        .rows = kRows,
                                        .names = kNames,
                                        .names_as_auto = kQuantizedOnly,
                                        .verdicts = kConfiguration,
                                        .forced = kForced,
                                        .exhausted = kNoBackend};

}  // namespace moracle::vllm
