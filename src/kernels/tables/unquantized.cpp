// Weights as floats of 16 or 32 bits.
#include "kernels/cards.h"
#include "kernels/tables/cpu_rows.h"
#include "kernels/tables/table_list.h"

namespace moracle {
namespace {

constexpr auto kRows = behind_cpu_cards<"dense">({
    {&kCardSm90StreamBf16, "of this engine; weights streamed at the pace of memory"},
    {&kCardPortableDense, "of this engine; mma.sync on weights decoded to bf16"},
    {&kCardTrtLlmValues, "packed for one generation, routing inside"},
    {&kCardFlashInferValues, "written for NVIDIA GPUs"},
    {&kCardAiterValues, "written for the device"},
    {&kCardTritonValues, "portable"},
    {&kCardRefDense, "scalar; for proof, not for speed"},
});
static_assert(listed_once(kRows));

bool serves(const Scheme& scheme) {
  return !scheme.weight.quantized() && !scheme.activation;
}

}  // namespace

constinit const SchemeTable kUnquantizedTable{{.name = "unquantized", .rows = kRows, .missing = missing}, serves};

}  // namespace moracle
