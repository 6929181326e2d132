// moracle explain: which kernel serves each layer, and why the others do not.
#include <fmt/format.h>
#include <unistd.h>

#include "api/documents.h"
#include "base/printable.h"
#include "cli/explain_text.h"
#include "cli/explain_vllm.h"
#include "cli/hub.h"
#include "cli/option_table.h"
#include "cli/options.h"
#include "cli/program.h"
#include "cli/report.h"
#include "cli/screen.h"
#include "model/load/device_room.h"
#include "model/load/explain_plan.h"

namespace moracle::cli {

namespace {

struct ExplainCommand : BackendOptions {
  std::string model;
  std::string device = "cpu";
  std::uint64_t vram = 0;  // as in add_vram
  std::string engine = "moracle";
  std::string order = "capable";
  std::vector<std::string> environment;  // NAME=VALUE
  std::string requests;
  bool no_cache = false;
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

Result<> explain(const ExplainCommand& options, Console& console) {
  tell_no_cache(console, options.no_cache);
  if (!options.requests.empty()) return answer_vllm_requests(options.requests, console);
  MORACLE_TRY(check_vram(options.vram, options.device));
  MORACLE_ASSIGN(const Place place, resolve_place(options.device, "--device", options.vram));
  const Machine machine = place.machine();
  MORACLE_ASSIGN(const auto folder, locate_model(options.model));
  MORACLE_ASSIGN(const auto checkpoint, Checkpoint::open(folder));
  const bool vllm = options.engine != "moracle";
  // vLLM's backend names differ from those of Moracle's own tables.
  const Policy policy = options.policy_value(place);
  auto planned = vllm ? LoadPlan::make(checkpoint, place, {}, GpuModules::all)
                      : plan_for_room(checkpoint, place, policy, {}, {.threads = place.host.cores});
  MORACLE_ASSIGN(const std::unique_ptr<LoadPlan> plan, std::move(planned));
  if (vllm) {
    const VllmOptions asked{.model = options.model,
                            .environment = options.environment,
                            .static_order = options.order == "static",
                            .all = options.all,
                            .json = options.json};
    return explain_vllm(*plan, machine, policy, asked, console);
  }
  if (options.json) {
    console.json(explain_plan_json(*plan, machine));
    return Ok{};
  }
  // The linears are shown on request: the experts are what the tool is about.
  const auto groups = explain_plan(*plan, options.all);
  const bool here = place.device != nullptr || machine.fingerprint() == probe_machine().fingerprint();
  const ExplainStyle style = terminal_style(options.all, here);
  console.out(explain_title(options.model, machine, "", style) + explain_text(groups, machine, style));
  for (const std::string& warning : warnings_of(*plan, {.decisions = false}))
    console.out(paragraph(style.paint.warning("warning") + ": ", warning, style.width, 9));
  console.out(explain_hint(style));
  return Ok{};
}

}  // namespace

void add_explain(CLI::App& root, Program& program) {
  CLI::App* command =
      root.add_subcommand("explain", "Tell which kernel serves each distinct layer, and why the others do not");
  auto options = std::make_shared<ExplainCommand>();
  CLI::Option* model =
      command
          ->add_option("model", options->model,
                       "Folder in Hugging Face layout, or org/name of a model in the hub's local cache")
          ->type_name("MODEL");
  CLI::Option* requests = command
                              ->add_option("--requests", options->requests,
                                           "Answer each line {id, oracle, platform, request} as vLLM's oracle would")
                              ->type_name("FILE.jsonl")
                              ->check(named("a file"))
                              ->excludes(model);
  options->add(*command);
  command
      ->add_option("--device", options->device,
                   "Machine to decide for: cpu, cuda:0, a name that `devices` lists, or a JSON file (default: cpu)")
      ->type_name("NAME|FILE.json");
  add_vram(*command, options->vram);
  add_no_cache(*command, options->no_cache);
  command->add_option("--engine", options->engine, "Whose tables decide (default: moracle)")
      ->type_name("moracle|vllm")
      ->check(one_of({"moracle", "vllm", "reference"}));  // "reference": an earlier name of vllm
  CLI::Option* order =
      command
          ->add_option(
              "--order", options->order,
              "Order of vLLM's kernels for integer weights: capable looks at zero points, bias and source; static "
              "does not, and tells where the two differ (default: capable)")
          ->type_name("capable|static")
          ->check(one_of({"capable", "static"}));
  CLI::Option* environment =
      command->add_option("--env", options->environment, "A variable that vLLM finds set; repeatable (default: none)")
          ->type_name("NAME=VALUE")
          ->allow_extra_args(false)
          ->check(assignment());
  command->add_flag("--all", options->all,
                    "Show every backend with all reasons, and the linear layers (default: MoE layers, in short)");
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
