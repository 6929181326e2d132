// moracle explain: which kernel serves each layer, and why the others do not.
#include <fmt/format.h>
#include <unistd.h>

#include "base/printable.h"
#include "cli/explain_vllm.h"
#include "cli/options.h"
#include "cli/program.h"
#include "engine/explain_plan.h"

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
  if (!options.requests.empty()) return answer_vllm_requests(options.requests, console);
  MORACLE_ASSIGN(const Machine machine, resolve_machine(options.device));
  MORACLE_ASSIGN(const auto checkpoint, Checkpoint::open(options.model));
  const bool vllm = options.engine != "moracle";
  // vLLM's backend names differ from those of Moracle's own tables.
  MORACLE_ASSIGN(const auto plan, LoadPlan::make(checkpoint, machine, vllm ? Policy{} : options.policy_value()));
  if (vllm) {
    const VllmOptions asked{.model = options.model,
                            .environment = options.environment,
                            .static_order = options.order == "static",
                            .all = options.all,
                            .json = options.json};
    return explain_vllm(*plan, machine, options.policy_value(), asked, console);
  }
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
  for (const std::string& warning : plan->warnings())
    console.out("warning: " + printable(warning, kShownLineBytes) + "\n");
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
  CLI::Option* requests = command
                              ->add_option("--requests", options->requests,
                                           "Answer each line {id, oracle, platform, request} as vLLM's oracle would")
                              ->type_name("FILE.jsonl")
                              ->excludes(model);
  options->add(*command);
  command->add_option("--device", options->device, "Machine to decide for: cpu, a name (see `devices`), a JSON file")
      ->type_name("NAME|FILE.json");
  options->cache.add(*command);
  command->add_option("--engine", options->engine, "Whose tables decide")
      ->type_name("moracle|vllm")
      ->check(CLI::IsMember({"moracle", "vllm", "reference"}));  // "reference": an earlier name of vllm
  CLI::Option* order =
      command
          ->add_option("--order", options->order,
                       "Of vLLM's integer weights: capable looks at zero points, bias and source; static does "
                       "not, and says where the two differ")
          ->type_name("capable|static")
          ->check(CLI::IsMember({"capable", "static"}));
  CLI::Option* environment =
      command->add_option("--env", options->environment, "A variable that vLLM finds set; repeatable")
          ->type_name("NAME=VALUE")
          ->allow_extra_args(false)
          ->check(assignment());
  command->add_flag("--all", options->all, "All reasons of every candidate, and the linear layers too");
  add_json(*command, options->json);
  command->footer(
      "Reads headers and small vectors, no weight.\nExample:\n  moracle explain ./gpt-oss-20b --device h200 --all");
  command->callback([options, &program, model, requests, order, environment] {
    const bool of_vllm = order->count() + environment->count() > 0;
    if (of_vllm && options->engine == "moracle")
      throw CLI::ValidationError("--order and --env belong to --engine vllm");
    if (model->count() + requests->count() == 0) throw CLI::RequiredError("MODEL or --requests FILE.jsonl");
    program.action = [options, &program] {
      const auto result = explain(*options, program.console);
      return result.ok() ? 0 : program.console.fail(result.error());
    };
  });
}

}  // namespace moracle::cli
