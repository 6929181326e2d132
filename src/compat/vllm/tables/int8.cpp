// INT8 with quantized activations; int4 weights with FP8 or INT8 activations.
#include <array>

#include "compat/vllm/classes/cutlass.h"
#include "compat/vllm/classes/host.h"
#include "compat/vllm/classes/marlin.h"
#include "compat/vllm/classes/triton.h"
#include "compat/vllm/tables/guards.h"
#include "compat/vllm/tables/tables.h"

namespace moracle::vllm {
namespace {

constexpr std::array kInt8Rows{Row{.experts = &kTritonExperts, .why = kOrder, .backend = "TRITON"},
                               Row{.experts = &kBatchedHummingGroupedExperts, .why = kOrder, .backend = "HUMMING"},
                               Row{.experts = &kHummingGroupedExperts, .why = kOrder, .backend = "HUMMING"},
                               Row{.experts = &kHummingIndexedExperts, .why = kOrder, .backend = "HUMMING"},
                               Row{.experts = &kZenCPUExpertsInt8, .why = kOrder, .backend = "CPU"},
                               Row{.experts = &kPowerCPUExpertsInt8, .why = kOrder, .backend = "CPU"},
                               Row{.experts = &kArmCPUExpertsInt8, .why = kOrder, .backend = "CPU"},
                               Row{.experts = &kCPUExpertsInt8, .why = kOrder, .backend = "CPU"}};
constexpr std::array kInt8Names{BackendName{"triton", "TRITON"}, BackendName{"humming", "HUMMING"}};
constexpr std::array kW4A8Rows{Row{.experts = &kCutlassExpertsW4A8Fp8, .why = kOrder, .backend = "CUTLASS"},
                               Row{.experts = &kBatchedHummingGroupedExperts, .why = kOrder, .backend = "HUMMING"},
                               Row{.experts = &kHummingGroupedExperts, .why = kOrder, .backend = "HUMMING"},
                               Row{.experts = &kHummingIndexedExperts, .why = kOrder, .backend = "HUMMING"}};
constexpr std::array kW4A8Names{BackendName{"cutlass", "CUTLASS"}, BackendName{"humming", "HUMMING"}};
constexpr std::array kW4A8Int8Rows{Row{.experts = &kCPUExpertsInt4Dynamic, .why = kOrder, .backend = "CPU_INT4"}};
constexpr std::array kW4A8Int8Names{BackendName{"cpu", "CPU_INT4"}};
constexpr std::array kW4A8Int8Verdicts{
    kConfiguration[0], kConfiguration[1],
    Verdict{.code = "no_backend_on_platform", .when = {.devices = {cuda(), rocm(), kXpu}}}};

}  // namespace

constinit const Table kInt8Table{
    .name = "int8", .rows = kInt8Rows, .names = kInt8Names, .verdicts = kConfiguration, .exhausted = kNoBackend};
constinit const Table kW4A8Table{
    .name = "w4a8", .rows = kW4A8Rows, .names = kW4A8Names, .verdicts = kConfiguration, .exhausted = kNoBackend};
constinit const Table kW4A8Int8Table{.name = "w4a8_int8",
                                     .rows = kW4A8Int8Rows,
                                     .names = kW4A8Int8Names,
                                     .verdicts = kW4A8Int8Verdicts,
                                     .exhausted = kNoBackend};

}  // namespace moracle::vllm
