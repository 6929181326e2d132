// moracle inspect: what a checkpoint holds, from headers alone.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "api/documents.h"
#include "base/generic/quantity.h"
#include "base/printable.h"
#include "cli/hub.h"
#include "cli/options.h"
#include "cli/program.h"
#include "cli/screen.h"
#include "oracle/explain.h"

namespace moracle::cli {

namespace {

struct InspectOptions {
  std::string model;
  bool json = false;
};

// Numbers between dots, as names of modules and rules have them, become "*": "model.layers.17.mlp" ->
// "model.layers.*.mlp", "re:.*layers\\.3\\.mlp$" -> "re:.*layers\\.*\\.mlp$".
std::string without_numbers(std::string_view name) {
  std::string result;
  for (std::size_t at = 0; at < name.size();) {
    const std::size_t end = std::min(name.find_first_not_of("0123456789", at), name.size());
    const bool begins = at == 0 || name[at - 1] == '.';
    const bool ends = end == name.size() || name[end] == '.' || name.substr(end).starts_with("\\.");
    if (end > at && begins && ends) {
      result += '*';
      at = end;
    } else {
      const std::size_t stop = std::max(end, at + 1);
      result += name.substr(at, stop - at);
      at = stop;
    }
  }
  return result;
}

struct ModuleGroup {
  std::string pattern, kind, scheme, excluded_by;
  std::vector<std::string> names;
  std::uint64_t bytes = 0;
};

// Like modules of all layers share a row.
std::vector<ModuleGroup> group_modules(const std::vector<ModuleReport>& modules) {
  std::vector<ModuleGroup> groups;
  std::map<std::string, std::size_t> index;
  for (const ModuleReport& module : modules) {
    ModuleGroup group{.pattern = without_numbers(module.name),
                      .kind = module.kind,
                      .scheme = to_string(module.scheme),
                      .excluded_by = without_numbers(module.excluded_by),
                      .names = {}};
    const std::string key = group.pattern + "\n" + group.scheme + "\n" + group.excluded_by;
    const auto [it, added] = index.emplace(key, groups.size());
    if (added) groups.push_back(std::move(group));
    groups[it->second].names.push_back(module.name);
    groups[it->second].bytes += module.bytes;
  }
  return groups;
}

// The pattern, or the names with their layers' numbers where another group has the same pattern.
std::string name_of(const ModuleGroup& group, const std::vector<ModuleGroup>& groups) {
  const auto same = std::count_if(groups.begin(), groups.end(),
                                  [&](const ModuleGroup& other) { return other.pattern == group.pattern; });
  const auto names = compress_names(group.names);
  return same == 1 || names.size() != 1 ? group.pattern : names.front();
}

std::string inspect_text(const LoadPlan& plan, const Checkpoint& checkpoint) {
  const ModelInfo& info = plan.info();
  const std::size_t width = screen_width(STDOUT_FILENO);
  const Paint paint(wants_color(STDOUT_FILENO));
  const auto fact = [&](const char* name, const std::string& text) {
    return paragraph(name, printable(text), width, 16);
  };
  std::string text = paragraph("", printable_path(checkpoint.folder().string()), width, 0);
  text += fact("  architecture", fmt::format("{}, {} layers, hidden {}, vocabulary {}, context {}", info.architecture,
                                             info.layers, info.hidden_size, info.vocab_size, info.max_context));
  text += fact("  experts", fmt::format("{} per layer, {} per token", info.experts, info.experts_per_token));
  text += fact("  format", info.format);
  text += fact("  size", fmt::format("{} in tensors, {} parameters", human_bytes(checkpoint.total_bytes()),
                                     human_count(plan.parameters())));
  TextTable table({{.title = "modules", .narrow = Narrow::wrap},
                   {.title = "count", .right = true},
                   {.title = "kind", .narrow = Narrow::drop, .rank = 1},
                   {.title = "scheme", .narrow = Narrow::wrap},
                   {.title = "size", .right = true},
                   {.title = "why unquantized", .narrow = Narrow::below, .rank = 2}});
  const auto groups = group_modules(plan.modules());
  for (const ModuleGroup& group : groups) {
    const std::string rule = group.excluded_by == group.pattern ? "named in the config" : group.excluded_by;
    table.row({printable(name_of(group, groups)), std::to_string(group.names.size()), group.kind, group.scheme,
               human_bytes(group.bytes), printable(rule)});
  }
  text += "\n" + table.text(width, paint);
  for (const std::string& warning : warnings_of(plan))
    text += paragraph(paint.warning("warning") + ": ", warning, width, 9);
  return text;
}

int inspect_command(const InspectOptions& options, Console& console) {
  const auto run = [&]() -> Result<> {
    MORACLE_ASSIGN(const auto folder, locate_model(options.model));
    MORACLE_ASSIGN(const auto checkpoint, Checkpoint::open(folder));
    MORACLE_ASSIGN(const auto plan, LoadPlan::make(checkpoint, probe_machine(), {}));
    if (options.json) {
      console.json(inspect_json(*plan, *checkpoint));
    } else {
      console.out(inspect_text(*plan, *checkpoint));
    }
    return Ok{};
  };
  const auto result = run();
  return result.ok() ? 0 : console.fail(result.error());
}

}  // namespace

void add_inspect(CLI::App& root, Program& program) {
  CLI::App* command =
      root.add_subcommand("inspect", "Show what a checkpoint holds: architecture, schemes, sizes, warnings");
  auto options = std::make_shared<InspectOptions>();
  add_model(*command, options->model);
  add_json(*command, options->json);
  command->footer("Reads headers only, no weight.\nExample:\n  moracle inspect ./Mixtral-8x7B-Instruct-v0.1-AWQ");
  command->callback([options, &program] {
    program.action = [options, &program] { return inspect_command(*options, program.console); };
  });
}

}  // namespace moracle::cli
