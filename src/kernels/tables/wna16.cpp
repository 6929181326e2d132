// Integer weights, 16-bit activations.
#include <array>

#include "kernels/cards.h"
#include "kernels/tables/table_list.h"

namespace moracle {
namespace {

constexpr std::array kRows{
    TableRow{&kCardAmxWna16Fast, "tiles of int8 products; only where fast numerics are asked for"},
    TableRow{&kCardAmxWna16, "tiles of int8 products, two for a 16-bit activation"},
    TableRow{&kCardAmxWna16Short, "tiles of bf16 products"},
    TableRow{&kCardAvx512VnniWna16Fast,
             "one VPDPBUSD does four multiply-adds a lane; only where fast numerics are asked for"},
    TableRow{&kCardAvx512VnniWna16, "one VPDPWSSD does two multiply-adds a lane"},
    TableRow{&kCardAvx512Bf16Wna16, "one VDPBF16PS does two multiply-adds a lane"},
    TableRow{&kCardAvx512Wna16, "16 lanes a vector"},
    TableRow{&kCardAvx2Wna16Fast,
             "one VPMADDUBSW does four multiply-adds a lane; only where fast numerics are asked for"},
    TableRow{&kCardAvx2Wna16, "one VPMADDWD does two multiply-adds a lane"},
    TableRow{&kCardTrtLlmMxint4, "packed for one generation, routing inside"},
    TableRow{&kCardMarlinWna16, "any NVIDIA GPU from 7.5"},
    TableRow{&kCardMarlinLinearWna16, "the same for linears"},
    TableRow{&kCardXpuInt4, "the only one there"},
    TableRow{&kCardTritonWna16, "portable, behind those written for a device"},
    TableRow{&kCardRefWna16, "scalar; for proof, not for speed"},
};
static_assert(listed_once(kRows));

bool serves(const Scheme& scheme) {
  const QuantKey& weight = scheme.weight;
  return weight.quantized() && (weight.element == Element::int4 || weight.element == Element::int8) &&
         !scheme.activation;
}

}  // namespace

constinit const SchemeTable kWna16Table{{.name = "wna16", .rows = kRows, .built = is_built}, serves};

}  // namespace moracle
