#include <algorithm>
#include <array>
#include <charconv>

#include "base/json.h"
#include "machine/machine.h"

namespace moracle {
namespace {

constexpr std::array<std::string_view, 15> kKeys{
    "name",     "device",   "arch",         "capability",    "cpu_features", "cpu_model", "cores",      "numa_nodes",
    "l2_bytes", "l3_bytes", "memory_bytes", "little_endian", "libraries",    "os_note",   "fingerprint"};
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 52;  // exact in a JSON double
constexpr std::size_t kMaxText = 1024;
constexpr std::size_t kMaxList = 256;

Error refuse(std::string code, const std::string& file, std::string where, std::string wanted, std::string found) {
  return Error{.code = std::move(code),
               .file = file,
               .where = std::move(where),
               .wanted = std::move(wanted),
               .found = std::move(found)};
}

// Names end up in fingerprints, file names and on terminals.
bool is_identifier(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
  });
}

Result<> check_keys(const Json& json, const std::string& file) {
  if (!json.is_object()) return refuse("machine.value", file, "/", "an object", json.type_name());
  for (const auto& [key, value] : json.items()) {
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
      std::string known;
      for (const std::string_view name : kKeys) known += (known.empty() ? "" : ", ") + std::string(name);
      return refuse("machine.key", file, "/" + key.substr(0, 80), "one of " + known, "an unknown key");
    }
    if (value.is_null()) return refuse("machine.value", file, "/" + key, "a value or no such key", "null");
  }
  return Ok{};
}

Result<std::string> text_of(const JsonReader& reader, std::string_view key) {
  MORACLE_ASSIGN(std::string text, reader.string_or(key, ""));
  const bool clean = std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && byte != 0x7f;
  });
  if (text.size() > kMaxText || !clean) {
    return refuse("machine.value", reader.file(), reader.pointer(key),
                  "at most " + std::to_string(kMaxText) + " bytes without control characters",
                  std::to_string(text.size()) + " bytes");
  }
  return text;
}

// A list of distinct identifiers.
Result<std::vector<std::string>> names_of(const JsonReader& reader, std::string_view key) {
  std::vector<std::string> names;
  if (!reader.has(key)) return names;
  const Json& list = reader.json().at(std::string(key));
  if (!list.is_array() || list.size() > kMaxList) {
    return refuse("machine.value", reader.file(), reader.pointer(key),
                  "a list of at most " + std::to_string(kMaxList) + " names", list.type_name());
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string where = reader.pointer(key) + "/" + std::to_string(i);
    if (!list[i].is_string() || !is_identifier(list[i].get_ref<const std::string&>())) {
      return refuse("machine.value", reader.file(), where, "a name of letters, digits, '_', '.' and '-'",
                    list[i].is_string() ? "another text" : list[i].type_name());
    }
    const auto& name = list[i].get_ref<const std::string&>();
    if (std::find(names.begin(), names.end(), name) != names.end())
      return refuse("machine.value", reader.file(), where, "each name once", name + " twice");
    names.push_back(name);
  }
  return names;
}

Result<CpuFeatures> features_of(const JsonReader& reader) {
  MORACLE_ASSIGN(const auto names, names_of(reader, "cpu_features"));
  CpuFeatures features = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto feature = cpu_feature_named(names[i]);
    if (!feature) {
      std::string known;
      for (const CpuFeature each : all_cpu_features())
        known += (known.empty() ? "" : ", ") + std::string(to_string(each));
      return refuse("machine.features", reader.file(), reader.pointer("cpu_features") + "/" + std::to_string(i),
                    "one of " + known, names[i]);
    }
    features = features | *feature;
  }
  for (const CpuFeature feature : all_cpu_features()) {
    const CpuFeatures needed = required_by(feature);
    if (has(features, feature) && (features & needed) != needed) {
      return refuse("machine.features", reader.file(), reader.pointer("cpu_features"),
                    feature_list(needed) + ", which " + std::string(to_string(feature)) + " rests on",
                    feature_list(features));
    }
  }
  return features;
}

// The capability that an architecture's name says: 90 for "sm_90"; 0 for a name of another kind.
int capability_in(std::string_view arch) {
  if (!arch.starts_with("sm_")) return 0;
  int value = 0;
  const char* end = arch.data() + arch.size();
  const auto [stop, code] = std::from_chars(arch.data() + 3, end, value);
  return code == std::errc() && stop == end && value > 0 && value < 1000 ? value : 0;
}

