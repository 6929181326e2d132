// The layouts that vLLM's kernels read, by family: each is a card of kernels/layouts/.
#pragma once

#include <array>

#include "kernels/layouts/cards.h"

namespace moracle::vllm {

template <class... Cards>
constexpr std::array<const KernelCard*, sizeof...(Cards)> layouts_of(const Cards&... cards) {
  return {&cards...};
}

inline constexpr auto kMarlinLayouts =
    layouts_of(kCardMarlinWna16, kCardMarlinFp8, kCardMarlinMxfp4, kCardMarlinMxfp8, kCardMarlinNvfp4);
inline constexpr auto kTritonLayouts = layouts_of(kCardTritonValues, kCardTritonFp8, kCardTritonInt8);
inline constexpr auto kBatchedTritonLayouts = layouts_of(kCardTritonValues, kCardTritonFp8);
inline constexpr auto kTritonWNA16Layouts = layouts_of(kCardTritonWna16);
inline constexpr auto kTrtLlmMxint4Layouts = layouts_of(kCardTrtLlmMxint4);
inline constexpr auto kTrtLlmFp8MonolithicLayouts = layouts_of(kCardTrtLlmFp8, kCardTrtLlmFp8Block, kCardTrtLlmMxfp8);
inline constexpr auto kTrtLlmFp8ModularLayouts = layouts_of(kCardTrtLlmFp8Block, kCardTrtLlmMxfp8);
inline constexpr auto kTrtLlmBf16Layouts = layouts_of(kCardTrtLlmValues);
inline constexpr auto kTrtLlmMxfp4Layouts = layouts_of(kCardTrtLlmMxfp4);
inline constexpr auto kTrtLlmNvFp4Layouts = layouts_of(kCardTrtLlmNvfp4);
inline constexpr auto kCuteDslLayouts = layouts_of(kCardCuteDslNvfp4);
inline constexpr auto kFlashInferB12xLayouts = layouts_of(kCardFlashInferB12xNvfp4);
inline constexpr auto kCutlassFp4Layouts = layouts_of(kCardCutlassNvfp4);
inline constexpr auto kCutlassMxfp4Layouts = layouts_of(kCardCutlassMxfp4);
inline constexpr auto kAiterFp8Layouts = layouts_of(kCardAiterFp8);
inline constexpr auto kAiterUnquantizedLayouts = layouts_of(kCardAiterValues);
inline constexpr auto kAiterMxfp4Layouts = layouts_of(kCardAiterMxfp4);
inline constexpr auto kXPUWNA16Layouts = layouts_of(kCardXpuInt4);

}  // namespace moracle::vllm
