#include "cli/program.h"

#include <exception>

#include "base/guarded.h"
#include "base/printable.h"
#include "cli/interrupt.h"
#include "cli/option_table.h"
#include "cli/screen.h"

namespace moracle::cli {

namespace {

void add_commands(CLI::App& app, Program& program) {
  add_run(app, program);
#ifdef MORACLE_SERVE
  add_serve(app, program);
#endif
  add_inspect(app, program);
  add_explain(app, program);
  add_plan(app, program);
  add_verify(app, program);
  add_eval(app, program);
  add_logits(app, program);
  add_bench(app, program);
  add_synth(app, program);
  add_devices(app, program);
  add_help(app, program);
}

// The command that the user was in.
const CLI::App& entered_command(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return *at;
}

// Of the first word that is neither a command nor an option of `command`; empty: there is none.
std::string unknown_word_of(const CLI::App& command) {
  const std::vector<std::string> words = command.remaining();
  return words.empty() ? "" : unknown_word(words.front(), command_table(command));
}

// What is required and was not given; empty: nothing.
std::string missing_word(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_required() || option->count() > 0) continue;
    const std::string name = option->get_positional() ? "" : "--" + option->get_lnames().front() + " ";
    return name + option->get_type_name() + " is missing: " + option->get_description();
  }
  return "";
}

// What the parser says of a value that is missing or one too many, in plain words.
std::string plain_words(const std::string& text) {
  const std::size_t colon = text.find(": ");
  if (colon == std::string::npos) return text;
  const std::string name = text.substr(0, colon);
  if (text.ends_with(" missing")) return name + " needs a value";
  if (text.find("At Most 1 required", colon) != std::string::npos) return name + " is given more than once";
  return text;
}

int wrong_usage(Program& program, const CLI::App& command, const std::string& what) {
  return program.console.wrong_usage(what, path_of(&command));
}

int parse_and_run(CLI::App& app, Program& program, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const CLI::App& command = entered_command(app);
    const std::string unknown = command.get_subcommands({}).empty() ? "" : unknown_word_of(command);
    if (!unknown.empty()) return wrong_usage(program, command, unknown);
    program.console.out(help_text(command_table(command), screen_width(STDOUT_FILENO)));
    return program.console.finish(0);
  } catch (const CLI::CallForVersion&) {
    program.console.out("moracle " MORACLE_VERSION "\n");
    return program.console.finish(0);
  } catch (const CLI::ParseError& error) {
    const CLI::App& command = entered_command(app);
    std::string what = unknown_word_of(command);
    if (what.empty()) what = missing_word(command);
    if (what.empty() && command.get_subcommands({}).empty()) what = plain_words(printable(error.what()));
    if (!what.empty()) return wrong_usage(program, command, what);
    program.console.note(help_text(command_table(command), screen_width(STDERR_FILENO)));
    return wrong_usage(program, command, "a command is missing");
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
    app.set_help_flag("-h,--help", "Show this help");
    app.set_version_flag("--version", "moracle " MORACLE_VERSION, "Show the version");
    app.require_subcommand(1);
    app.footer(
        "`moracle COMMAND --help` tells the options of a command.\n"
        "Example:\n  moracle run ./Qwen3-30B-A3B-GPTQ-Int4 -p \"The three laws of robotics are\" -n 64");
    add_commands(app, program);
    return parse_and_run(app, program, argc, argv);
  };
  try {
    const Result<int> code = guarded("run the command", run);
    return code.ok() ? *code : program.console.fail(code.error());
  } catch (const std::exception&) {  // not even memory for the words of the error
    program.console.note(kOutOfMemoryLine);
  }
  return 1;
}

}  // namespace moracle::cli
