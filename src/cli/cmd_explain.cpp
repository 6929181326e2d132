// moracle explain: which kernel serves each layer, and why the others do not.
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>

#include "cli/options.h"
#include "cli/program.h"
#include "engine/explain_plan.h"
#include "kernels/foreign/reference_layer.h"
#include "kernels/foreign/reference_request.h"
#include "kernels/tables/reference_tables.h"

namespace moracle::cli {

namespace {

struct ExplainCommand : BackendOptions {
  std::string model;
  std::string device = "cpu";
  std::string engine = "moracle";
  std::string order = "capable";
  std::vector<std::string> environment;  // NAME=VALUE
  std::string requests;
  CacheOptions cache;
  bool all = false;
  bool json = false;
};

CLI::Validator assignment() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        const std::size_t sign = text.find('=');
        return sign != std::string::npos && sign > 0 ? "" : "wanted NAME=VALUE, found '" + text + "'";
      },
      "");
}

// One answer a line. A line that cannot be read is told of, and the rest is answered.
Result<> answer_requests(const std::string& path, Console& console) {
  std::ifstream file(path);
  if (!file) return Error{.code = "file.open", .file = path, .wanted = "a readable file of requests", .found = "none"};
  std::string line;
  std::optional<Error> first;
  for (std::int64_t number = 1; std::getline(file, line) && !console.closed(); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const Result<std::string> answer = answer_reference_request(line);
    if (answer.ok()) {
      console.out(answer.value() + "\n");
      continue;
    }
    Error error = answer.error();
    error.file = path + ":" + std::to_string(number);
    console.note(error.code + " " + error.file + " " + error.where + ": " + error.found + "\n");
    if (!first) first = std::move(error);
  }
  if (first) return *first;
  if (file.bad()) return Error{.code = "file.read", .file = path, .wanted = "a readable file", .found = "an error"};
  return Ok{};
}

Policy reference_policy(const ExplainCommand& options) {
  Policy policy = options.policy_value();
  for (const std::string& fact : options.environment) {
    const std::size_t sign = fact.find('=');
    policy.facts.emplace_back(fact.substr(0, sign), fact.substr(sign + 1));
  }
  return policy;
}

// As the table calls it.
std::string choice_of(const Decision& decision) {
  return decision.best_candidate ? std::string(decision.trace[*decision.best_candidate].backend) : "nothing";
}

// With the order alone, what the walk that looks at the checkpoint would have chosen is said where it is another.
Decision decide_by_reference(const ReferenceLayer& layer, const Machine& machine, bool order_alone) {
  Decision walk = decide(layer.problem, machine, layer.policy, *layer.table);
  const Table* const order = order_alone ? static_order_of(*layer.table) : nullptr;
  if (order == nullptr) return walk;
  Decision decision = decide(layer.problem, machine, layer.policy, *order);
  if (choice_of(decision) != choice_of(walk)) {
    decision.warnings.push_back("by the static order " + choice_of(decision) +
                                "; the walk that looks at zero points, bias and source chooses " + choice_of(walk));
  }
  return decision;
}

// What the reference engine would choose for the experts of a model.
Result<> explain_reference(const LoadPlan& plan, const Machine& machine, const ExplainCommand& options,
                           Console& console) {
  std::vector<ExplainedLayer> layers;
  const Policy policy = reference_policy(options);
  for (const ModuleReport& module : plan.modules()) {
    if (!module.problem || module.kind != "experts") continue;
    MORACLE_ASSIGN(const ReferenceLayer layer, as_reference(*module.problem, policy));
    layers.push_back({module.name, *module.problem, decide_by_reference(layer, machine, options.order == "static")});
  }
  const auto groups = group_layers(layers);
  if (options.json) {
    console.json({{"device", to_json(machine)}, {"layers", explain_json(groups)}, {"warnings", Json::array()}});
    return Ok{};
  }
  console.out(fmt::format("{} on {}, by the reference engine's tables\n\n", options.model, machine.name));
  console.out(render_explain(groups, {.all = options.all, .color = wants_color(STDOUT_FILENO)}));
  return Ok{};
}

std::string tuning_lines(const LoadPlan& plan, const std::vector<ExplainedGroup>& groups, const TuningCache& tunings) {
  std::string text;
  for (const ExplainedGroup& group : groups) {
    const std::string tuning = explain_tuning(plan, group, tunings);
    if (tuning.empty()) continue;
    text += fmt::format("tuning of experts {} {}: {}\n", shape_text(group.problem), scheme_text(group.problem.scheme),
                        tuning);
  }
  return text;
}

