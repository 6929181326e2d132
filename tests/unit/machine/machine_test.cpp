#include "machine/machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <thread>

#include "base/json.h"
#include "support/temporary_folder.h"

namespace moracle {
namespace {

// Sets an environment variable for one scope.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~ScopedVariable() { unsetenv(name_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
};

Error error_of(const std::string& text) {
  const auto json = parse_json(text, "m.json");
  EXPECT_TRUE(json.ok()) << text;
  if (!json.ok()) return json.error();
  const auto machine = machine_from_json(*json, "m.json");
  EXPECT_FALSE(machine.ok()) << text;
  return machine.ok() ? Error{} : machine.error();
}

TEST(Probe, DescribesThisHost) {
  const Machine machine = probe_machine();
  EXPECT_EQ(machine.device, DeviceKind::cpu);
  EXPECT_EQ(machine.name, "this machine");
  EXPECT_GE(machine.cores, 1);
  EXPECT_LE(machine.cores, static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  EXPECT_GE(machine.numa_nodes, 1);
  EXPECT_GT(machine.memory_bytes, std::uint64_t{1} << 26U);
  EXPECT_TRUE(machine.little_endian);
  for (const CpuFeature feature : all_cpu_features()) {
    if (has(machine.cpu_features, feature)) {
      EXPECT_EQ(machine.cpu_features & required_by(feature), required_by(feature)) << to_string(feature);
    }
  }
}

#if defined(__x86_64__)
// The compiler's run-time support reads CPUID and XGETBV by itself.
TEST(Probe, AgreesWithTheCompilersRuntime) {
  const CpuFeatures features = probe_machine().cpu_features;
  const auto yes = [](int answer) { return answer != 0; };
  EXPECT_EQ(has(features, CpuFeature::avx2), yes(__builtin_cpu_supports("avx2")) && yes(__builtin_cpu_supports("fma")));
  EXPECT_EQ(has(features, CpuFeature::avx_vnni), yes(__builtin_cpu_supports("avxvnni")));
  EXPECT_EQ(has(features, CpuFeature::avx512),
            yes(__builtin_cpu_supports("avx512f")) && yes(__builtin_cpu_supports("avx512bw")) &&
                yes(__builtin_cpu_supports("avx512dq")) && yes(__builtin_cpu_supports("avx512vl")));
  EXPECT_EQ(has(features, CpuFeature::avx512_vnni), yes(__builtin_cpu_supports("avx512vnni")));
  EXPECT_EQ(has(features, CpuFeature::avx512_bf16), yes(__builtin_cpu_supports("avx512bf16")));
  EXPECT_EQ(has(features, CpuFeature::avx512_vbmi), yes(__builtin_cpu_supports("avx512vbmi")));
}
#endif

TEST(Probe, IsTheSameTwice) {
  EXPECT_EQ(probe_machine(), probe_machine());
}

TEST(Probe, EnvironmentOnlyTakesAway) {
  const Machine whole = probe_machine();
  {
    const ScopedVariable only("MORACLE_CPU_FEATURES", "avx2");
    const Machine less = probe_machine();
    EXPECT_EQ(less.cpu_features, whole.cpu_features & static_cast<CpuFeatures>(CpuFeature::avx2));
    if (less.cpu_features != whole.cpu_features) {
      EXPECT_NE(less.os_note.find("MORACLE_CPU_FEATURES"), std::string::npos);
      EXPECT_NE(less.fingerprint(), whole.fingerprint());
    }
  }
  {
    const ScopedVariable all("MORACLE_CPU_FEATURES",
                             "avx2,avx512_vnni,avx512_bf16,avx512_vbmi,amx_int8,amx_bf16,amx_fp8,neon,avx_vnni");
    EXPECT_EQ(probe_machine().cpu_features, whole.cpu_features);
  }
  {
    const ScopedVariable none("MORACLE_CPU_FEATURES", "");
    EXPECT_EQ(probe_machine().cpu_features, 0U);
  }
  {
    const ScopedVariable wrong("MORACLE_CPU_FEATURES", "avx1024");
    const Machine machine = probe_machine();
    EXPECT_EQ(machine.cpu_features, 0U);
    EXPECT_NE(machine.os_note.find("unknown feature"), std::string::npos);
  }
}

TEST(Features, RestrictionKeepsWhatANamedFeatureRestsOn) {
  std::vector<std::string> unknown;
  const CpuFeatures zen4 = resolve_machine("zen4")->cpu_features;
  EXPECT_EQ(restrict_features(zen4, "avx512_bf16", unknown),
            CpuFeature::avx2 | CpuFeature::avx512 | CpuFeature::avx512_bf16);
  EXPECT_EQ(restrict_features(zen4, "amx_int8", unknown), 0U);
  EXPECT_EQ(restrict_features(resolve_machine("zen5")->cpu_features, "avx_vnni", unknown),
            CpuFeature::avx2 | CpuFeature::avx_vnni);
  EXPECT_EQ(restrict_features(zen4, "none", unknown), 0U);
  EXPECT_EQ(restrict_features(zen4, ",,avx2,", unknown), static_cast<CpuFeatures>(CpuFeature::avx2));
  EXPECT_TRUE(unknown.empty());
  EXPECT_EQ(restrict_features(zen4, "avx2, avx512", unknown), static_cast<CpuFeatures>(CpuFeature::avx2));
  EXPECT_EQ(unknown, std::vector<std::string>{" avx512"});
}

TEST(Features, NamesComeBack) {
  for (const CpuFeature feature : all_cpu_features()) EXPECT_EQ(cpu_feature_named(to_string(feature)), feature);
  EXPECT_FALSE(cpu_feature_named("AVX2").has_value());
  EXPECT_EQ(feature_list(CpuFeature::avx2 | CpuFeature::amx_tile), "avx2+amx_tile");
  EXPECT_EQ(feature_list(0), "none");
}

TEST(NamedMachines, EachResolvesAndIsConsistent) {
  std::set<std::string> seen;
  for (const std::string& name : named_machines()) {
    EXPECT_TRUE(seen.insert(name).second) << name;
    const auto machine = resolve_machine(name);
    ASSERT_TRUE(machine.ok()) << name;
    EXPECT_EQ(machine->name, name);
    EXPECT_EQ(machine->device == DeviceKind::cuda, machine->capability > 0) << name;
    // The JSON reader checks the facts against each other.
    const auto again = machine_from_json(to_json(*machine), name);
    ASSERT_TRUE(again.ok()) << again.error().message();
    EXPECT_EQ(*again, *machine) << name;
  }
  for (const char* name : {"zen4",           "zen3",      "skylake-x", "icelake-server", "sapphire-rapids",
                           "generic-x86-64", "h100",      "h200",      "a100",           "l40s",
                           "rtx4090",        "b200",      "b300",      "rtx5090",        "mi300x",
                           "mi355x",         "rx7900xtx", "gfx1100",   "gfx1201",        "gfx950",
                           "sm_90",          "pvc",       "xpu",       "graviton4",      "neoverse-n1"})
    EXPECT_TRUE(resolve_machine(name).ok()) << name;
}

TEST(NamedMachines, SpellingsOfOneArchitecture) {
  for (const char* name : {"sm_90", "sm90", "SM_90"}) {
    const auto machine = resolve_machine(name);
    ASSERT_TRUE(machine.ok()) << name;
    EXPECT_EQ(machine->name, "sm_90");
    EXPECT_EQ(machine->capability, 90);
  }
  EXPECT_EQ(resolve_machine("H200")->name, "h200");
  EXPECT_EQ(resolve_machine("gfx950")->arch, "gfx950");
  EXPECT_EQ(resolve_machine("h100")->fingerprint(), resolve_machine("h200")->fingerprint());
  EXPECT_EQ(resolve_machine("rtx5090")->arch, "sm_120");
}

TEST(NamedMachines, FeatureLevels) {
  EXPECT_EQ(resolve_machine("generic-x86-64")->cpu_features, 0U);
  EXPECT_TRUE(has(resolve_machine("zen3")->cpu_features, CpuFeature::avx2));
  EXPECT_FALSE(has(resolve_machine("zen3")->cpu_features, CpuFeature::avx512));
  EXPECT_EQ(resolve_machine("alder-lake")->cpu_features, CpuFeature::avx2 | CpuFeature::avx_vnni);
  EXPECT_FALSE(has(resolve_machine("skylake-x")->cpu_features, CpuFeature::avx512_vnni));
  EXPECT_TRUE(has(resolve_machine("icelake-server")->cpu_features, CpuFeature::avx512_vnni));
  EXPECT_FALSE(has(resolve_machine("icelake-server")->cpu_features, CpuFeature::avx512_bf16));
  EXPECT_TRUE(has(resolve_machine("zen4")->cpu_features, CpuFeature::avx512_bf16));
  EXPECT_TRUE(has(resolve_machine("sapphire-rapids")->cpu_features, CpuFeature::amx_bf16));
}

TEST(Resolve, UnknownNameListsTheNames) {
  const auto machine = resolve_machine("h2000");
  ASSERT_FALSE(machine.ok());
  EXPECT_EQ(machine.error().code, "device.unknown");
  EXPECT_NE(machine.error().wanted.find("cpu, generic-x86-64"), std::string::npos);
  EXPECT_NE(machine.error().wanted.find("gfx950"), std::string::npos);
  EXPECT_EQ(resolve_machine("").error().code, "device.unknown");
  EXPECT_EQ(resolve_machine("no/such.json").error().code, "file.open");
}

TEST(Resolve, ReadsAFile) {
  const test::TemporaryFolder folder;
  folder.write("machine.json",
               R"({"device": "rocm", "arch": "gfx942", "libraries": ["aiter"], "memory_bytes": 192000000000})");
  const auto machine = resolve_machine((folder.path() / "machine.json").string());
  ASSERT_TRUE(machine.ok()) << machine.error().message();
  EXPECT_EQ(machine->name, "gfx942");
  EXPECT_TRUE(machine->has_library("aiter"));
  EXPECT_FALSE(machine->has_library("flashinfer"));
  EXPECT_EQ(resolve_machine("cpu")->name, "this machine");
}

TEST(MachineJson, RoundTripOfTheProbe) {
  Machine machine = probe_machine();
  machine.libraries = {"flashinfer", "humming"};
  const auto again = machine_from_json(to_json(machine), "x");
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_EQ(*again, machine);
}

TEST(MachineJson, OnlyTheDeviceIsRequired) {
  const auto machine = machine_from_json(Json{{"device", "cpu"}}, "x");
  ASSERT_TRUE(machine.ok());
  EXPECT_EQ(machine->arch, "x86_64");
  EXPECT_EQ(machine->cores, 1);
  const auto gpu = machine_from_json(Json{{"device", "cuda"}, {"arch", "sm_86"}}, "x");
  ASSERT_TRUE(gpu.ok());
  EXPECT_EQ(gpu->capability, 86);
}

struct Hostile {
  const char* text;
  const char* code;
  const char* where;
};

TEST(MachineJson, HostileInputIsNamed) {
  const std::string long_list = [] {
    std::string text = R"({"device": "cpu", "libraries": [)";
    for (int i = 0; i < 300; ++i) text += (i > 0 ? ",\"l" : "\"l") + std::to_string(i) + '"';
    return text + "]}";
  }();
  const std::string long_name = R"({"device": "cpu", "name": ")" + std::string(5000, 'x') + "\"}";
  const Hostile cases[] = {
      {"[]", "machine.value", "/"},
      {"{}", "config.missing", "/device"},
      {R"({"device": "tpu"})", "machine.value", "/device"},
      {R"({"device": 1})", "config.type", "/device"},
      {R"({"device": null})", "machine.value", "/device"},
      {R"({"device": "cpu", "core": 4})", "machine.key", "/core"},
      {R"({"device": "cpu", "cores": 0})", "config.range", "/cores"},
      {R"({"device": "cpu", "cores": 1e30})", "config.type", "/cores"},
      {R"({"device": "cpu", "cores": "4"})", "config.type", "/cores"},
      {R"({"device": "cpu", "cores": 2.5})", "config.type", "/cores"},
      {R"({"device": "cpu", "memory_bytes": -1})", "config.range", "/memory_bytes"},
      {R"({"device": "cpu", "memory_bytes": 18446744073709551615})", "config.type", "/memory_bytes"},
      {R"({"device": "cpu", "l2_bytes": []})", "config.type", "/l2_bytes"},
      {R"({"device": "cpu", "little_endian": 1})", "config.type", "/little_endian"},
      {R"({"device": "cpu", "cpu_features": "avx2"})", "machine.value", "/cpu_features"},
      {R"({"device": "cpu", "cpu_features": ["avx3"]})", "machine.features", "/cpu_features/0"},
      {R"({"device": "cpu", "cpu_features": ["avx2", 7]})", "machine.value", "/cpu_features/1"},
      {R"({"device": "cpu", "cpu_features": ["avx2", "avx2"]})", "machine.value", "/cpu_features/1"},
      {R"({"device": "cpu", "cpu_features": ["avx512_bf16"]})", "machine.features", "/cpu_features"},
      {R"({"device": "cuda"})", "machine.value", "/arch"},
      {R"({"device": "cuda", "arch": "sm_90", "capability": 80})", "machine.capability", "/capability"},
      {R"({"device": "cuda", "arch": "hopper"})", "machine.capability", "/capability"},
      {R"({"device": "cuda", "arch": "sm_99999999999"})", "machine.capability", "/capability"},
      {R"({"device": "rocm", "arch": "../gfx950"})", "machine.value", "/arch"},
      {R"({"device": "cpu", "name": "a\u001b[31m"})", "machine.value", "/name"},
      {R"({"device": "cpu", "libraries": ["a b"]})", "machine.value", "/libraries/0"},
      {R"({"device": "cpu", "fingerprint": 3})", "config.type", "/fingerprint"},
      {long_list.c_str(), "machine.value", "/libraries"},
      {long_name.c_str(), "machine.value", "/name"},
  };
  for (const Hostile& hostile : cases) {
    const Error error = error_of(hostile.text);
    EXPECT_EQ(error.code, hostile.code) << std::string(hostile.text).substr(0, 80);
    EXPECT_EQ(error.where, hostile.where) << std::string(hostile.text).substr(0, 80);
    EXPECT_EQ(error.file, "m.json");
  }
}

TEST(Fingerprint, FollowsWhatDecisionsDependOn) {
  const Machine base = *resolve_machine("zen4");
  EXPECT_EQ(base.fingerprint().rfind("cpu-x86_64-", 0), 0U);
  Machine machine = base;
  machine.name = "other";
  machine.cores = 1;
  machine.memory_bytes = 1;
  machine.os_note = "note";
  EXPECT_EQ(machine.fingerprint(), base.fingerprint());
  machine = base;
  machine.cpu_features = static_cast<CpuFeatures>(CpuFeature::avx2);
  EXPECT_NE(machine.fingerprint(), base.fingerprint());
  machine = base;
  machine.libraries = {"b", "a"};
  Machine sorted = base;
  sorted.libraries = {"a", "b"};
  EXPECT_EQ(machine.fingerprint(), sorted.fingerprint());
  EXPECT_NE(machine.fingerprint(), base.fingerprint());
  machine = base;
  machine.little_endian = false;
  EXPECT_NE(machine.fingerprint(), base.fingerprint());
}

}  // namespace
}  // namespace moracle
