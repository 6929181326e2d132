// moracle explain: which kernel serves each layer, and why the others do not.
#include <fmt/format.h>
#include <unistd.h>

#include "cli/options.h"
#include "cli/program.h"
#include "engine/explain_plan.h"

namespace moracle::cli {

namespace {

struct ExplainCommand : BackendOptions {
  std::string model;
  std::string device = "cpu";
  std::string engine = "moracle";
  bool all = false;
  bool json = false;
};

Result<> explain(const ExplainCommand& options, Console& console) {
  if (options.engine != "moracle") {
    return Error{.code = "engine.unavailable",
                 .where = "--engine",
                 .wanted = "moracle",
                 .found = "'" + options.engine + "', whose tables are not part of this version"};
  }
  MORACLE_ASSIGN(const Machine machine, resolve_machine(options.device));
  MORACLE_ASSIGN(const auto checkpoint, Checkpoint::open(options.model));
  MORACLE_ASSIGN(const auto plan, LoadPlan::make(checkpoint, machine, options.policy_value()));
  if (options.json) {
    console.json(explain_plan_json(*plan, machine));
    return Ok{};
  }
  // The linears are shown on request: the experts are what the tool is about.
  const auto groups = explain_plan(*plan, options.all);
  console.out(fmt::format("{} on {}\n\n", options.model, machine.name));
  console.out(render_explain(groups, {.all = options.all, .color = is_terminal(STDOUT_FILENO)}));
  for (const std::string& warning : plan->warnings()) console.out("warning: " + warning + "\n");
  return Ok{};
}

}  // namespace

void add_explain(CLI::App& root, Program& program) {
  CLI::App* command = root.add_subcommand("explain", "The oracle's decision for each distinct layer, and its reasons");
  auto options = std::make_shared<ExplainCommand>();
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
