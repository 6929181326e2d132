// E2M1 weights with E8M0 scales per 32; activations 16-bit, FP8 or MXFP4.
#include "kernels/cards.h"
#include "kernels/tables/cpu_rows.h"
#include "kernels/tables/table_list.h"

namespace moracle {
namespace {

constexpr auto kRows = behind_cpu_cards<"mxfp4">({
    {&kCardSm90StreamMxfp4, "of this engine; weights streamed at the pace of memory"},
    {&kCardPortableMxfp4, "of this engine; mma.sync on weights decoded to bf16"},
    {&kCardTrtLlmMxfp4, "packed for one generation, routing inside"},
    {&kCardAiterMxfp4, "written for the device"},
    {&kCardFlashInferMxfp4, "both operands in the tensor cores"},
    {&kCardCutlassMxfp4, "both operands in the tensor cores"},
    {&kCardMarlinMxfp4, "any NVIDIA GPU from 7.5"},
    {&kCardMarlinLinearMxfp4, "the same for linears"},
    {&kCardRefMxfp4, "scalar; for proof, not for speed"},
});
static_assert(listed_once(kRows));

bool serves(const Scheme& scheme) {
  return scheme.weight.element == Element::e2m1 && scheme.weight.scale == ScaleType::e8m0;
}

}  // namespace

constinit const SchemeTable kMxfp4Table{{.name = "mxfp4", .rows = kRows, .missing = missing}, serves};

}  // namespace moracle
