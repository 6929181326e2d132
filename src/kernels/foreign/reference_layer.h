// What the reference engine's oracle would choose for a layer of an opened checkpoint.
#pragma once

#include "base/result.h"
#include "oracle/decide.h"

namespace moracle {

// The layer and the surroundings as the reference's integration of the publisher's format would hand them over. `table`
// is the oracle that this scheme asks. Errors: "oracle.no_table" for a scheme without one, or a linear layer.
struct ReferenceLayer {
  const Table* table = nullptr;
  Problem problem;
  Policy policy;
};
[[nodiscard]] Result<ReferenceLayer> as_reference(const Problem& problem, const Policy& policy);

}  // namespace moracle
