// The command line: one function per sub-command declares its options and its action.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "cli/console.h"

namespace moracle::cli {

// What the parsed command line asks for. Actions return the exit code.
struct Program {
  Console console;
  std::function<int()> action;
};

// Parses, runs, and returns the exit code: 0 done, 1 the work failed, 2 wrong usage, 128 + n ended by signal n.
int run_program(int argc, char** argv);

void add_run(CLI::App& root, Program& program);
// Where the build has it.
void add_serve(CLI::App& root, Program& program);
void add_inspect(CLI::App& root, Program& program);
void add_explain(CLI::App& root, Program& program);
void add_plan(CLI::App& root, Program& program);
void add_eval(CLI::App& root, Program& program);
void add_logits(CLI::App& root, Program& program);
void add_verify(CLI::App& root, Program& program);
void add_bench(CLI::App& root, Program& program);
void add_synth(CLI::App& root, Program& program);
void add_devices(CLI::App& root, Program& program);
void add_help(CLI::App& root, Program& program);  // help, version, and what writes completions and manual pages

}  // namespace moracle::cli
