// The machine a decision is made for, as a value: probed, named, or read from JSON. Nothing below the command line asks
// which CPU it runs on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json_fwd.h"
#include "base/result.h"

namespace moracle {

enum class DeviceKind : std::uint8_t { cpu, cuda, rocm, xpu };
[[nodiscard]] std::string_view to_string(DeviceKind kind);

// Instruction sets that kernels may require, as bits.
enum class CpuFeature : std::uint32_t {
  avx2 = 1U << 0U,    // with FMA and F16C
  avx512 = 1U << 1U,  // F, BW, DQ, VL
  avx512_vnni = 1U << 2U,
  avx512_bf16 = 1U << 3U,
  avx512_vbmi = 1U << 4U,
  amx_tile = 1U << 5U,
  amx_int8 = 1U << 6U,
  amx_bf16 = 1U << 7U,
  amx_fp8 = 1U << 8U,
  neon = 1U << 9U,
  avx_vnni = 1U << 10U,  // of 256 bits, without AVX-512
};
using CpuFeatures = std::uint32_t;
constexpr CpuFeatures operator|(CpuFeature a, CpuFeature b) {
  return static_cast<CpuFeatures>(a) | static_cast<CpuFeatures>(b);
}
constexpr CpuFeatures operator|(CpuFeatures a, CpuFeature b) {
  return a | static_cast<CpuFeatures>(b);
}
constexpr bool has(CpuFeatures set, CpuFeature feature) {
  return (set & static_cast<CpuFeatures>(feature)) != 0;
}
[[nodiscard]] std::string_view to_string(CpuFeature feature);
// Every feature, lowest bit first.
[[nodiscard]] std::span<const CpuFeature> all_cpu_features();
// "avx2+avx512", lowest bit first; "none" for the empty set.
[[nodiscard]] std::string feature_list(CpuFeatures features);
[[nodiscard]] std::optional<CpuFeature> cpu_feature_named(std::string_view name);
[[nodiscard]] std::optional<DeviceKind> device_kind_named(std::string_view name);
// What a feature rests on: a kernel that uses avx512_bf16 also uses avx512 and avx2.
[[nodiscard]] CpuFeatures required_by(CpuFeature feature);
// `probed` without what `list` (comma-separated names) does not name. A named feature keeps those it rests on; nothing
// is ever added. Names that no feature has are returned in `unknown`.
[[nodiscard]] CpuFeatures restrict_features(CpuFeatures probed, std::string_view list,
                                            std::vector<std::string>& unknown);

struct Machine {
  std::string name;  // "this machine", "zen4", "h200", ...
  DeviceKind device = DeviceKind::cpu;
  std::string arch;    // "x86_64", "sm_90", "gfx950", ...
  int capability = 0;  // CUDA compute capability x 10 (90 for an H200); 0 elsewhere
  CpuFeatures cpu_features = 0;
  std::string cpu_model;
  int cores = 1;  // physical cores usable by this process; multiprocessors or compute units of a GPU
  int numa_nodes = 1;
  std::uint64_t l2_bytes = 0;      // per core; of a GPU: all of it
  std::uint64_t l3_bytes = 0;      // shared; all instances that the usable cores reach, summed
  std::uint64_t memory_bytes = 0;  // of the device that holds the weights
  bool little_endian = true;
  std::vector<std::string> libraries;  // facts such as "flashinfer", "aiter"
  std::string os_note;                 // why a feature the CPU has is not usable, when the system withholds it

  [[nodiscard]] bool has_library(std::string_view library) const;
  bool operator==(const Machine&) const = default;
  // Short stable identity of what a decision depends on: device, arch, capability, features, byte order, libraries; not
  // of sizes. "cpu-x86_64-3d5c0d6f0c1f9a42".
  [[nodiscard]] std::string fingerprint() const;
};

// The running machine: CPUID, XGETBV, /sys; cgroup limits respected for cores and memory. The environment variable
// MORACLE_CPU_FEATURES (see restrict_features) can take features away, so that tests reach the kernels of lesser CPUs.
[[nodiscard]] Machine probe_machine();
// Names that --device knows, besides "cpu" (the running machine).
[[nodiscard]] std::vector<std::string> named_machines();
// "cpu", a named machine, the name of a GPU architecture ("sm_90", "gfx950"), or a path of a JSON file. Errors:
// "device.unknown" listing the names, and JSON errors.
[[nodiscard]] Result<Machine> resolve_machine(const std::string& name_or_path);
[[nodiscard]] Json to_json(const Machine& machine);
// Reads what to_json writes. Only "device" is required (and "arch" of a GPU); the rest has the defaults above. A key it
// does not know, a null, or a fact that contradicts another is an error that names the JSON pointer: "machine.key",
// "machine.value", "machine.features", "machine.capability", and those of JsonReader. "fingerprint" is derived:
// accepted and computed afresh.
[[nodiscard]] Result<Machine> machine_from_json(const Json& json, const std::string& file);

// 10^9 bytes a second that the memory of a known GPU gives, by its maker's data sheet; 0: not known.
[[nodiscard]] double nominal_read_gb_s(const Machine& machine);

}  // namespace moracle
