// moracle verify: holds a checkpoint and the chosen backend against the reference.
#include <fmt/format.h>

#include <cmath>

#include "base/printable.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/program.h"
#include "engine/verify.h"

namespace moracle::cli {

namespace {

struct VerifyCommand : ModelOptions {
  std::int64_t tokens = 32;
  std::string layout{};
  bool json = false;
};

std::string fault_of(const Verification& result) {
  if (!result.checkpoint_ok()) return result.backend_ok() ? "checkpoint" : "checkpoint and backend";
  return result.backend_ok() ? "" : "backend";
}

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json verify_json(const Verification& result) {
  Json layers = Json::array();
  for (const LayerVerdict& layer : result.layers) {
    layers.push_back({{"name", layer.name},
                      {"backend", layer.backend},
                      {"max_abs_err", number(layer.difference.max_abs)},
                      {"mean_abs_err", number(layer.difference.mean_abs)},
                      {"rel_err", number(layer.difference.relative)},
                      {"cosine", number(layer.difference.cosine)},
                      {"bound", layer.bound},
                      {"ok", layer.ok}});
  }
  Json findings = Json::array();
  for (const Finding& finding : result.findings) {
    findings.push_back({{"tensor", finding.tensor},
                        {"finding", finding.finding},
                        {"severity", finding.severity == Finding::Severity::error ? "error" : "warning"}});
  }
  const std::string fault = fault_of(result);
  return {{"layers", std::move(layers)}, {"checkpoint_findings", std::move(findings)},
          {"ok", result.ok()},           {"fault", fault.empty() ? Json(nullptr) : Json(fault)},
          {"tokens", result.tokens},     {"interrupted", result.interrupted}};
}

std::string verify_text(const Verification& result) {
  std::vector<std::vector<std::string>> rows = {
      {"layer", "backend", "max error", "mean error", "relative", "bound", "cosine", ""}};
  for (const LayerVerdict& layer : result.layers) {
    const LayerDifference& difference = layer.difference;
    rows.push_back({layer.name, layer.backend, fmt::format("{:.2e}", difference.max_abs),
                    fmt::format("{:.2e}", difference.mean_abs), fmt::format("{:.2e}", difference.relative),
                    fmt::format("{:.2e}", layer.bound), fmt::format("{:.8f}", difference.cosine),
                    layer.ok ? "ok" : "WRONG"});
  }
  std::string text = text_table(rows, {false, false, true, true, true, true, true, false});
  for (const Finding& finding : result.findings) {
    text += fmt::format("{}: {}: {}\n", finding.severity == Finding::Severity::error ? "error" : "warning",
                        printable(finding.tensor), printable(finding.finding));
  }
  const std::string fault = fault_of(result);
  if (result.interrupted) return text + "interrupted: not everything was checked\n";
  return text + (fault.empty() ? "everything is in order\n" : "something is wrong: the " + fault + " at fault\n");
}

Result<int> verify_command(const VerifyCommand& options, Console& console) {
  MORACLE_ASSIGN(const Machine machine, options.machine());
  MORACLE_ASSIGN(const auto checkpoint, Checkpoint::open(options.model));
  MORACLE_ASSIGN(const auto plan, LoadPlan::make(checkpoint, machine, options.policy_value()));
  console.note(decision_lines(*plan));
  ThreadPool pool(options.threads > 0 ? options.threads : machine.cores);
  if (const std::string fewer = pool.shortfall(); !fewer.empty()) console.warn(fewer);
  VerifyOptions verification;
  verification.tokens = options.tokens;
  verification.layout = options.layout;
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
  console.note("moracle: error: verification failed: the " + fault_of(result) + " at fault\n");
  return 1;
}

}  // namespace

void add_verify(CLI::App& root, Program& program) {
  CLI::App* command =
      root.add_subcommand("verify", "Hold every experts layer against the fp32 reference, check weights");
  auto options = std::make_shared<VerifyCommand>();
  options->add(*command);
  command->add_option("--tokens", options->tokens, "Tokens per layer (more where needed to reach every expert)")
      ->type_name("N")
      ->capture_default_str()
      ->check(whole_number(1, 65536));
  command
      ->add_option("--layout", options->layout,
                   "Pack the experts in another device's layout (marlin, trtllm, ...) and run the packed bytes here")
      ->type_name("NAME");
  add_json(*command, options->json);
  command->footer("Example:\n  moracle verify ./Qwen3-30B-A3B-GPTQ-Int4 --backend avx2");
  command->callback([options, &program] {
    program.action = [options, &program] {
      const auto code = verify_command(*options, program.console);
      return code.ok() ? *code : program.console.fail(code.error());
    };
  });
}

}  // namespace moracle::cli
