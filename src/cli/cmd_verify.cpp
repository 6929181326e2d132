// moracle verify: holds a checkpoint and the chosen backend against the reference.
#include <fmt/format.h>
#include <unistd.h>

#include "api/documents.h"
#include "base/printable.h"
#include "cli/hub.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/program.h"
#include "cli/screen.h"

namespace moracle::cli {

namespace {

struct VerifyCommand : ModelOptions {
  std::int64_t tokens = 32;
  RankLayout ranks{};
  std::string layout{};
  bool json = false;
};

// "the checkpoint is at fault".
std::string blame(const std::string& fault) {
  return "the " + fault + (fault.find(" and ") == std::string::npos ? " is" : " are") + " at fault";
}

// How far the sum of all ranks lies from the whole.
std::string ranks_text(const RanksVerdict& ranks) {
  return ranks.same_bits ? fmt::format("{:.2e}", ranks.relative) : "other bits";
}

std::string verify_text(const Verification& result) {
  const std::size_t width = screen_width(STDOUT_FILENO);
  const Paint paint(wants_color(STDOUT_FILENO));
  std::vector<Column> columns{{.title = "layer", .narrow = Narrow::wrap},
                              {.title = "backend"},
                              {.title = "max error", .right = true, .narrow = Narrow::drop, .rank = 2},
                              {.title = "mean error", .right = true, .narrow = Narrow::drop, .rank = 3},
                              {.title = "relative", .right = true},
                              {.title = "bound", .right = true},
                              {.title = "cosine", .right = true, .narrow = Narrow::drop, .rank = 1}};
  const bool of_ranks = !result.layers.empty() && result.layers.front().ranks;
  if (of_ranks) columns.push_back({.title = "ranks", .right = true});
  columns.push_back({.title = ""});
  TextTable table(std::move(columns));
  for (const LayerVerdict& layer : result.layers) {
    const LayerDifference& difference = layer.difference;
    std::vector<std::string> cells{printable(layer.name),
                                   layer.backend,
                                   fmt::format("{:.2e}", difference.max_abs),
                                   fmt::format("{:.2e}", difference.mean_abs),
                                   fmt::format("{:.2e}", difference.relative),
                                   fmt::format("{:.2e}", layer.bound),
                                   fmt::format("{:.8f}", difference.cosine)};
    if (of_ranks) cells.push_back(ranks_text(*layer.ranks));
    cells.push_back(layer.right() ? paint.good("ok") : paint.bad("WRONG"));
    table.row(std::move(cells));
  }
  std::string text = table.text(width, paint);
  for (const Finding& finding : result.findings) {
    const bool error = finding.severity == Finding::Severity::error;
    text += paragraph((error ? paint.bad("error") : paint.warning("warning")) + ": ",
                      printable(finding.tensor + ": " + finding.finding), width, 9);
  }
  const std::string fault = fault_of(result);
  if (result.interrupted) return text + "interrupted: not everything was checked\n";
  return text + (fault.empty() ? "everything is in order\n" : "something is wrong: " + blame(fault) + "\n");
}

Result<int> verify_command(const VerifyCommand& options, Console& console) {
  tell_no_cache(console, options.no_cache);
  MORACLE_ASSIGN(const Place place, options.place());
  MORACLE_ASSIGN(const auto folder, locate_model(options.model));
  MORACLE_ASSIGN(const auto checkpoint, Checkpoint::open(folder));
  const Policy policy = options.policy_value(place);
  MORACLE_ASSIGN(const auto plan, LoadPlan::make(checkpoint, {place.host, place.device}, policy));
  ThreadPool pool(options.threads > 0 ? options.threads : place.host.cores);
  tell_plan(console, *plan, pool.threads());
  if (const std::string fewer = pool.shortfall(); !fewer.empty()) console.warn(fewer);
  VerifyOptions verification;
  verification.tokens = options.tokens;
  verification.layout = options.layout;
  verification.ranks = options.ranks;
  verification.device = place.device;
  verification.batch_invariant = policy.batch_invariant;
  verification.interrupted = [] { return interrupted(); };
  verification.on_progress = [&](std::int64_t done, std::int64_t total) {
    console.progress("verifying", static_cast<double>(done), static_cast<double>(total));
  };
  MORACLE_ASSIGN(const Verification result, verify(*plan, pool, verification));
  console.end_progress();
  if (options.json) {
    console.json(verify_json(result));
  } else {
    console.out(verify_text(result));
  }
  if (result.interrupted) return interrupt_exit_code();
  if (result.ok()) return 0;
  console.note("moracle: error: verification failed: " + blame(fault_of(result)) + "\n");
  return 1;
}

}  // namespace

void add_verify(CLI::App& root, Program& program) {
  CLI::App* command =
      root.add_subcommand("verify", "Check weights, and hold every MoE layer against the fp32 reference");
  auto options = std::make_shared<VerifyCommand>();
  options->add(*command, false);
  add_ranks(*command, options->ranks);
  command->add_option("--tokens", options->tokens, "Tokens per layer, more where every expert needs them (default: 32)")
      ->type_name("N")
      ->check(whole_number(1, 65536));
  command
      ->add_option("--layout", options->layout,
                   "Pack the experts in another device's layout (marlin, trtllm, ...) and run the packed bytes here")
      ->type_name("NAME")
      ->check(named("a layout"));
  add_json(*command, options->json);
  command->footer(
      "Example:\n  moracle verify ./Qwen3-30B-A3B-GPTQ-Int4 --backend avx2\n"
      "  moracle verify ./Qwen3-30B-A3B-GPTQ-Int4 --tp 2 --ep 2");
  command->callback([options, &program] {
    program.action = [options, &program] {
      const auto code = verify_command(*options, program.console);
      return code.ok() ? *code : program.console.fail(as_options(code.error()));
    };
  });
}

}  // namespace moracle::cli
