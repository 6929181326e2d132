// Whether a device computes what the layers of a model ask of it: asked before the first weight is read.
#pragma once

#include "kernels/ops.h"
#include "model/spec/spec.h"

namespace moracle {

// Errors: "device.operation", of the first layer whose mixer or router the operations refuse.
Result<> check_operations(const ModelSpec& spec, const Ops& ops, KvType kv);

}  // namespace moracle
