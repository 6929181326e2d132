// moracle inspect: what a checkpoint holds, from headers alone.
#include <fmt/format.h>

#include <map>

#include "base/printable.h"
#include "cli/options.h"
#include "cli/program.h"

namespace moracle::cli {

namespace {

struct InspectOptions {
  std::string model;
  bool json = false;
};

Json inspect_json(const LoadPlan& plan, const Checkpoint& checkpoint) {
  const ModelInfo& info = plan.info();
  Json layers = Json::array();
  for (const ModuleReport& module : plan.modules()) {
    layers.push_back({{"name", module.name},
                      {"kind", module.kind},
                      {"scheme", to_string(module.scheme)},
                      {"excluded_by", module.excluded_by.empty() ? Json(nullptr) : Json(module.excluded_by)},
                      {"bytes", module.bytes}});
  }
  return {{"architecture", info.architecture},
          {"format", info.format},
          {"total_bytes", checkpoint.total_bytes()},
          {"parameters", plan.parameters()},
          {"layer_count", info.layers},
          {"hidden", info.hidden},
          {"vocabulary", info.vocabulary},
          {"max_positions", info.max_positions},
          {"experts_per_layer", info.experts},
          {"experts_per_token", info.experts_per_token},
          {"layers", std::move(layers)},
          {"warnings", plan.warnings()}};
}

// "model.layers.17.mlp.experts" -> "model.layers.*.mlp.experts", so that like modules of all layers share a row.
std::string without_numbers(const std::string& name) {
  std::string result;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    result += (begin == 0 ? "" : ".") + (number ? std::string("*") : part);
    begin = end + 1;
  }
  return result;
}

struct ModuleGroup {
  std::string pattern, kind, scheme, excluded_by;
  std::int64_t count = 0;
  std::uint64_t bytes = 0;
};

std::vector<ModuleGroup> group_modules(const std::vector<ModuleReport>& modules) {
  std::vector<ModuleGroup> groups;
  std::map<std::string, std::size_t> index;
  for (const ModuleReport& module : modules) {
    ModuleGroup group{.pattern = without_numbers(module.name),
                      .kind = module.kind,
                      .scheme = to_string(module.scheme),
                      .excluded_by = module.excluded_by};
    const std::string key = group.pattern + "\n" + group.scheme + "\n" + group.excluded_by;
    const auto [it, added] = index.emplace(key, groups.size());
    if (added) groups.push_back(std::move(group));
    ++groups[it->second].count;
    groups[it->second].bytes += module.bytes;
  }
  return groups;
}

std::string inspect_text(const LoadPlan& plan, const Checkpoint& checkpoint) {
  const ModelInfo& info = plan.info();
  std::string text = fmt::format(
      "{}\n  architecture  {}, {} layers, hidden {}, vocabulary {}, context {}\n  experts       {} per layer, {} per "
      "token\n  format        {}\n  size          {} in tensors, {} parameters\n\n",
      printable_path(checkpoint.folder().string()), printable(info.architecture), info.layers, info.hidden,
      info.vocabulary, info.max_positions, info.experts, info.experts_per_token, info.format,
      human_bytes(checkpoint.total_bytes()), human_count(plan.parameters()));
  std::vector<std::vector<std::string>> rows = {{"modules", "count", "kind", "scheme", "size", "left unquantized by"}};
  for (const ModuleGroup& group : group_modules(plan.modules())) {
    rows.push_back({group.pattern, std::to_string(group.count), group.kind, group.scheme, human_bytes(group.bytes),
                    group.excluded_by});
  }
  text += text_table(rows, {false, true, false, false, true, false});
  for (const std::string& warning : plan.warnings()) text += "warning: " + printable(warning, kShownLineBytes) + "\n";
  return text;
}

int inspect_command(const InspectOptions& options, Console& console) {
  const auto run = [&]() -> Result<> {
    MORACLE_ASSIGN(const auto checkpoint, Checkpoint::open(options.model));
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
  CLI::App* command = root.add_subcommand("inspect", "What a checkpoint holds: architecture, schemes, sizes, warnings");
  auto options = std::make_shared<InspectOptions>();
  add_model(*command, options->model);
  add_json(*command, options->json);
  command->footer("Reads headers only, no weight.\nExample:\n  moracle inspect ./Mixtral-8x7B-Instruct-v0.1-AWQ");
  command->callback([options, &program] {
    program.action = [options, &program] { return inspect_command(*options, program.console); };
  });
}

}  // namespace moracle::cli
