// E4M3 weights with E8M0 scales per 32; activations 16-bit or MXFP8.
#include "kernels/cards.h"
#include "kernels/tables/cpu_rows.h"
#include "kernels/tables/table_list.h"

namespace moracle {
namespace {

constexpr auto kRows = behind_cpu_cards<"mxfp8">({
    {&kCardPortableMxfp8, "of this engine; mma.sync on weights decoded to bf16"},
    {&kCardTrtLlmMxfp8, "packed for one generation, routing inside"},
    {&kCardMarlinMxfp8, "any NVIDIA GPU from 7.5"},
    {&kCardMarlinLinearMxfp8, "the same for linears"},
    {&kCardRefMxfp8, "scalar; for proof, not for speed"},
});
static_assert(listed_once(kRows));

bool serves(const Scheme& scheme) {
  return scheme.weight.element == Element::e4m3 && scheme.weight.scale == ScaleType::e8m0 &&
         scheme.weight.granularity.kind == Granularity::Kind::group;
}

}  // namespace

constinit const SchemeTable kMxfp8Table{{.name = "mxfp8", .rows = kRows, .missing = missing}, serves};

}  // namespace moracle
