// Int4 weights, 8-bit activations.
#include "kernels/cards.h"
#include "kernels/tables/cpu_rows.h"
#include "kernels/tables/table_list.h"

namespace moracle {
namespace {

constexpr auto kRows = behind_cpu_cards<"w4a8">({
    {&kCardSm90StreamW4A8, "of this engine; weights streamed at the pace of memory"},
    {&kCardPortableW4A8, "of this engine; mma.sync on weights decoded to bf16"},
    {&kCardRefW4A8, "scalar; for proof, not for speed"},
});
static_assert(listed_once(kRows));

bool serves(const Scheme& scheme) {
  return scheme.weight.quantized() && scheme.weight.element == Element::int4 && scheme.activation;
}

}  // namespace

constinit const SchemeTable kW4A8Table{{.name = "w4a8", .rows = kRows, .missing = missing}, serves};

}  // namespace moracle
