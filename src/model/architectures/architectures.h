// The rows of all architectures.
#pragma once

#include "model/spec/architecture.h"

// One line an architecture.
#define MORACLE_ARCHITECTURES(ROW) \
  ROW(kDeepseekV2)                 \
  ROW(kDeepseekV3)                 \
  ROW(kGlm4Moe)                    \
  ROW(kGlm4MoeLite)                \
  ROW(kGptOss)                     \
  ROW(kHyV3)                       \
  ROW(kMinimaxM2)                  \
  ROW(kMixtral)                    \
  ROW(kOlmoe)                      \
  ROW(kQwen2Moe)                   \
  ROW(kQwen35Moe)                  \
  ROW(kQwen3Moe)                   \
  ROW(kQwen3Next)                  \
  ROW(kQwen3VlMoe)                 \
  ROW(kStep3p5)

namespace moracle {

#define MORACLE_DECLARE_ROW(row) extern const Architecture row;
MORACLE_ARCHITECTURES(MORACLE_DECLARE_ROW)
#undef MORACLE_DECLARE_ROW

}  // namespace moracle
