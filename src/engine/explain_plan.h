// The decisions of a plan, grouped by question, for the command line and the public interface.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "engine/tuning_cache.h"
#include "machine/machine.h"
#include "model/model.h"
#include "oracle/explain.h"

namespace moracle {

// Experts layers, and with `linears` every linear layer too; like questions are one group.
[[nodiscard]] std::vector<ExplainedGroup> explain_plan(const LoadPlan& plan, bool linears);

// What is known of a group's measured settings, in words; empty where its kernel measures none.
[[nodiscard]] std::string explain_tuning(const LoadPlan& plan, const ExplainedGroup& group, const TuningCache& tunings);

// {"device", "layers", "warnings"} over all layers. With `tunings`, a layer whose kernel measures settings has
// "tuning":
// {"state": "known" | "unknown" | "too_small"}, and what tuning_json says of what is known.
[[nodiscard]] Json explain_plan_json(const LoadPlan& plan, const Machine& machine,
                                     const TuningCache* tunings = nullptr);

}  // namespace moracle
