// moracle devices: what this machine has, and the names --device knows.
#include <fmt/format.h>

#include "cli/options.h"
#include "cli/program.h"
#include "engine/calibrate.h"

namespace moracle::cli {

namespace {

// Large enough to leave any cache, small enough to be read in a blink.
constexpr std::size_t kQuickBytes = std::size_t{512} << 20;

std::optional<double> quick_bandwidth(const Machine& machine) {
  const cpu::CalibrationOps* ops = calibration_ops(machine, machine.cpu_features);
  if (ops == nullptr) return std::nullopt;
  ThreadPool pool(machine.cores);
  const auto calibrator = Calibrator::make(*ops, pool, kQuickBytes);
  return calibrator.ok() ? std::optional(calibrator->read_gb_s()) : std::nullopt;
}

std::string feature_names(const Machine& machine) {
  std::string text;
  for (unsigned bit = 0; bit < 32; ++bit) {
    const auto feature = static_cast<CpuFeature>(1U << bit);
    if (has(machine.cpu_features, feature)) text += (text.empty() ? "" : " ") + std::string(to_string(feature));
  }
  return text.empty() ? "none that kernels use" : text;
}

std::string devices_text(const Machine& machine, const std::optional<double>& bandwidth) {
  std::string text = fmt::format(
      "cpu            {} ({})\nfeatures       {}\ncores          {}, NUMA nodes {}\ncaches         L2 {} per core, L3 "
      "{}\n"
      "memory         {}",
      machine.cpu_model, machine.arch, feature_names(machine), machine.cores, machine.numa_nodes,
      human_bytes(machine.l2_bytes), human_bytes(machine.l3_bytes), human_bytes(machine.memory_bytes));
  if (bandwidth) text += fmt::format(", {:.1f} GB/s read", *bandwidth);
  text += "\n";
  if (!machine.os_note.empty()) text += "note           " + machine.os_note + "\n";
  text += "gpus           this build computes on the CPU only\nnames          cpu";
  for (const std::string& name : named_machines()) text += " " + name;
  return text + "\n";
}

int devices_command(bool json, Console& console) {
  const Machine machine = probe_machine();
  const std::optional<double> bandwidth = quick_bandwidth(machine);
  if (!json) {
    console.out(devices_text(machine, bandwidth));
    return 0;
  }
  std::vector<std::string> names = named_machines();
  names.insert(names.begin(), "cpu");
  console.json({{"machine", to_json(machine)},
                {"memory_read_gb_s", bandwidth ? Json(*bandwidth) : Json(nullptr)},
                {"gpus", Json::array()},
                {"names", names}});
  return 0;
}

}  // namespace

void add_devices(CLI::App& root, Program& program) {
  CLI::App* command = root.add_subcommand("devices", "What this machine has, and the names --device knows");
  auto json = std::make_shared<bool>(false);
  add_json(*command, *json);
  command->footer("Example:\n  moracle devices --json");
  command->callback(
      [json, &program] { program.action = [json, &program] { return devices_command(*json, program.console); }; });
}

}  // namespace moracle::cli
