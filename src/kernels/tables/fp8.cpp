// E4M3 weights with float scales, or blocks under powers of two; activations as published, or 16-bit.
#include <array>

#include "kernels/cards.h"
#include "kernels/tables/table_list.h"

namespace moracle {
namespace {

constexpr std::array kRows{
    TableRow{&kCardAmxFp8, "tiles of bf16 products, 1024 operations a cycle"},
    TableRow{&kCardAvx512Bf16Fp8, "one VDPBF16PS does two multiply-adds a lane, and every code is exact in bf16"},
    TableRow{&kCardAvx512Fp8, "16 lanes a vector"},
    TableRow{&kCardAvx2Fp8, "8 lanes a vector"},
    TableRow{&kCardTrtLlmFp8, "packed for one generation, routing inside"},
    TableRow{&kCardTrtLlmFp8Block, "packed for one generation, routing inside"},
    TableRow{&kCardFlashInferFp8, "both operands in the tensor cores"},
    TableRow{&kCardFlashInferFp8Block, "both operands in the tensor cores"},
    TableRow{&kCardAiterFp8, "written for the device"},
    TableRow{&kCardTritonFp8, "portable"},
    TableRow{&kCardMarlinFp8, "weights alone: 16-bit activations"},
    TableRow{&kCardMarlinLinearFp8, "the same for linears"},
    TableRow{&kCardRefFp8, "scalar; for proof, not for speed"},
};
static_assert(listed_once(kRows));

bool serves(const Scheme& scheme) {
  const QuantKey& weight = scheme.weight;
  return weight.quantized() && weight.element == Element::e4m3 &&
         (weight.scale != ScaleType::e8m0 || weight.granularity.kind == Granularity::Kind::block);
}

}  // namespace

constinit const SchemeTable kFp8Table{{.name = "fp8", .rows = kRows, .built = is_built}, serves};

}  // namespace moracle
