// Machines by name. The figures are those of one representative model, for plans; decisions rest on the features, the
// architecture, the capability and the libraries only. GPU memory is the nominal size in decimal bytes, and its rate
// that of the makers' data sheets.
#include <algorithm>
#include <array>
#include <cctype>
#include <span>

#include "base/json.h"
#include "machine/machine.h"

namespace moracle {
namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * kKiB;
constexpr std::uint64_t kGiB = 1024 * kMiB;
constexpr std::uint64_t kGB = 1'000'000'000;

constexpr CpuFeatures kAvx2 = static_cast<CpuFeatures>(CpuFeature::avx2);
constexpr CpuFeatures kAvx512 = kAvx2 | CpuFeature::avx512;
constexpr CpuFeatures kIceLake = kAvx512 | CpuFeature::avx512_vnni | CpuFeature::avx512_vbmi;
constexpr CpuFeatures kZen4 = kIceLake | CpuFeature::avx512_bf16;
constexpr CpuFeatures kZen5 = kZen4 | CpuFeature::avx_vnni;
constexpr CpuFeatures kSapphireRapids = kZen5 | CpuFeature::amx_tile | CpuFeature::amx_int8 | CpuFeature::amx_bf16;
constexpr CpuFeatures kNeon = static_cast<CpuFeatures>(CpuFeature::neon);

struct Row {
  std::string_view name;
  DeviceKind device;
  std::string_view arch;
  int capability;
  CpuFeatures features;
  std::string_view model;
  int cores;
  int numa_nodes;
  std::uint64_t l2;
  std::uint64_t l3;
  std::uint64_t memory;
  double read_gb_s = 0;  // of a GPU's memory; 0: not known
};

constexpr auto cpu = DeviceKind::cpu;
constexpr auto cuda = DeviceKind::cuda;
constexpr auto rocm = DeviceKind::rocm;
constexpr auto xpu = DeviceKind::xpu;

// What a usual install of vLLM 0.33 has on such a machine: what its package for that device brings or depends on. What
// is installed by hand on top (quark, b12x, hpc, zentorch) is not listed. docs/machine.md argues it.
std::span<const std::string_view> usual_libraries(DeviceKind device) {
  static constexpr std::array<std::string_view, 4> kCuda{"deep_gemm", "flashinfer", "humming", "triton_kernels"};
  static constexpr std::array<std::string_view, 3> kRocm{"aiter", "rdna3_wna16", "triton_kernels"};
  static constexpr std::array<std::string_view, 1> kXpu{"triton_kernels"};
  switch (device) {
    case DeviceKind::cuda:
      return kCuda;
    case DeviceKind::rocm:
      return kRocm;
    case DeviceKind::xpu:
      return kXpu;
    case DeviceKind::cpu:
      break;
  }
  return {};
}

// The first row of an architecture stands for it when the architecture is asked for by name.
constexpr std::array kRows{
    Row{"generic-x86-64", cpu, "x86_64", 0, 0, "x86-64 without AVX2", 4, 1, 256 * kKiB, 8 * kMiB, 16 * kGiB},
    Row{"haswell", cpu, "x86_64", 0, kAvx2, "Intel Xeon E5-2680 v3", 12, 1, 256 * kKiB, 30 * kMiB, 128 * kGiB},
    Row{"alder-lake", cpu, "x86_64", 0, kAvx2 | CpuFeature::avx_vnni, "Intel Core i9-12900K", 16, 1, 1280 * kKiB,
        30 * kMiB, 64 * kGiB},
    Row{"zen3", cpu, "x86_64", 0, kAvx2, "AMD EPYC 7543", 32, 1, 512 * kKiB, 256 * kMiB, 256 * kGiB},
    Row{"zen4", cpu, "x86_64", 0, kZen4, "AMD EPYC 9354", 32, 1, kMiB, 256 * kMiB, 384 * kGiB},
    Row{"zen5", cpu, "x86_64", 0, kZen5, "AMD EPYC 9555", 64, 1, kMiB, 256 * kMiB, 768 * kGiB},
    Row{"skylake-x", cpu, "x86_64", 0, kAvx512, "Intel Xeon Gold 6148", 20, 1, kMiB, 28160 * kKiB, 192 * kGiB},
    Row{"cascade-lake", cpu, "x86_64", 0, kAvx512 | CpuFeature::avx512_vnni, "Intel Xeon Gold 6248", 20, 1, kMiB,
        28160 * kKiB, 192 * kGiB},
    Row{"icelake-server", cpu, "x86_64", 0, kIceLake, "Intel Xeon Gold 6338", 32, 1, 1280 * kKiB, 48 * kMiB,
        256 * kGiB},
    Row{"sapphire-rapids", cpu, "x86_64", 0, kSapphireRapids, "Intel Xeon Platinum 8480+", 56, 1, 2 * kMiB, 105 * kMiB,
        512 * kGiB},
    Row{"granite-rapids", cpu, "x86_64", 0, kSapphireRapids, "Intel Xeon 6980P", 128, 3, 2 * kMiB, 504 * kMiB,
        768 * kGiB},
    Row{"generic-aarch64", cpu, "aarch64", 0, 0, "Armv8.0-A without dot product", 4, 1, kMiB, 0, 8 * kGiB},
    Row{"neoverse-n1", cpu, "aarch64", 0, kNeon, "Ampere Altra Q80-30", 80, 1, kMiB, 32 * kMiB, 256 * kGiB},
    Row{"graviton2", cpu, "aarch64", 0, kNeon, "AWS Graviton2 (Neoverse N1)", 64, 1, kMiB, 32 * kMiB, 256 * kGiB},
    Row{"graviton3", cpu, "aarch64", 0, kNeon, "AWS Graviton3 (Neoverse V1)", 64, 1, kMiB, 32 * kMiB, 256 * kGiB},
    Row{"graviton4", cpu, "aarch64", 0, kNeon, "AWS Graviton4 (Neoverse V2)", 96, 1, 2 * kMiB, 36 * kMiB, 768 * kGiB},
    Row{"neoverse-v2", cpu, "aarch64", 0, kNeon, "Arm Neoverse V2", 72, 1, kMiB, 114 * kMiB, 480 * kGiB},

    Row{"t4", cuda, "sm_75", 75, 0, "NVIDIA T4", 40, 1, 4 * kMiB, 0, 16 * kGB, 320},
    Row{"a100", cuda, "sm_80", 80, 0, "NVIDIA A100 80GB", 108, 1, 40 * kMiB, 0, 80 * kGB, 1935},
    Row{"a10", cuda, "sm_86", 86, 0, "NVIDIA A10", 72, 1, 6 * kMiB, 0, 24 * kGB, 600},
    Row{"rtx3090", cuda, "sm_86", 86, 0, "NVIDIA GeForce RTX 3090", 82, 1, 6 * kMiB, 0, 24 * kGB, 936},
    Row{"l40s", cuda, "sm_89", 89, 0, "NVIDIA L40S", 142, 1, 96 * kMiB, 0, 48 * kGB, 864},
    Row{"l4", cuda, "sm_89", 89, 0, "NVIDIA L4", 58, 1, 48 * kMiB, 0, 24 * kGB, 300},
    Row{"rtx4090", cuda, "sm_89", 89, 0, "NVIDIA GeForce RTX 4090", 128, 1, 72 * kMiB, 0, 24 * kGB, 1008},
    Row{"h100", cuda, "sm_90", 90, 0, "NVIDIA H100 80GB HBM3", 132, 1, 50 * kMiB, 0, 80 * kGB, 3350},
    Row{"h200", cuda, "sm_90", 90, 0, "NVIDIA H200", 132, 1, 50 * kMiB, 0, 141 * kGB, 4800},
    Row{"b200", cuda, "sm_100", 100, 0, "NVIDIA B200", 148, 1, 126 * kMiB, 0, 180 * kGB, 8000},
    Row{"b300", cuda, "sm_103", 103, 0, "NVIDIA B300", 148, 1, 126 * kMiB, 0, 270 * kGB, 8000},
    Row{"rtx5090", cuda, "sm_120", 120, 0, "NVIDIA GeForce RTX 5090", 170, 1, 96 * kMiB, 0, 32 * kGB, 1792},
    Row{"rtxpro6000", cuda, "sm_120", 120, 0, "NVIDIA RTX PRO 6000 Blackwell", 188, 1, 128 * kMiB, 0, 96 * kGB, 1792},
    Row{"gb10", cuda, "sm_121", 121, 0, "NVIDIA GB10", 48, 1, 24 * kMiB, 0, 128 * kGB, 273},

    Row{"mi250x", rocm, "gfx90a", 0, 0, "AMD Instinct MI250X (one die)", 110, 1, 8 * kMiB, 0, 64 * kGB},
    Row{"mi300x", rocm, "gfx942", 0, 0, "AMD Instinct MI300X", 304, 1, 32 * kMiB, 256 * kMiB, 192 * kGB},
    Row{"mi325x", rocm, "gfx942", 0, 0, "AMD Instinct MI325X", 304, 1, 32 * kMiB, 256 * kMiB, 256 * kGB},
    Row{"mi355x", rocm, "gfx950", 0, 0, "AMD Instinct MI355X", 256, 1, 32 * kMiB, 256 * kMiB, 288 * kGB},
    Row{"rx7900xtx", rocm, "gfx1100", 0, 0, "AMD Radeon RX 7900 XTX", 96, 1, 6 * kMiB, 96 * kMiB, 24 * kGB},
    Row{"rx9070xt", rocm, "gfx1201", 0, 0, "AMD Radeon RX 9070 XT", 64, 1, 8 * kMiB, 64 * kMiB, 16 * kGB},
    Row{"gfx1250", rocm, "gfx1250", 0, 0, "AMD gfx1250", 256, 1, 0, 0, 288 * kGB},

    Row{"pvc", xpu, "xpu", 0, 0, "Intel Data Center GPU Max 1550", 128, 1, 408 * kMiB, 0, 128 * kGB},
};

}  // namespace