Result<> read_identity(const JsonReader& reader, Machine& machine) {
  if (!reader.has("device")) {
    return Error{.code = "config.missing",
                 .file = reader.file(),
                 .where = "/device",
                 .wanted = "cpu, cuda, rocm or xpu",
                 .found = "nothing"};
  }
  MORACLE_ASSIGN(const std::string device, reader.string_or("device", ""));
  const auto kind = device_kind_named(device);
  if (!kind) return refuse("machine.value", reader.file(), "/device", "cpu, cuda, rocm or xpu", device.substr(0, 80));
  machine.device = *kind;
  MORACLE_ASSIGN(machine.arch, reader.string_or("arch", *kind == DeviceKind::cpu ? "x86_64" : ""));
  if (!is_identifier(machine.arch)) {
    return refuse("machine.value", reader.file(), "/arch", "an architecture's name, such as \"sm_90\" or \"gfx950\"",
                  machine.arch.empty() ? "nothing" : "another text");
  }
  const int said = *kind == DeviceKind::cuda ? capability_in(machine.arch) : 0;
  MORACLE_ASSIGN(const auto capability, reader.integer_or("capability", said, 0, 999));
  machine.capability = static_cast<int>(capability);
  if (*kind == DeviceKind::cuda && (machine.capability == 0 || (said != 0 && said != machine.capability))) {
    return refuse("machine.capability", reader.file(), "/capability",
                  said != 0 ? std::to_string(said) + ", which \"" + machine.arch + "\" says"
                            : "the compute capability times ten, such as 90",
                  std::to_string(machine.capability));
  }
  return Ok{};
}

}  // namespace

Json to_json(const Machine& machine) {
  Json features = Json::array();
  for (const CpuFeature feature : all_cpu_features()) {
    if (has(machine.cpu_features, feature)) features.push_back(to_string(feature));
  }
  return {{"name", machine.name},
          {"device", to_string(machine.device)},
          {"arch", machine.arch},
          {"capability", machine.capability},
          {"cpu_features", std::move(features)},
          {"cpu_model", machine.cpu_model},
          {"cores", machine.cores},
          {"numa_nodes", machine.numa_nodes},
          {"l2_bytes", machine.l2_bytes},
          {"l3_bytes", machine.l3_bytes},
          {"memory_bytes", machine.memory_bytes},
          {"little_endian", machine.little_endian},
          {"libraries", machine.libraries},
          {"os_note", machine.os_note},
          {"fingerprint", machine.fingerprint()}};
}

Result<Machine> machine_from_json(const Json& json, const std::string& file) {
  MORACLE_TRY(check_keys(json, file));
  const JsonReader reader(json, file);
  Machine machine;
  MORACLE_TRY(read_identity(reader, machine));
  MORACLE_ASSIGN(machine.name, text_of(reader, "name"));
  if (machine.name.empty()) machine.name = machine.arch;
  MORACLE_ASSIGN(machine.cpu_features, features_of(reader));
  MORACLE_ASSIGN(machine.cpu_model, text_of(reader, "cpu_model"));
  MORACLE_ASSIGN(const auto cores, reader.integer_or("cores", 1, 1, 1 << 20));
  MORACLE_ASSIGN(const auto nodes, reader.integer_or("numa_nodes", 1, 1, 1 << 12));
  MORACLE_ASSIGN(const auto l2, reader.integer_or("l2_bytes", 0, 0, kMaxBytes));
  MORACLE_ASSIGN(const auto l3, reader.integer_or("l3_bytes", 0, 0, kMaxBytes));
  MORACLE_ASSIGN(const auto memory, reader.integer_or("memory_bytes", 0, 0, kMaxBytes));
  machine.cores = static_cast<int>(cores);
  machine.numa_nodes = static_cast<int>(nodes);
  machine.l2_bytes = static_cast<std::uint64_t>(l2);
  machine.l3_bytes = static_cast<std::uint64_t>(l3);
  machine.memory_bytes = static_cast<std::uint64_t>(memory);
  MORACLE_ASSIGN(machine.little_endian, reader.boolean_or("little_endian", true));
  MORACLE_ASSIGN(machine.libraries, names_of(reader, "libraries"));
  MORACLE_ASSIGN(machine.os_note, text_of(reader, "os_note"));
  MORACLE_TRY(text_of(reader, "fingerprint"));
  return machine;
}

}  // namespace moracle
