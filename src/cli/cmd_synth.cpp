// moracle synth: writes a random-weight checkpoint for benchmarks.
#include <fmt/format.h>

#include "base/generic/quantity.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/program.h"
#include "synth/synth.h"

namespace moracle::cli {

namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " ") + name;
  return text;
}

int synth_command(SynthOptions options, bool json, Console& console) {
  options.interrupted = [] { return interrupted(); };
  options.on_progress = [&](std::uint64_t done, std::uint64_t total) {
    console.progress("writing", static_cast<double>(done), static_cast<double>(total));
  };
  const auto result = synthesize(options);
  console.end_progress();
  if (!result.ok()) return console.fail(result.error());
  if (json) {
    console.json({{"folder", options.out.string()},
                  {"bytes", result->bytes},
                  {"files", result->files},
                  {"seconds", result->seconds}});
  } else {
    console.out(fmt::format("{}: {} in {} file{}, {:.1f} s\n", options.out.string(), human_bytes(result->bytes),
                            result->files, result->files == 1 ? "" : "s", result->seconds));
  }
  return 0;
}

}  // namespace

void add_synth(CLI::App& root, Program& program) {
  struct Command {
    SynthOptions options;
    std::string out;
    bool json = false;
  };
  CLI::App* command = root.add_subcommand("synth", "Write a random-weight checkpoint of an architecture's real shapes");
  auto state = std::make_shared<Command>();
  command->add_option("architecture", state->options.architecture, "Which shapes")->type_name("ARCH")->required();
  command->add_option("--scheme", state->options.scheme, "How the weights are quantized")->type_name("S")->required();
  command->add_option("--layers", state->options.layers, "Layers (default: all of the real model)")
      ->type_name("N")
      ->check(whole_number(1, 1000));
  command->add_option("--seed", state->options.seed, "Seed of the random weights (default: 0)")
      ->type_name("S")
      ->check(whole_number(0, INT32_MAX));
  command->add_option("--out", state->out, "New folder; appears whole or not at all")->type_name("DIR")->required();
  add_json(*command, state->json);
  command->footer("Architectures: " + joined(synth_architectures()) + "\nSchemes: " + joined(synth_schemes()) +
                  "\nExample:\n  moracle synth qwen3-30b-a3b --scheme int4-g128 --layers 4 --out ./qwen3-4-layers");
  command->callback([state, &program] {
    state->options.out = state->out;
    program.action = [state, &program] { return synth_command(state->options, state->json, program.console); };
  });
}

}  // namespace moracle::cli
