// moracle devices: what this machine has, and the names --device knows.
#include <fmt/format.h>
#include <unistd.h>

#include "base/generic/quantity.h"
#include "base/printable.h"
#include "bench/calibrate.h"
#include "cli/options.h"
#include "cli/program.h"
#include "cli/screen.h"
#include "device/library.h"

namespace moracle::cli {

namespace {

std::string feature_names(const Machine& machine) {
  std::string text;
  for (unsigned bit = 0; bit < 32; ++bit) {
    const auto feature = static_cast<CpuFeature>(1U << bit);
    if (has(machine.cpu_features, feature)) text += (text.empty() ? "" : " ") + std::string(to_string(feature));
  }
  return text.empty() ? "none that kernels use" : text;
}

// Each GPU of this machine, or why kernels cannot run on it. Errors: those of device_library and probe_devices.
Result<std::vector<Result<Machine>>> find_gpus() {
  const auto& library = device_library();
  if (!library.ok()) return library.error();
  MORACLE_ASSIGN(const std::vector<DeviceFacts> found, probe_devices(**library));
  std::vector<Result<Machine>> gpus;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto device = GpuDevice::open(**library, static_cast<int>(i));
    gpus.push_back(device.ok() ? Result<Machine>((*device)->machine()) : device.error());
  }
  return gpus;
}

// A line for each GPU, or one that says why there is none.
std::vector<std::string> gpu_lines() {
  const auto found = find_gpus();
  if (!found.ok()) {
    const Error& why = found.error();
    if (why.code == "device.driver") return {"none: needs " + why.wanted + "; found " + why.found};
    return {"none: needs " + why.wanted + ", and " + kLeastDriver};
  }
  std::vector<std::string> lines;
  for (const Result<Machine>& gpu : *found) {
    lines.push_back(gpu.ok()
                        ? fmt::format("{}: {} ({}), {}, {}", gpu->name, gpu->cpu_model, gpu->arch,
                                      human_bytes(gpu->memory_bytes), gpu->os_note)
                        : fmt::format("{}: {}; needs {}", gpu.error().where, gpu.error().found, gpu.error().wanted));
  }
  return lines;
}

std::string devices_text(const Machine& machine, bool here, const std::optional<double>& bandwidth) {
  const std::size_t width = screen_width(STDOUT_FILENO);
  std::string text;
  const auto fact = [&](const char* name, const std::string& value) {
    text += paragraph(name, printable(value, kShownLineBytes), width, 12);
  };
  fact("device", fmt::format("{}: {} ({})", machine.name, machine.cpu_model, machine.arch));
  if (machine.device == DeviceKind::cpu) {
    fact("features", feature_names(machine));
    fact("cores",
         fmt::format("{}, {} NUMA node{}", machine.cores, machine.numa_nodes, machine.numa_nodes == 1 ? "" : "s"));
    fact("caches", fmt::format("L2 {} per core, L3 {}", human_bytes(machine.l2_bytes), human_bytes(machine.l3_bytes)));
  } else {
    fact("units", std::to_string(machine.cores));
    fact("caches",
         "L2 " + human_bytes(machine.l2_bytes) + (machine.l3_bytes > 0 ? ", L3 " + human_bytes(machine.l3_bytes) : ""));
  }
  fact("memory", human_bytes(machine.memory_bytes) + (bandwidth ? fmt::format(", {:.1f} GB/s read", *bandwidth) : ""));
  if (!machine.libraries.empty()) fact("libraries", fmt::format("{}", fmt::join(machine.libraries, " ")));
  if (!machine.os_note.empty()) fact("note", machine.os_note);
  if (!here) return text;
  for (const std::string& line : gpu_lines()) fact("GPU", line);
  fact("names", fmt::format("cpu {}", fmt::join(named_machines(), " ")));
  return text;
}

struct DevicesCommand {
  std::string device = "cpu";
  bool json = false;
};

Result<> devices_command(const DevicesCommand& options, Console& console) {
  MORACLE_ASSIGN(const Place place, resolve_place(options.device, "--device"));
  const Machine machine = place.machine();
  const bool here = options.device == "cpu";
  const std::optional<double> bandwidth = here ? quick_bandwidth(machine) : std::nullopt;
  if (!options.json) {
    console.out(devices_text(machine, here, bandwidth));
    return Ok{};
  }
  Json found = Json::array();
  const auto gpus = find_gpus();
  for (std::size_t i = 0; gpus.ok() && i < gpus->size(); ++i) {
    if (const Result<Machine>& gpu = (*gpus)[i]; gpu.ok()) found.push_back(to_json(*gpu));
  }
  std::vector<std::string> names = named_machines();
  names.insert(names.begin(), "cpu");
  console.json({{"machine", to_json(machine)},
                {"memory_read_gb_s", bandwidth ? Json(*bandwidth) : Json(nullptr)},
                {"gpus", std::move(found)},
                {"names", names}});
  return Ok{};
}

}  // namespace

void add_devices(CLI::App& root, Program& program) {
  CLI::App* command = root.add_subcommand("devices", "Show what this machine has, and the names that --device knows");
  auto options = std::make_shared<DevicesCommand>();
  command->add_option("--device", options->device, "Show this machine instead: a name, or a JSON file (default: cpu)")
      ->type_name("NAME|FILE.json");
  add_json(*command, options->json);
  command->footer("Example:\n  moracle devices --json");
  command->callback([options, &program] {
    program.action = [options, &program] {
      const auto result = devices_command(*options, program.console);
      return result.ok() ? 0 : program.console.fail(result.error());
    };
  });
}

}  // namespace moracle::cli
