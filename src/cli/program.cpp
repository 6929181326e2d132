#include "cli/program.h"

#include <exception>

#include "base/guarded.h"
#include "cli/interrupt.h"

namespace moracle::cli {

namespace {

void add_commands(CLI::App& app, Program& program) {
  add_run(app, program);
  add_inspect(app, program);
  add_explain(app, program);
  add_plan(app, program);
  add_eval(app, program);
  add_logits(app, program);
  add_verify(app, program);
  add_bench(app, program);
  add_synth(app, program);
  add_devices(app, program);
}

// The command that the user was in.
const CLI::App& entered_command(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return *at;
}

// "moracle bench layer"; nothing above the program.
std::string path_of(const CLI::App* command) {
  if (command == nullptr) return "";
  const std::string above = path_of(command->get_parent());
  return above.empty() ? command->get_name() : above + " " + command->get_name();
}

int parse_and_run(CLI::App& app, Program& program, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const CLI::App& command = entered_command(app);
    program.console.out(command.help(path_of(command.get_parent())));  // it adds its own name
    return program.console.finish(0);
  } catch (const CLI::CallForVersion&) {
    program.console.out("moracle " MORACLE_VERSION "\n");
    return program.console.finish(0);
  } catch (const CLI::ParseError& error) {
    program.console.note("moracle: wrong usage: " + std::string(error.what()) + "\ntry `" +
                         path_of(&entered_command(app)) + " --help`\n");
    return 2;
  }
  return program.console.finish(program.action());
}

}  // namespace

int run_program(int argc, char** argv) {
  prepare_process();
  Program program;
  const auto run = [&]() -> Result<int> {
    CLI::App app("Runs quantized mixture-of-experts models as published, and says which kernel serves them and why.",
                 "moracle");
    app.set_version_flag("--version", "moracle " MORACLE_VERSION, "Print the version");
    app.require_subcommand(1);
    app.footer(
        "Example:\n  moracle run ./Qwen3-30B-A3B-GPTQ-Int4 -p \"The three laws of robotics are\" -n 64\n"
        "Each command has its own --help.");
    add_commands(app, program);
    return parse_and_run(app, program, argc, argv);
  };
  try {
    const Result<int> code = guarded("run the command", run);
    return code.ok() ? *code : program.console.fail(code.error());
  } catch (const std::exception&) {  // not even memory for the words of the error
    program.console.note("moracle: error: out of memory [memory.exhausted]\n");
  }
  return 1;
}

}  // namespace moracle::cli