Result<> explain(const ExplainCommand& options, Console& console) {
  if (!options.requests.empty()) return answer_requests(options.requests, console);
  MORACLE_ASSIGN(const Machine machine, resolve_machine(options.device));
  MORACLE_ASSIGN(const auto checkpoint, Checkpoint::open(options.model));
  const bool reference = options.engine == "reference";
  // The reference's names are not those of Moracle's own tables.
  MORACLE_ASSIGN(const auto plan, LoadPlan::make(checkpoint, machine, reference ? Policy{} : options.policy_value()));
  if (reference) return explain_reference(*plan, machine, options, console);
  // Packed layers and measured settings are kept for the machine they run on.
  const Machine host = probe_machine();
  const bool here = machine.fingerprint() == host.fingerprint();
  const PackCacheOptions kept = options.cache.value(console);
  const auto cache = here ? PackCache::open(kept, checkpoint->identity(), machine, *plan) : nullptr;
  const TuningCache tunings(kept, host, host.cores);
  if (options.json) {
    Json document = explain_plan_json(*plan, machine, here ? &tunings : nullptr);
    if (cache) document["cache"] = {{"file", cache->path().string()}, {"ready", cache->found()}};
    console.json(document);
    return Ok{};
  }
  // The linears are shown on request: the experts are what the tool is about.
  const auto groups = explain_plan(*plan, options.all);
  console.out(fmt::format("{} on {}\n\n", options.model, machine.name));
  console.out(render_explain(groups, {.all = options.all, .color = wants_color(STDOUT_FILENO)}));
  for (const std::string& warning : plan->warnings()) console.out("warning: " + warning + "\n");
  if (here) console.out(tuning_lines(*plan, groups, tunings));
  if (cache) {
    console.out(
        fmt::format("pack cache: {}\n", cache->found() ? "ready, " + cache->path().string() : "nothing kept yet"));
  }
  return Ok{};
}

}  // namespace

void add_explain(CLI::App& root, Program& program) {
  CLI::App* command = root.add_subcommand("explain", "The oracle's decision for each distinct layer, and its reasons");
  auto options = std::make_shared<ExplainCommand>();
  CLI::Option* model =
      command->add_option("model", options->model, "Folder in Hugging Face layout: config.json, *.safetensors")
          ->type_name("MODEL");
  CLI::Option* requests =
      command
          ->add_option("--requests", options->requests,
                       "Answer each line {id, oracle, platform, request} as the reference engine's oracle would")
          ->type_name("FILE.jsonl")
          ->excludes(model);
  options->add(*command);
  command->add_option("--device", options->device, "Machine to decide for: cpu, a name (see `devices`), a JSON file")
      ->type_name("NAME|FILE.json");
  options->cache.add(*command);
  command->add_option("--engine", options->engine, "Whose tables decide")
      ->type_name("moracle|reference")
      ->check(CLI::IsMember({"moracle", "reference"}));
  CLI::Option* order =
      command
          ->add_option("--order", options->order,
                       "Of the reference's integer weights: capable looks at zero points, bias and source; static does "
                       "not, and says where the two differ")
          ->type_name("capable|static")
          ->check(CLI::IsMember({"capable", "static"}));
  CLI::Option* environment =
      command->add_option("--env", options->environment, "A variable that the reference engine finds set; repeatable")
          ->type_name("NAME=VALUE")
          ->allow_extra_args(false)
          ->check(assignment());
  command->add_flag("--all", options->all, "All reasons of every candidate, and the linear layers too");
  add_json(*command, options->json);
  command->footer(
      "Reads headers and small vectors, no weight.\nExample:\n  moracle explain ./gpt-oss-20b --device h200 --all");
  command->callback([options, &program, model, requests, order, environment] {
    const bool of_reference = order->count() + environment->count() > 0;
    if (of_reference && options->engine != "reference")
      throw CLI::ValidationError("--order and --env belong to --engine reference");
    if (model->count() + requests->count() == 0) throw CLI::RequiredError("MODEL or --requests FILE.jsonl");
    program.action = [options, &program] {
      const auto result = explain(*options, program.console);
      return result.ok() ? 0 : program.console.fail(result.error());
    };
  });
}

}  // namespace moracle::cli
