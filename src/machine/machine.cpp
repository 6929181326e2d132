#include "machine/machine.h"

#include <algorithm>
#include <array>

namespace moracle {
namespace {

constexpr std::array kFeatures{CpuFeature::avx2,        CpuFeature::avx512,      CpuFeature::avx512_vnni,
                               CpuFeature::avx512_bf16, CpuFeature::avx512_vbmi, CpuFeature::amx_tile,
                               CpuFeature::amx_int8,    CpuFeature::amx_bf16,    CpuFeature::amx_fp8,
                               CpuFeature::neon,        CpuFeature::avx_vnni};
constexpr std::array kDevices{DeviceKind::cpu, DeviceKind::cuda, DeviceKind::rocm, DeviceKind::xpu};

// FNV-1a: stable over compilers and versions, which std::hash is not.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

std::string hex(std::uint64_t value) {
  std::string text(16, '0');
  for (std::size_t i = 0; i < text.size(); ++i, value >>= 4U) text[15 - i] = "0123456789abcdef"[value & 15U];
  return text;
}

}  // namespace

std::string_view to_string(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cpu:
      return "cpu";
    case DeviceKind::cuda:
      return "cuda";
    case DeviceKind::rocm:
      return "rocm";
    case DeviceKind::xpu:
      return "xpu";
  }
  return "unknown";
}

std::string_view to_string(CpuFeature feature) {
  switch (feature) {
    case CpuFeature::avx2:
      return "avx2";
    case CpuFeature::avx512:
      return "avx512";
    case CpuFeature::avx512_vnni:
      return "avx512_vnni";
    case CpuFeature::avx512_bf16:
      return "avx512_bf16";
    case CpuFeature::avx512_vbmi:
      return "avx512_vbmi";
    case CpuFeature::amx_tile:
      return "amx_tile";
    case CpuFeature::amx_int8:
      return "amx_int8";
    case CpuFeature::amx_bf16:
      return "amx_bf16";
    case CpuFeature::amx_fp8:
      return "amx_fp8";
    case CpuFeature::neon:
      return "neon";
    case CpuFeature::avx_vnni:
      return "avx_vnni";
  }
  return "unknown";
}

std::span<const CpuFeature> all_cpu_features() {
  return kFeatures;
}

std::string feature_list(CpuFeatures features) {
  std::string text;
  for (const CpuFeature feature : kFeatures) {
    if (!has(features, feature)) continue;
    if (!text.empty()) text += '+';
    text += to_string(feature);
  }
  return text.empty() ? "none" : text;
}

std::optional<CpuFeature> cpu_feature_named(std::string_view name) {
  for (const CpuFeature feature : kFeatures) {
    if (to_string(feature) == name) return feature;
  }
  return std::nullopt;
}

std::optional<DeviceKind> device_kind_named(std::string_view name) {
  for (const DeviceKind kind : kDevices) {
    if (to_string(kind) == name) return kind;
  }
  return std::nullopt;
}

CpuFeatures required_by(CpuFeature feature) {
  switch (feature) {
    case CpuFeature::avx512:
    case CpuFeature::avx_vnni:
      return static_cast<CpuFeatures>(CpuFeature::avx2);
    case CpuFeature::avx512_vnni:
    case CpuFeature::avx512_bf16:
    case CpuFeature::avx512_vbmi:
      return CpuFeature::avx2 | CpuFeature::avx512;
    case CpuFeature::amx_int8:
    case CpuFeature::amx_bf16:
    case CpuFeature::amx_fp8:
      return static_cast<CpuFeatures>(CpuFeature::amx_tile);
    case CpuFeature::avx2:
    case CpuFeature::amx_tile:
    case CpuFeature::neon:
      return 0;
  }
  return 0;
}

CpuFeatures restrict_features(CpuFeatures probed, std::string_view list, std::vector<std::string>& unknown) {
  CpuFeatures kept = 0;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    const std::string_view name = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    if (name.empty() || name == "none") continue;
    if (const auto feature = cpu_feature_named(name)) {
      kept = kept | *feature;
      kept |= required_by(*feature);
    } else {
      unknown.emplace_back(name);
    }
  }
  return probed & kept;
}

bool Machine::has_library(std::string_view library) const {
  return std::find(libraries.begin(), libraries.end(), library) != libraries.end();
}

std::string Machine::fingerprint() const {
  std::vector<std::string_view> sorted(libraries.begin(), libraries.end());
  std::sort(sorted.begin(), sorted.end());
  std::string facts = arch + '\n' + std::to_string(capability) + '\n' + feature_list(cpu_features) + '\n' +
                      (little_endian ? "little" : "big");
  for (const std::string_view library : sorted) facts.append("\n").append(library);
  return std::string(to_string(device)) + '-' + arch + '-' + hex(hash_of(facts));
}

}  // namespace moracle
