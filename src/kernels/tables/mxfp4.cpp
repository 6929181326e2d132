// E2M1 weights with E8M0 scales per 32; activations 16-bit, FP8 or MXFP4.
#include <array>

#include "kernels/cards.h"
#include "kernels/tables/table_list.h"

namespace moracle {
namespace {

constexpr std::array kRows{
    TableRow{&kCardAmxMxfp4Fast, "tiles, and one VPDPBUSD for few tokens; only where fast numerics are asked for"},
    TableRow{&kCardAmxMxfp4, "tiles of bf16 products, 1024 operations a cycle"},
    TableRow{&kCardAvx512VnniMxfp4Fast,
             "one VPDPBUSD does four multiply-adds a lane; only where fast numerics are asked for"},
    TableRow{&kCardAvx512VnniMxfp4, "one VPDPWSSD does two multiply-adds a lane"},
    TableRow{&kCardAvx512Bf16Mxfp4, "one VDPBF16PS does two multiply-adds a lane, and every code is exact in bf16"},
    TableRow{&kCardAvx512Mxfp4, "16 lanes a vector"},
    TableRow{&kCardAvx2Mxfp4Fast,
             "one VPMADDUBSW does four multiply-adds a lane; only where fast numerics are asked for"},
    TableRow{&kCardAvx2Mxfp4, "one VPMADDWD does two multiply-adds a lane"},
    TableRow{&kCardTrtLlmMxfp4, "packed for one generation, routing inside"},
    TableRow{&kCardAiterMxfp4, "written for the device"},
    TableRow{&kCardFlashInferMxfp4, "both operands in the tensor cores"},
    TableRow{&kCardCutlassMxfp4, "both operands in the tensor cores"},
    TableRow{&kCardMarlinMxfp4, "any NVIDIA GPU from 7.5"},
    TableRow{&kCardMarlinLinearMxfp4, "the same for linears"},
    TableRow{&kCardRefMxfp4, "scalar; for proof, not for speed"},
};
static_assert(listed_once(kRows));

bool serves(const Scheme& scheme) {
  return scheme.weight.element == Element::e2m1 && scheme.weight.scale == ScaleType::e8m0;
}

}  // namespace

constinit const SchemeTable kMxfp4Table{{.name = "mxfp4", .rows = kRows, .built = is_built}, serves};

}  // namespace moracle
