// Integer weights, 16-bit activations.
#include "kernels/cards.h"
#include "kernels/tables/cpu_rows.h"
#include "kernels/tables/table_list.h"

namespace moracle {
namespace {

constexpr auto kRows = behind_cpu_cards<"wna16">({
    {&kCardSm90StreamInt4, "of this engine; weights streamed at the pace of memory"},
    {&kCardSm90StreamInt8A16, "of this engine; weights streamed at the pace of memory"},
    {&kCardPortableWna16, "of this engine; mma.sync on weights decoded to bf16"},
    {&kCardTrtLlmMxint4, "packed for one generation, routing inside"},
    {&kCardMarlinWna16, "any NVIDIA GPU from 7.5"},
    {&kCardMarlinLinearWna16, "the same for linears"},
    {&kCardXpuInt4, "the only one there"},
    {&kCardTritonWna16, "portable, behind those written for a device"},
    {&kCardRefWna16, "scalar; for proof, not for speed"},
});
static_assert(listed_once(kRows));

bool serves(const Scheme& scheme) {
  const QuantKey& weight = scheme.weight;
  return weight.quantized() && (weight.element == Element::int4 || weight.element == Element::int8) &&
         !scheme.activation;
}

}  // namespace

constinit const SchemeTable kWna16Table{{.name = "wna16", .rows = kRows, .missing = missing}, serves};

}  // namespace moracle
