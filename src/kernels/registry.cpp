// Implementations of this build, one line a card.
#include <algorithm>
#include <array>

#include "kernels/cards.h"
#include "kernels/kernel.h"
#include "kernels/layouts/layout_experts.h"
#include "kernels/ref/ref.h"
#if defined(__x86_64__)
#include "kernels/cpu/dispatch.h"
#endif

namespace moracle {

namespace {

#if defined(__x86_64__)
template <const cpu::PanelOps& Ops>
Result<std::unique_ptr<PackedExperts>> panel_experts(const CanonicalExperts& experts, const PackOptions& options) {
  return cpu::pack_experts(Ops, experts, options);
}
template <const cpu::PanelOps& Ops>
Result<std::unique_ptr<PackedLinear>> panel_linear(const CanonicalLinear& linear, const PackOptions& options) {
  return cpu::pack_linear(Ops, linear, options);
}
template <const cpu::PanelOps& Ops>
constexpr KernelImplementation panel(const KernelCard& card) {
  return {&card, panel_experts<Ops>, panel_linear<Ops>};
}
#endif

constexpr KernelImplementation kImplementations[] = {
#if defined(__x86_64__)
    panel<cpu::kAmxIntegerOps>(kCardAmxWna16),
    panel<cpu::kAmxOps>(kCardAmxWna16Short),
    panel<cpu::kAmxFastOps>(kCardAmxWna16Fast),
    panel<cpu::kAmxOps>(kCardAmxInt8),
    panel<cpu::kAmxOps>(kCardAmxW4A8),
    panel<cpu::kAmxOps>(kCardAmxFp8),
    panel<cpu::kAmxOps>(kCardAmxMxfp4),
    panel<cpu::kAmxFastOps>(kCardAmxMxfp4Fast),
    panel<cpu::kAmxOps>(kCardAmxMxfp6),
    panel<cpu::kAmxOps>(kCardAmxMxfp8),
    panel<cpu::kAmxOps>(kCardAmxNvfp4),
    panel<cpu::kAmxFastOps>(kCardAmxNvfp4Fast),
    panel<cpu::kAmxOps>(kCardAmxDense),
    panel<cpu::kAvx512VnniOps>(kCardAvx512VnniInt8),
    panel<cpu::kAvx512VnniOps>(kCardAvx512VnniW4A8),
    panel<cpu::kAvx512VnniOps>(kCardAvx512VnniWna16),
    panel<cpu::kAvx512VnniFastOps>(kCardAvx512VnniWna16Fast),
    panel<cpu::kAvx512VnniOps>(kCardAvx512VnniMxfp4),
    panel<cpu::kAvx512VnniFastOps>(kCardAvx512VnniMxfp4Fast),
    panel<cpu::kAvx512VnniOps>(kCardAvx512VnniNvfp4),
    panel<cpu::kAvx512VnniFastOps>(kCardAvx512VnniNvfp4Fast),
    panel<cpu::kAvx512Bf16Ops>(kCardAvx512Bf16Wna16),
    panel<cpu::kAvx512Bf16Ops>(kCardAvx512Bf16Int8),
    panel<cpu::kAvx512Bf16Ops>(kCardAvx512Bf16W4A8),
    panel<cpu::kAvx512Bf16Ops>(kCardAvx512Bf16Fp8),
    panel<cpu::kAvx512Bf16Ops>(kCardAvx512Bf16Mxfp4),
    panel<cpu::kAvx512Bf16Ops>(kCardAvx512Bf16Mxfp6),
    panel<cpu::kAvx512Bf16Ops>(kCardAvx512Bf16Mxfp8),
    panel<cpu::kAvx512Bf16Ops>(kCardAvx512Bf16Nvfp4),
    panel<cpu::kAvx512Bf16Ops>(kCardAvx512Bf16Dense),
    panel<cpu::kAvx512Ops>(kCardAvx512Wna16),
    panel<cpu::kAvx512Ops>(kCardAvx512Int8),
    panel<cpu::kAvx512Ops>(kCardAvx512W4A8),
    panel<cpu::kAvx512Ops>(kCardAvx512Fp8),
    panel<cpu::kAvx512Ops>(kCardAvx512Mxfp4),
    panel<cpu::kAvx512Ops>(kCardAvx512Mxfp6),
    panel<cpu::kAvx512Ops>(kCardAvx512Mxfp8),
    panel<cpu::kAvx512Ops>(kCardAvx512Nvfp4),
    panel<cpu::kAvx512Ops>(kCardAvx512Dense),
    panel<cpu::kAvx2Ops>(kCardAvx2Wna16),
    panel<cpu::kAvx2FastOps>(kCardAvx2Wna16Fast),
    panel<cpu::kAvx2Ops>(kCardAvx2Int8),
    panel<cpu::kAvx2Ops>(kCardAvx2W4A8),
    panel<cpu::kAvx2Ops>(kCardAvx2Fp8),
    panel<cpu::kAvx2Ops>(kCardAvx2Mxfp4),
    panel<cpu::kAvx2FastOps>(kCardAvx2Mxfp4Fast),
    panel<cpu::kAvx2Ops>(kCardAvx2Mxfp6),
    panel<cpu::kAvx2Ops>(kCardAvx2Mxfp8),
    panel<cpu::kAvx2Ops>(kCardAvx2Nvfp4),
    panel<cpu::kAvx2FastOps>(kCardAvx2Nvfp4Fast),
    panel<cpu::kAvx2Ops>(kCardAvx2Dense),
#endif
    {&kCardRefWna16, ref::pack_experts, ref::pack_linear},
    {&kCardRefInt8, ref::pack_experts, ref::pack_linear},
    {&kCardRefW4A8, ref::pack_experts, ref::pack_linear},
    {&kCardRefFp8, ref::pack_experts, ref::pack_linear},
    {&kCardRefMxfp4, ref::pack_experts, ref::pack_linear},
    {&kCardRefMxfp6, ref::pack_experts, ref::pack_linear},
    {&kCardRefMxfp8, ref::pack_experts, ref::pack_linear},
    {&kCardRefNvfp4, ref::pack_experts, ref::pack_linear},
    {&kCardRefDense, ref::pack_experts, ref::pack_linear},
    {&kCardMarlinWna16, layout::marlin_wna16_experts, nullptr},
    {&kCardMarlinFp8, layout::marlin_fp8_experts, nullptr},
    {&kCardMarlinMxfp4, layout::marlin_mx_experts, nullptr},
    {&kCardMarlinMxfp8, layout::marlin_mx_experts, nullptr},
    {&kCardMarlinNvfp4, layout::marlin_nvfp4_experts, nullptr},
    {&kCardMarlinLinearWna16, nullptr, layout::marlin_wna16_linear},
    {&kCardMarlinLinearFp8, nullptr, layout::marlin_fp8_linear},
    {&kCardMarlinLinearMxfp4, nullptr, layout::marlin_mx_linear},
    {&kCardMarlinLinearMxfp8, nullptr, layout::marlin_mx_linear},
    {&kCardMarlinLinearNvfp4, nullptr, layout::marlin_nvfp4_linear},
    {&kCardTritonWna16, layout::mapped_experts<layout::kTritonWna16>, nullptr},
    {&kCardTritonInt8, layout::mapped_experts<layout::kInt8Rows>, nullptr},
    {&kCardTritonFp8, layout::mapped_experts<layout::kFp8Rows>, nullptr},
    {&kCardXpuInt4, layout::mapped_experts<layout::kXpuInt4>, nullptr},
    {&kCardTrtLlmMxint4, layout::mapped_experts<layout::kTrtLlmMxint4>, nullptr},
    {&kCardTrtLlmMxfp4, layout::mapped_experts<layout::kTrtLlmMxfp4>, nullptr},
    {&kCardTrtLlmNvfp4, layout::mapped_experts<layout::kTrtLlmNvfp4>, nullptr},
    {&kCardCutlassMxfp4, layout::mapped_experts<layout::kCutlassFp4>, nullptr},
    {&kCardCutlassNvfp4, layout::mapped_experts<layout::kCutlassFp4>, nullptr},
    {&kCardFlashInferMxfp4, layout::mapped_experts<layout::kFlashInferFp4>, nullptr},
    {&kCardFlashInferNvfp4, layout::mapped_experts<layout::kFlashInferFp4>, nullptr},
    {&kCardCuteDslNvfp4, layout::mapped_experts<layout::kCuteDslNvfp4>, nullptr},
    {&kCardB12xNvfp4, layout::b12x_experts, nullptr},
    {&kCardFlashInferB12xNvfp4, layout::b12x_layer_experts<layout::kFlashInferFp4>, nullptr},
    {&kCardTrtLlmFp8, layout::mapped_experts<layout::kTrtLlmFp8Tensor>, nullptr},
    {&kCardTrtLlmFp8Block, layout::mapped_experts<layout::kTrtLlmFp8Block>, nullptr},
    {&kCardTrtLlmMxfp8, layout::mapped_experts<layout::kTrtLlmMxfp8>, nullptr},
    {&kCardFlashInferFp8, layout::mapped_experts<layout::kFlashInferFp8Tensor>, nullptr},
    {&kCardFlashInferFp8Block, layout::mapped_experts<layout::kFlashInferFp8Block>, nullptr},
    {&kCardTritonValues, layout::value_experts<layout::kTritonValues>, nullptr},
    {&kCardFlashInferValues, layout::value_experts<layout::kFlashInferValues>, nullptr},
    {&kCardTrtLlmValues, layout::value_experts<layout::kTrtLlmValues>, nullptr},
    {&kCardAiterValues, layout::value_experts<layout::kAiterValues>, nullptr},
    {&kCardAiterFp8, layout::mapped_experts<layout::kAiterFp8>, nullptr},
    {&kCardAiterMxfp4, layout::aiter_mxfp4_experts, nullptr},
};

}  // namespace

const KernelImplementation* find_implementation(std::string_view card_id) {
  const auto* it = std::find_if(std::begin(kImplementations), std::end(kImplementations),
                                [&](const KernelImplementation& row) { return row.card->id == card_id; });
  return it == std::end(kImplementations) ? nullptr : it;
}

}  // namespace moracle
