// E2M3 and E3M2 weights with E8M0 scales per 32; activations 16-bit, FP8 or of the same element.
#include <array>

#include "kernels/cards.h"
#include "kernels/tables/table_list.h"

namespace moracle {
namespace {

constexpr std::array kRows{
    TableRow{&kCardAmxMxfp6, "tiles of bf16 products, 1024 operations a cycle"},
    TableRow{&kCardAvx512Bf16Mxfp6, "one VDPBF16PS does two multiply-adds a lane, and every code is exact in bf16"},
    TableRow{&kCardAvx512Mxfp6, "16 lanes a vector"},
    TableRow{&kCardAvx2Mxfp6, "8 lanes a vector"},
    TableRow{&kCardRefMxfp6, "scalar; for proof, not for speed"},
};
static_assert(listed_once(kRows));

bool serves(const Scheme& scheme) {
  const bool six = scheme.weight.element == Element::e2m3 || scheme.weight.element == Element::e3m2;
  return six && scheme.weight.scale == ScaleType::e8m0;
}

}  // namespace

constinit const SchemeTable kMxfp6Table{{.name = "mxfp6", .rows = kRows, .built = is_built}, serves};

}  // namespace moracle
