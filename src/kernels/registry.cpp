// Implementations of this build: those of CPU cards by their targets, of the others one line a card.
#include <algorithm>
#include <array>
#include <utility>

#include "kernels/cards.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/targets/targets.h"
#include "kernels/cuda/host/kernels.h"
#include "kernels/kernel.h"
#include "kernels/layouts/layout_experts.h"
#include "kernels/ref/ref.h"

namespace moracle {

namespace {

// Of one of kCpuCards, whose target this build has.
template <std::size_t kCard>
struct OfCpuCard {
  static constexpr const KernelCard& kOwn = kCpuCards[kCard].card;
  static Result<std::unique_ptr<PackedExperts>> experts(const CanonicalExperts& experts, const PackOptions& options) {
    return cpu::pack_experts(*cpu::find_target(kOwn.backend), kOwn.numerics, experts, options);
  }
  static Result<std::unique_ptr<PackedLinear>> linear(const CanonicalLinear& linear, const PackOptions& options) {
    return cpu::pack_linear(*cpu::find_target(kOwn.backend), kOwn.numerics, linear, options);
  }
};
constexpr auto kCpuImplementations = []<std::size_t... kCard>(std::index_sequence<kCard...>) {
  return std::array{
      KernelImplementation{&kCpuCards[kCard].card, OfCpuCard<kCard>::experts, OfCpuCard<kCard>::linear}...};
}(std::make_index_sequence<kCpuCards.size()>());

constexpr auto kCudaImplementations = [] {
  std::array<KernelImplementation, kPortableCards.size() + kSm90StreamCards.size()> all{};
  std::size_t i = 0;
  for (const KernelCard* const card : kPortableCards) all[i++] = {card, cuda::pack_experts, cuda::pack_linear};
  for (const KernelCard* const card : kSm90StreamCards) all[i++] = {card, cuda::pack_streamed_experts, nullptr};
  return all;
}();

constexpr KernelImplementation kImplementations[] = {
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
  const auto of_card = [&](const KernelImplementation& row) { return row.card->id == card_id; };
  const auto* const cpu = std::find_if(kCpuImplementations.begin(), kCpuImplementations.end(), of_card);
  if (cpu != kCpuImplementations.end()) return cpu::find_target(cpu->card->backend) != nullptr ? cpu : nullptr;
  const auto* const on_gpu = std::find_if(kCudaImplementations.begin(), kCudaImplementations.end(), of_card);
  if (on_gpu != kCudaImplementations.end()) return on_gpu;
  const auto* it = std::find_if(std::begin(kImplementations), std::end(kImplementations), of_card);
  return it == std::end(kImplementations) ? nullptr : it;
}

}  // namespace moracle
