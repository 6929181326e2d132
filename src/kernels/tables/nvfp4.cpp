// E2M1 weights with E4M3 scales per 16 under an fp32 scale; activations 16-bit or NVFP4.
#include "kernels/cards.h"
#include "kernels/tables/cpu_rows.h"
#include "kernels/tables/table_list.h"

namespace moracle {
namespace {

constexpr auto kRows = behind_cpu_cards<"nvfp4">({
    {&kCardSm90StreamNvfp4, "of this engine; weights streamed at the pace of memory"},
    {&kCardPortableNvfp4, "of this engine; mma.sync on weights decoded to bf16"},
    {&kCardTrtLlmNvfp4, "packed for one generation, routing inside"},
    {&kCardCuteDslNvfp4, "written for one generation"},
    {&kCardFlashInferNvfp4, "both operands in the tensor cores"},
    {&kCardCutlassNvfp4, "both operands in the tensor cores"},
    {&kCardMarlinNvfp4, "any NVIDIA GPU from 7.5"},
    {&kCardMarlinLinearNvfp4, "the same for linears"},
    {&kCardB12xNvfp4, "quantizes activations that the scheme leaves at 16 bits"},
    {&kCardFlashInferB12xNvfp4, "the same, through another library"},
    {&kCardRefNvfp4, "scalar; for proof, not for speed"},
});
static_assert(listed_once(kRows));

bool serves(const Scheme& scheme) {
  return scheme.weight.element == Element::e2m1 && scheme.weight.scale == ScaleType::e4m3;
}

}  // namespace

constinit const SchemeTable kNvfp4Table{{.name = "nvfp4", .rows = kRows, .missing = missing}, serves};

}  // namespace moracle
