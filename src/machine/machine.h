// The machine a decision is made for, as a value: probed, named, or read from JSON. Nothing below the command line asks
// which CPU it runs on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
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

struct Machine {
  std::string name;  // "this machine", "zen4", "h200", ...
  DeviceKind device = DeviceKind::cpu;
  std::string arch;    // "x86_64", "sm_90", "gfx950", ...
  int capability = 0;  // CUDA compute capability x 10 (90 for an H200); 0 elsewhere
  CpuFeatures cpu_features = 0;
  std::string cpu_model;
  int cores = 1;  // physical cores usable by this process
  int numa_nodes = 1;
  std::uint64_t l2_bytes = 0;      // per core
  std::uint64_t l3_bytes = 0;      // shared
  std::uint64_t memory_bytes = 0;  // of the device that holds the weights
  bool little_endian = true;
  std::vector<std::string> libraries;  // facts such as "flashinfer", "aiter"
  std::string os_note;                 // why a feature the CPU has is not usable, when the system withholds it

  [[nodiscard]] bool has_library(std::string_view library) const;
  // Short stable identity of what a decision depends on.
  [[nodiscard]] std::string fingerprint() const;
};

// The running machine: CPUID, XGETBV, /sys; cgroup limits respected for cores and memory.
[[nodiscard]] Machine probe_machine();
// Names that --device knows, besides "cpu" (the running machine).
[[nodiscard]] std::vector<std::string> named_machines();
// "cpu", a named machine, or a path of a JSON file. Errors: "device.unknown" listing the names, and JSON errors.
[[nodiscard]] Result<Machine> resolve_machine(const std::string& name_or_path);
[[nodiscard]] Json to_json(const Machine& machine);
[[nodiscard]] Result<Machine> machine_from_json(const Json& json, const std::string& file);

}  // namespace moracle
