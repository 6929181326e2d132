#include "cli/report.h"

#include <fmt/format.h>

#include "base/printable.h"
#include "cli/screen.h"

namespace moracle::cli {

namespace {

void add_once(std::string& list, std::string_view word) {
  if ((", " + list + ",").find(fmt::format(", {},", word)) != std::string::npos) return;
  list.append(list.empty() ? "" : ", ").append(word);
}

}  // namespace

std::string model_line(const LoadPlan& plan, int threads, std::size_t width) {
  std::string schemes;
  std::string backends;
  for (const ModuleReport& module : plan.modules()) {
    if (module.kind != "experts") continue;
    add_once(schemes, to_string(module.scheme.weight));
    if (module.decision && module.decision->winner != nullptr) add_once(backends, module.decision->winner->backend);
  }
  const ModelInfo& info = plan.info();
  std::string line = "moracle: " + info.architecture;
  if (info.format != "none") schemes = info.format + " " + schemes;
  for (const std::string& part :
       {", " + schemes, "; experts by " + backends, fmt::format(", {} thread{}", threads, threads == 1 ? "" : "s")}) {
    if (columns_of(line) + columns_of(part) <= width) line += part;
  }
  return printable(line) + "\n";
}

}  // namespace moracle::cli
