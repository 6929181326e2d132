// The registry's declarations, one line a family.
#pragma once

namespace moracle {

struct Family;

extern const Family kDeepseekV2;
extern const Family kDeepseekV3;
extern const Family kGlm4Moe;
extern const Family kGptOss;
extern const Family kMixtral;
extern const Family kOlmoe;
extern const Family kQwen35Moe;
extern const Family kQwen3Moe;
extern const Family kQwen3Next;
extern const Family kStep3p5;

}  // namespace moracle
