#include "cli/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "cli/screen.h"
#include "oracle/explain.h"

namespace moracle::cli {

namespace {

// The module at the start of "model.layers.0.mlp.experts: text"; null: the warning is about none.
const ModuleReport* module_of(const std::string& warning, const LoadPlan& plan) {
  const std::string name = warning.substr(0, warning.find(": "));
  const auto& modules = plan.modules();
  const auto found =
      std::find_if(modules.begin(), modules.end(), [&](const auto& module) { return module.name == name; });
  return found == modules.end() ? nullptr : &*found;
}

bool is_of_decision(const std::string& text, const ModuleReport& module) {
  if (!module.decision) return false;
  const auto& warnings = module.decision->warnings;
  return std::find(warnings.begin(), warnings.end(), text) != warnings.end();
}

void add_once(std::string& list, std::string_view word) {
  if ((", " + list + ",").find(fmt::format(", {},", word)) != std::string::npos) return;
  list.append(list.empty() ? "" : ", ").append(word);
}

}  // namespace

std::vector<std::string> warnings_of(const LoadPlan& plan, const WarningChoice& choice) {
  struct Told {
    std::string text;
    std::vector<std::string> modules;
  };
  std::vector<Told> told;
  for (const std::string& warning : plan.warnings()) {
    const ModuleReport* const module = module_of(warning, plan);
    const std::string text = module == nullptr ? warning : warning.substr(module->name.size() + 2);
    if (module != nullptr && !choice.decisions && is_of_decision(text, *module)) continue;
    auto known = std::find_if(told.begin(), told.end(), [&](const Told& each) { return each.text == text; });
    if (known == told.end()) known = told.insert(told.end(), Told{text, {}});
    if (module != nullptr) known->modules.push_back(module->name);
  }
  std::vector<std::string> lines;
  for (const Told& each : told) {
    const auto names = compress_names(each.modules);
    std::string line = each.text;
    for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), 3); ++i) line += (i == 0 ? " (" : ", ") + names[i];
    if (names.size() > 3) line += fmt::format(" and {} more", names.size() - 3);
    lines.push_back(printable(line + (names.empty() ? "" : ")"), kShownLineBytes));
  }
  return lines;
}

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
