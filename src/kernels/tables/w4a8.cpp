// Int4 weights, 8-bit activations.
#include "kernels/cards.h"
#include "kernels/tables/table_list.h"

namespace moracle {
namespace {

constexpr auto kRows = behind_cpu_cards<"w4a8">({
    {&kCardRefW4A8, "scalar; for proof, not for speed"},
});
static_assert(listed_once(kRows));

bool serves(const Scheme& scheme) {
  return scheme.weight.quantized() && scheme.weight.element == Element::int4 && scheme.activation;
}

}  // namespace

constinit const SchemeTable kW4A8Table{{.name = "w4a8", .rows = kRows, .built = is_built}, serves};

}  // namespace moracle
