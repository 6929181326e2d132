// The interactive chat of `moracle run`.
#pragma once

#include "base/result.h"
#include "cli/console.h"
#include "cli/run_options.h"

namespace moracle::cli {

// Loads the model and talks until the user ends it. The exit code. Errors: those of ModelOptions::open and
// ChatTemplates::check; an error of a turn ends that turn alone.
Result<int> run_chat(const RunOptions& options, Console& console);

}  // namespace moracle::cli
