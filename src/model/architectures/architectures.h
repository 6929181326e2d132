// The rows of all architectures.
#pragma once

#include "model/spec/architecture.h"

// One line an architecture.
#define MORACLE_ARCHITECTURES(ROW) \
  ROW(kAfmoe)                      \
  ROW(kAxk1)                       \
  ROW(kBailingHybrid)              \
  ROW(kCohere2Moe)                 \
  ROW(kDeepseekV2)                 \
  ROW(kDeepseekV3)                 \
  ROW(kDeepseekV32)                \
  ROW(kDots1)                      \
  ROW(kErnie45Moe)                 \
  ROW(kExaoneMoe)                  \
  ROW(kFlexOlmo)                   \
  ROW(kGemma4)                     \
  ROW(kGlm4Moe)                    \
  ROW(kGlm4MoeLite)                \
  ROW(kGlm4vMoe)                   \
  ROW(kGlmMoeDsa)                  \
  ROW(kGptOss)                     \
  ROW(kGraniteMoe)                 \
  ROW(kGraniteMoeHybrid)           \
  ROW(kGraniteMoeShared)           \
  ROW(kGraniteMoeSwa)              \
  ROW(kHunyuanV1Moe)               \
  ROW(kHyV3)                       \
  ROW(kJamba)                      \
  ROW(kKimiLinear)                 \
  ROW(kLaguna)                     \
  ROW(kLfm2Moe)                    \
  ROW(kLlama4)                     \
  ROW(kLongcatFlash)               \
  ROW(kMellum)                     \
  ROW(kMimoV2Flash)                \
  ROW(kMinimaxM2)                  \
  ROW(kMistral4)                   \
  ROW(kMixtral)                    \
  ROW(kNemotronH)                  \
  ROW(kOlmoe)                      \
  ROW(kPhimoe)                     \
  ROW(kQwen2Moe)                   \
  ROW(kQwen35Moe)                  \
  ROW(kQwen3Moe)                   \
  ROW(kQwen3Next)                  \
  ROW(kQwen3VlMoe)                 \
  ROW(kSarvamMla)                  \
  ROW(kSolarOpen)                  \
  ROW(kStep3p5)

namespace moracle {

#define MORACLE_DECLARE_ROW(row) extern const Architecture row;
MORACLE_ARCHITECTURES(MORACLE_DECLARE_ROW)
#undef MORACLE_DECLARE_ROW

}  // namespace moracle
