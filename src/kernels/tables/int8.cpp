// Int8 weights and activations (W8A8).
#include <array>

#include "kernels/cards.h"
#include "kernels/tables/table_list.h"

namespace moracle {
namespace {

constexpr std::array kRows{
    TableRow{&kCardAmxInt8, "tiles of int8 products, 2048 operations a cycle"},
    TableRow{&kCardAvx512VnniInt8, "VPDPBUSD does four multiply-adds a lane, exact in integers"},
    TableRow{&kCardAvx512Bf16Int8, "one VDPBF16PS does two multiply-adds a lane, and every code is exact in bf16"},
    TableRow{&kCardAvx512Int8, "16 lanes a vector"},
    TableRow{&kCardAvx2Int8, "8 lanes a vector"},
    TableRow{&kCardTritonInt8, "portable"},
    TableRow{&kCardRefInt8, "scalar; for proof, not for speed"},
};
static_assert(listed_once(kRows));

bool serves(const Scheme& scheme) {
  return scheme.weight.quantized() && scheme.weight.element == Element::int8 && scheme.activation;
}

}  // namespace

constinit const SchemeTable kInt8Table{{.name = "int8", .rows = kRows, .built = is_built}, serves};

}  // namespace moracle
