// E4M3 weights with float scales, or blocks under powers of two; activations as published, or 16-bit.
#include "kernels/cards.h"
#include "kernels/tables/cpu_rows.h"
#include "kernels/tables/table_list.h"

namespace moracle {
namespace {

constexpr auto kRows = behind_cpu_cards<"fp8">({
    {&kCardSm90StreamFp8, "of this engine; weights streamed at the pace of memory"},
    {&kCardSm90StreamFp8Block, "of this engine; weights streamed at the pace of memory"},
    {&kCardPortableFp8, "of this engine; mma.sync on weights decoded to bf16"},
    {&kCardTrtLlmFp8, "packed for one generation, routing inside"},
    {&kCardTrtLlmFp8Block, "packed for one generation, routing inside"},
    {&kCardFlashInferFp8, "both operands in the tensor cores"},
    {&kCardFlashInferFp8Block, "both operands in the tensor cores"},
    {&kCardAiterFp8, "written for the device"},
    {&kCardTritonFp8, "portable"},
    {&kCardMarlinFp8, "weights alone: 16-bit activations"},
    {&kCardMarlinLinearFp8, "the same for linears"},
    {&kCardRefFp8, "scalar; for proof, not for speed"},
});
static_assert(listed_once(kRows));

bool serves(const Scheme& scheme) {
  const QuantKey& weight = scheme.weight;
  return weight.quantized() && weight.element == Element::e4m3 &&
         (weight.scale != ScaleType::e8m0 || weight.granularity.kind == Granularity::Kind::block);
}

}  // namespace

constinit const SchemeTable kFp8Table{{.name = "fp8", .rows = kRows, .missing = missing}, serves};

}  // namespace moracle
