// moracle explain: which kernel serves each layer, and why the others do not.
#include <fmt/format.h>

#include "cli/options.h"
#include "cli/program.h"

namespace moracle::cli {

namespace {

struct ExplainOptions : BackendOptions {
  std::string model;
  std::string device = "cpu";
  std::string engine = "moracle";
  bool all = false;
  bool json = false;
};

// Modules that are the same problem with the same outcome.
struct DistinctLayer {
  const ModuleReport* first;
  std::vector<std::string> names;
};

std::vector<DistinctLayer> distinct_layers(const LoadPlan& plan) {
  std::vector<DistinctLayer> layers;
  for (const ModuleReport& module : plan.modules()) {
    if (!module.problem || !module.decision) continue;
    const auto same = std::find_if(layers.begin(), layers.end(), [&](const DistinctLayer& layer) {
      return *layer.first->problem == *module.problem && layer.first->decision->winner == module.decision->winner;
    });
    if (same != layers.end()) {
      same->names.push_back(module.name);
    } else {
      layers.push_back({&module, {module.name}});
    }
  }
  return layers;
}

Json layer_json(const DistinctLayer& layer) {
  const ModuleReport& module = *layer.first;
  const Decision& decision = *module.decision;
  const auto& activation = module.scheme.activation;
  return {{"names", layer.names},
          {"kind", module.kind},
          {"scheme",
           {{"weight", to_string(module.scheme.weight)},
            {"activation", activation ? Json(to_string(*activation)) : Json(nullptr)}}},
          {"backend", decision.winner != nullptr ? Json(decision.winner->backend) : Json(nullptr)},
          {"trace", trace_json(decision)},
          {"warnings", decision.warnings}};
}

std::string layer_text(const DistinctLayer& layer, bool all) {
  const ModuleReport& module = *layer.first;
  std::string text = layer.names.front();
  if (layer.names.size() > 1) text += fmt::format(" and {} more like it", layer.names.size() - 1);
  text += "\n" + explain_table(*module.problem, *module.decision, all);
  if (text.back() != '\n') text += "\n";
  return text + "\n";
}

Result<> explain(const ExplainOptions& options, Console& console) {
  if (options.engine != "moracle") {
    return Error{.code = "engine.unavailable",
                 .where = "--engine",
                 .wanted = "moracle",
                 .found = "'" + options.engine + "', whose tables are not part of this version"};
  }
  MORACLE_ASSIGN(const Machine machine, resolve_machine(options.device));
  MORACLE_ASSIGN(const auto checkpoint, Checkpoint::open(options.model));
  MORACLE_ASSIGN(const auto plan, LoadPlan::make(checkpoint, machine, options.policy_value()));
  const std::vector<DistinctLayer> layers = distinct_layers(*plan);
  if (options.json) {
    Json list = Json::array();
    for (const DistinctLayer& layer : layers) list.push_back(layer_json(layer));
    console.json({{"device", to_json(machine)}, {"layers", std::move(list)}});
    return Ok{};
  }
  console.out(fmt::format("{} on {}\n\n", options.model, machine.name));
  for (const DistinctLayer& layer : layers) {
    if (options.all || layer.first->kind == "experts") console.out(layer_text(layer, options.all));
  }
  for (const std::string& warning : plan->warnings()) console.out("warning: " + warning + "\n");
  return Ok{};
}

}  // namespace

void add_explain(CLI::App& root, Program& program) {
  CLI::App* command = root.add_subcommand("explain", "The oracle's decision for each distinct layer, and its reasons");
  auto options = std::make_shared<ExplainOptions>();
  add_model(*command, options->model);
  options->add(*command);
  command->add_option("--device", options->device, "Machine to decide for: cpu, a name (see `devices`), a JSON file")
      ->type_name("NAME|FILE.json");
  command->add_option("--engine", options->engine, "Whose tables decide")
      ->type_name("moracle|reference")
      ->check(CLI::IsMember({"moracle", "reference"}));
  command->add_flag("--all", options->all, "All reasons of every candidate, and the linear layers too");
  add_json(*command, options->json);
  command->footer("Reads headers only, no weight.\nExample:\n  moracle explain ./gpt-oss-20b --device h200 --all");
  command->callback([options, &program] {
    program.action = [options, &program] {
      const auto result = explain(*options, program.console);
      return result.ok() ? 0 : program.console.fail(result.error());
    };
  });
}

}  // namespace moracle::cli
