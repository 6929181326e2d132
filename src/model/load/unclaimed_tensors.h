// The tensors that no module claims: what text needs none of is set aside, known by the module that it hangs on, and
// what a text layer could have used is refused.
#pragma once

#include <string>
#include <vector>

#include "format/format.h"
#include "model/model.h"
#include "model/spec/spec.h"

namespace moracle {

// Sorts what no module has claimed. Returns a warning that counts what was set aside, empty where there is nothing:
//   - whatever hangs on no part of the text model: towers, projectors, heads for other tasks, draft heads;
//   - in its layers, scales of caches, attention and outputs, state of quantizers, rotary tables, masks, and scales of
//     the inputs of modules that are unquantized;
//   - layers beyond the model's, where the architecture has draft heads there or one shows their parts.
// Errors: "tensor.unused", naming the rest and the likely cause.
Result<std::string> sort_unclaimed_tensors(const ModelSpec& spec, const TensorClaims& claims,
                                           const std::vector<ModuleReport>& modules);

}  // namespace moracle
