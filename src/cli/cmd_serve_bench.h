// moracle bench serve, in builds that have a server: times one, or a model that it serves itself.
#pragma once

#include "cli/program.h"

namespace moracle::cli {

void add_bench_serve(CLI::App& bench, Program& program);

}  // namespace moracle::cli
