// Int4 weights, 8-bit activations.
#include <array>

#include "kernels/cards.h"
#include "kernels/tables/table_list.h"

namespace moracle {
namespace {

constexpr std::array kRows{
    TableRow{&kCardAmxW4A8, "tiles of bf16 products, 1024 operations a cycle"},
    TableRow{&kCardAvx512VnniW4A8, "VPDPBUSD does four multiply-adds a lane, exact in integers"},
    TableRow{&kCardAvx512Bf16W4A8, "one VDPBF16PS does two multiply-adds a lane, and every code is exact in bf16"},
    TableRow{&kCardAvx512W4A8, "16 lanes a vector"},
    TableRow{&kCardAvx2W4A8, "8 lanes a vector"},
    TableRow{&kCardRefW4A8, "scalar; for proof, not for speed"},
};
static_assert(listed_once(kRows));

bool serves(const Scheme& scheme) {
  return scheme.weight.quantized() && scheme.weight.element == Element::int4 && scheme.activation;
}

}  // namespace

constinit const SchemeTable kW4A8Table{{.name = "w4a8", .rows = kRows, .built = is_built}, serves};

}  // namespace moracle
