// Weights as floats of 16 or 32 bits.
#include <array>

#include "kernels/cards.h"
#include "kernels/tables/table_list.h"

namespace moracle {
namespace {

constexpr std::array kRows{
    TableRow{&kCardAmxDense, "tiles of bf16 products, 1024 operations a cycle"},
    TableRow{&kCardAvx512Bf16Dense, "bf16 weights multiply without widening"},
    TableRow{&kCardAvx512Dense, "16 lanes a vector"},
    TableRow{&kCardAvx2Dense, "8 lanes a vector"},
    TableRow{&kCardTrtLlmValues, "packed for one generation, routing inside"},
    TableRow{&kCardFlashInferValues, "written for NVIDIA GPUs"},
    TableRow{&kCardAiterValues, "written for the device"},
    TableRow{&kCardTritonValues, "portable"},
    TableRow{&kCardRefDense, "scalar; for proof, not for speed"},
};
static_assert(listed_once(kRows));

bool serves(const Scheme& scheme) {
  return !scheme.weight.quantized() && !scheme.activation;
}

}  // namespace

constinit const SchemeTable kUnquantizedTable{{.name = "unquantized", .rows = kRows, .built = is_built}, serves};

}  // namespace moracle
