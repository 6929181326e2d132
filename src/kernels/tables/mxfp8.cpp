// E4M3 weights with E8M0 scales per 32; activations 16-bit or MXFP8.
#include <array>

#include "kernels/cards.h"
#include "kernels/tables/table_list.h"

namespace moracle {
namespace {

constexpr std::array kRows{
    TableRow{&kCardAmxMxfp8, "tiles of bf16 products, 1024 operations a cycle"},
    TableRow{&kCardAvx512Bf16Mxfp8, "one VDPBF16PS does two multiply-adds a lane, and every code is exact in bf16"},
    TableRow{&kCardAvx512Mxfp8, "16 lanes a vector"},
    TableRow{&kCardAvx2Mxfp8, "8 lanes a vector"},
    TableRow{&kCardTrtLlmMxfp8, "packed for one generation, routing inside"},
    TableRow{&kCardMarlinMxfp8, "any NVIDIA GPU from 7.5"},
    TableRow{&kCardMarlinLinearMxfp8, "the same for linears"},
    TableRow{&kCardRefMxfp8, "scalar; for proof, not for speed"},
};
static_assert(listed_once(kRows));

bool serves(const Scheme& scheme) {
  return scheme.weight.element == Element::e4m3 && scheme.weight.scale == ScaleType::e8m0 &&
         scheme.weight.granularity.kind == Granularity::Kind::group;
}

}  // namespace

constinit const SchemeTable kMxfp8Table{{.name = "mxfp8", .rows = kRows, .built = is_built}, serves};

}  // namespace moracle
