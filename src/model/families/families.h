// The registry's declarations, one line a family.
#pragma once

namespace moracle {

struct Family;

extern const Family kMixtral;
extern const Family kQwen3Moe;

}  // namespace moracle
