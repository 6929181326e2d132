// Opens and reads in one step: what is wrong comes out of either.
#pragma once

#include "format/format.h"

namespace moracle::test {

inline Result<CanonicalLinear> open_whole(const Format& format, const ModuleRef& module, TensorClaims& claims) {
  MORACLE_ASSIGN(const StoredLinear stored, format.open(module, claims));
  return stored.read();
}

inline Result<CanonicalExperts> open_whole(const Format& format, const ExpertsRef& ref, TensorClaims& claims) {
  MORACLE_ASSIGN(const StoredExperts stored, open_experts(format, ref, claims));
  return stored.read();
}

}  // namespace moracle::test
