// E2M1 weights with E4M3 scales per 16 under an fp32 scale; activations 16-bit or NVFP4.
#include <array>

#include "kernels/cards.h"
#include "kernels/tables/table_list.h"

namespace moracle {
namespace {

constexpr std::array kRows{
    TableRow{&kCardAmxNvfp4Fast, "tiles, and one VPDPBUSD for few tokens; only where fast numerics are asked for"},
    TableRow{&kCardAmxNvfp4, "tiles of bf16 products, 1024 operations a cycle"},
    TableRow{&kCardAvx512VnniNvfp4Fast,
             "one VPDPBUSD does four multiply-adds a lane; only where fast numerics are asked for"},
    TableRow{&kCardAvx512VnniNvfp4, "one VPDPWSSD does two multiply-adds a lane"},
    TableRow{&kCardAvx512Bf16Nvfp4, "one VDPBF16PS does two multiply-adds a lane, and every code is exact in bf16"},
    TableRow{&kCardAvx512Nvfp4, "16 lanes a vector"},
    TableRow{&kCardAvx2Nvfp4Fast,
             "one VPMADDUBSW does four multiply-adds a lane; only where fast numerics are asked for"},
    TableRow{&kCardAvx2Nvfp4, "one VPMADDWD does two multiply-adds a lane"},
    TableRow{&kCardTrtLlmNvfp4, "packed for one generation, routing inside"},
    TableRow{&kCardCuteDslNvfp4, "written for one generation"},
    TableRow{&kCardFlashInferNvfp4, "both operands in the tensor cores"},
    TableRow{&kCardCutlassNvfp4, "both operands in the tensor cores"},
    TableRow{&kCardMarlinNvfp4, "any NVIDIA GPU from 7.5"},
    TableRow{&kCardMarlinLinearNvfp4, "the same for linears"},
    TableRow{&kCardB12xNvfp4, "quantizes activations that the scheme leaves at 16 bits"},
    TableRow{&kCardFlashInferB12xNvfp4, "the same, through another library"},
    TableRow{&kCardRefNvfp4, "scalar; for proof, not for speed"},
};
static_assert(listed_once(kRows));

bool serves(const Scheme& scheme) {
  return scheme.weight.element == Element::e2m1 && scheme.weight.scale == ScaleType::e4m3;
}

}  // namespace

constinit const SchemeTable kNvfp4Table{{.name = "nvfp4", .rows = kRows, .built = is_built}, serves};

}  // namespace moracle
