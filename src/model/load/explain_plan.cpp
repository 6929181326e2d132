#include "model/load/explain_plan.h"

#include "base/json.h"

namespace moracle {

std::vector<ExplainedGroup> explain_plan(const LoadPlan& plan, bool linears) {
  std::vector<ExplainedLayer> layers;
  for (const ModuleReport& module : plan.modules()) {
    if (!module.problem || !module.decision || (!linears && module.kind != "experts")) continue;
    layers.push_back({.name = module.name, .problem = *module.problem, .decision = *module.decision});
  }
  return group_layers(layers);
}

Json explain_plan_json(const LoadPlan& plan, const Machine& machine) {
  return {
      {"device", to_json(machine)}, {"layers", explain_json(explain_plan(plan, true))}, {"warnings", plan.warnings()}};
}

}  // namespace moracle
