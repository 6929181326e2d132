// E2M3 and E3M2 weights with E8M0 scales per 32; activations 16-bit, FP8 or of the same element.
#include "kernels/cards.h"
#include "kernels/tables/cpu_rows.h"
#include "kernels/tables/table_list.h"

namespace moracle {
namespace {

constexpr auto kRows = behind_cpu_cards<"mxfp6">({
    {&kCardPortableMxfp6, "of this engine; mma.sync on weights decoded to bf16"},
    {&kCardRefMxfp6, "scalar; for proof, not for speed"},
});
static_assert(listed_once(kRows));

bool serves(const Scheme& scheme) {
  const bool six = scheme.weight.element == Element::e2m3 || scheme.weight.element == Element::e3m2;
  return six && scheme.weight.scale == ScaleType::e8m0;
}

}  // namespace

constinit const SchemeTable kMxfp6Table{{.name = "mxfp6", .rows = kRows, .missing = missing}, serves};

}  // namespace moracle
