#include "engine/explain_plan.h"

#include <algorithm>

#include "base/checked.h"

namespace moracle {

namespace {

// Whether the group's kernel measures settings of such layers.
bool tunes(const ExplainedGroup& group) {
  if (group.problem.kind != ProblemKind::experts || group.decision.winner == nullptr) return false;
  const KernelImplementation* const kernel = find_implementation(group.decision.winner->id);
  return kernel != nullptr && kernel->tunes;
}

std::optional<RememberedTuning> known_tuning(const ExplainedGroup& group, const TuningCache& tunings) {
  return tunings.find(tuning_kind(group.problem, *group.decision.winner));
}

// By what is on disk: a packed layer has about as many bytes.
bool large_enough(const LoadPlan& plan, const ExplainedGroup& group) {
  const auto& modules = plan.modules();
  const auto module = std::find_if(modules.begin(), modules.end(),
                                   [&](const ModuleReport& report) { return report.name == group.names.front(); });
  return module != modules.end() && narrow<std::int64_t>(module->bytes) >= kLeastTunedBytes;
}

}  // namespace

std::vector<ExplainedGroup> explain_plan(const LoadPlan& plan, bool linears) {
  std::vector<ExplainedLayer> layers;
  for (const ModuleReport& module : plan.modules()) {
    if (!module.problem || !module.decision || (!linears && module.kind != "experts")) continue;
    layers.push_back({module.name, *module.problem, *module.decision});
  }
  return group_layers(layers);
}

std::string explain_tuning(const LoadPlan& plan, const ExplainedGroup& group, const TuningCache& tunings) {
  if (!tunes(group)) return {};
  if (const auto tuning = known_tuning(group, tunings)) return tuning_text(*tuning);
  return large_enough(plan, group) ? "not measured yet; the first load measures it"
                                   : "defaults, the layer is too small to measure";
}

Json explain_plan_json(const LoadPlan& plan, const Machine& machine, const TuningCache* tunings) {
  const std::vector<ExplainedGroup> groups = explain_plan(plan, true);
  Json layers = explain_json(groups);
  for (std::size_t i = 0; tunings != nullptr && i < groups.size(); ++i) {
    if (!tunes(groups[i])) continue;
    const auto tuning = known_tuning(groups[i], *tunings);
    Json shown = tuning ? tuning_json(*tuning) : Json::object();
    shown["state"] = tuning ? "known" : large_enough(plan, groups[i]) ? "unknown" : "too_small";
    layers[i]["tuning"] = std::move(shown);
  }
  return {{"device", to_json(machine)}, {"layers", std::move(layers)}, {"warnings", plan.warnings()}};
}

}  // namespace moracle
