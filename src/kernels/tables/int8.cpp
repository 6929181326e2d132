// Int8 weights and activations (W8A8).
#include "kernels/cards.h"
#include "kernels/tables/cpu_rows.h"
#include "kernels/tables/table_list.h"

namespace moracle {
namespace {

constexpr auto kRows = behind_cpu_cards<"int8">({
    {&kCardSm90StreamInt8, "of this engine; weights streamed at the pace of memory"},
    {&kCardPortableInt8, "of this engine; mma.sync on weights decoded to bf16"},
    {&kCardTritonInt8, "portable"},
    {&kCardRefInt8, "scalar; for proof, not for speed"},
});
static_assert(listed_once(kRows));

bool serves(const Scheme& scheme) {
  return scheme.weight.quantized() && scheme.weight.element == Element::int8 && scheme.activation;
}

}  // namespace

constinit const SchemeTable kInt8Table{{.name = "int8", .rows = kRows, .missing = missing}, serves};

}  // namespace moracle