double nominal_read_gb_s(const Machine& machine) {
  const auto found =
      std::find_if(kRows.begin(), kRows.end(), [&](const Row& row) { return row.model == machine.cpu_model; });
  return found != kRows.end() ? found->read_gb_s : 0.0;
}

namespace {

Machine machine_of(const Row& row, std::string name) {
  Machine machine;
  machine.name = std::move(name);
  machine.device = row.device;
  machine.arch = row.arch;
  machine.capability = row.capability;
  machine.cpu_features = row.features;
  machine.cpu_model = row.model;
  machine.cores = row.cores;
  machine.numa_nodes = row.numa_nodes;
  machine.l2_bytes = row.l2;
  machine.l3_bytes = row.l3;
  machine.memory_bytes = row.memory;
  const auto libraries = usual_libraries(row.device);
  machine.libraries.assign(libraries.begin(), libraries.end());
  return machine;
}

// Lower case without separators, so that "sm_90", "SM90" and "RX-7900-XTX" are found.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != '_' && c != '-' && c != ' ') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

const Row* find_row(std::string_view name) {
  const std::string wanted = plain(name);
  for (const Row& row : kRows) {
    if (plain(row.name) == wanted) return &row;
  }
  for (const Row& row : kRows) {
    if (row.device != DeviceKind::cpu && plain(row.arch) == wanted) return &row;
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> named_machines() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(row.name);
  for (const Row& row : kRows) {
    if (row.device != DeviceKind::cpu && std::find(names.begin(), names.end(), row.arch) == names.end())
      names.emplace_back(row.arch);
  }
  return names;
}

Result<Machine> resolve_machine(const std::string& name_or_path) {
  if (name_or_path == "cpu") return probe_machine();
  if (const Row* row = find_row(name_or_path)) {
    return machine_of(*row, std::string(plain(row->name) == plain(name_or_path) ? row->name : row->arch));
  }
  std::error_code code;
  const bool looks_like_path = name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json");
  if (looks_like_path || std::filesystem::is_regular_file(name_or_path, code)) {
    MORACLE_ASSIGN(const Json json, read_json(name_or_path, {.bytes = std::size_t{1} << 20, .depth = 8}));
    return machine_from_json(json, name_or_path);
  }
  std::string names = "cpu";
  for (const std::string& name : named_machines()) names += ", " + name;
  return Error{.code = "device.unknown",
               .wanted = "one of " + names + ", or a JSON file that describes a machine",
               .found = "\"" + name_or_path.substr(0, 80) + "\"",
               .advice = "`moracle devices` prints the names"};
}

}  // namespace moracle
