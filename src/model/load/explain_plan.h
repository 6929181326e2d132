// The decisions of a plan, grouped by question, for the command line and the public interface.
#pragma once

#include <string>
#include <vector>

#include "base/json/json_fwd.h"
#include "machine/machine.h"
#include "model/model.h"
#include "oracle/explain.h"

namespace moracle {

// MoE layers, and with `linears` every linear layer too; like questions are one group.
[[nodiscard]] std::vector<ExplainedGroup> explain_plan(const LoadPlan& plan, bool linears);

// {"device", "layers", "warnings"} over all layers.
[[nodiscard]] Json explain_plan_json(const LoadPlan& plan, const Machine& machine);

}  // namespace moracle
