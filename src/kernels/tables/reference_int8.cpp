// INT8 with quantized activations; int4 weights with FP8 or INT8 activations.
#include <array>

#include "kernels/foreign/cutlass.card.h"
#include "kernels/foreign/host.card.h"
#include "kernels/foreign/marlin.card.h"
#include "kernels/foreign/triton.card.h"
#include "kernels/tables/reference_guards.h"
#include "kernels/tables/reference_tables.h"

namespace moracle {
namespace {

using namespace reference;

constexpr std::array kInt8Rows{
    TableRow{.card = &reference::kCardTritonExperts, .why = kOrder, .backend = "TRITON"},
    TableRow{.card = &reference::kCardBatchedHummingGroupedExperts, .why = kOrder, .backend = "HUMMING"},
    TableRow{.card = &reference::kCardHummingGroupedExperts, .why = kOrder, .backend = "HUMMING"},
    TableRow{.card = &reference::kCardHummingIndexedExperts, .why = kOrder, .backend = "HUMMING"},
    TableRow{.card = &reference::kCardZenCPUExpertsInt8, .why = kOrder, .backend = "CPU"},
    TableRow{.card = &reference::kCardPowerCPUExpertsInt8, .why = kOrder, .backend = "CPU"},
    TableRow{.card = &reference::kCardArmCPUExpertsInt8, .why = kOrder, .backend = "CPU"},
    TableRow{.card = &reference::kCardCPUExpertsInt8, .why = kOrder, .backend = "CPU"}};
constexpr std::array kInt8Names{BackendName{"triton", "TRITON"}, BackendName{"humming", "HUMMING"}};
constexpr std::array kW4A8Rows{
    TableRow{.card = &reference::kCardCutlassExpertsW4A8Fp8, .why = kOrder, .backend = "CUTLASS"},
    TableRow{.card = &reference::kCardBatchedHummingGroupedExperts, .why = kOrder, .backend = "HUMMING"},
    TableRow{.card = &reference::kCardHummingGroupedExperts, .why = kOrder, .backend = "HUMMING"},
    TableRow{.card = &reference::kCardHummingIndexedExperts, .why = kOrder, .backend = "HUMMING"}};
constexpr std::array kW4A8Names{BackendName{"cutlass", "CUTLASS"}, BackendName{"humming", "HUMMING"}};
constexpr std::array kW4A8Int8Rows{
    TableRow{.card = &reference::kCardCPUExpertsInt4Dynamic, .why = kOrder, .backend = "CPU_INT4"}};
constexpr std::array kW4A8Int8Names{BackendName{"cpu", "CPU_INT4"}};
constexpr std::array kW4A8Int8Verdicts{
    kConfiguration[0], kConfiguration[1],
    Verdict{.code = "no_backend_on_platform", .when = {.devices = {cuda(), rocm(), kXpu}}}};

}  // namespace

constinit const Table kReferenceInt8{.name = "int8",
                                     .rows = kInt8Rows,
                                     .names = kInt8Names,
                                     .emulation_in_place = true,
                                     .verdicts = kConfiguration,
                                     .exhausted = kNoBackend};
constinit const Table kReferenceW4A8{.name = "w4a8",
                                     .rows = kW4A8Rows,
                                     .names = kW4A8Names,
                                     .emulation_in_place = true,
                                     .verdicts = kConfiguration,
                                     .exhausted = kNoBackend};
constinit const Table kReferenceW4A8Int8{.name = "w4a8_int8",
                                         .rows = kW4A8Int8Rows,
                                         .names = kW4A8Int8Names,
                                         .emulation_in_place = true,
                                         .verdicts = kW4A8Int8Verdicts,
                                         .exhausted = kNoBackend};

}  // namespace moracle
