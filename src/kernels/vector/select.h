// Chooses the vector loops for a machine.
#pragma once

#include "kernels/vector/vector_ops.h"
#include "machine/machine.h"

namespace moracle {

// The widest implementation that the features allow; the scalar one where they allow none.
[[nodiscard]] const VectorOps& vector_ops(CpuFeatures features);

}  // namespace moracle
