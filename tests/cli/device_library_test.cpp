// Where the program looks for the object with the CUDA kernels, and what it says of what it finds there.
#include <fstream>
#include <sstream>

#include "cli/cli_fixture.h"

namespace moracle::test {
namespace {

const std::filesystem::path kObjects = MORACLE_TEST_OBJECTS;
constexpr const char* kName = "libmoracle_cuda.so";

class DeviceLibraryCli : public CliTest {
 protected:
  // What a command that computes on a GPU says on standard error, in one line; it fails.
  static std::string failure_with(const std::filesystem::path& object) {
    ::setenv("MORACLE_CUDA_LIBRARY", object.c_str(), 1);
    return failure_of(MORACLE_BINARY);
  }
  static std::string failure_of(const std::filesystem::path& program, const char* device = "cuda:0", int code = 1) {
    const RunOutcome outcome =
        run_process({program.string(), "run", model_path(), "-p", "x", "-n", "1", "--device", device});
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    std::string line = outcome.err;
    for (std::size_t at = line.find("\n  "); at != std::string::npos; at = line.find("\n  ")) line.replace(at, 3, " ");
    return line;
  }
  // What `devices` prints of an object over host memory, each run of blanks as one.
  static std::string devices_with(const char* variable, const char* value) {
    ::setenv("MORACLE_CUDA_LIBRARY", (kObjects / "libobject_of_host.so").c_str(), 1);
    ::setenv(variable, value, 1);
    const RunOutcome outcome = run_process({MORACLE_BINARY, "devices"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    std::istringstream words(outcome.out);
    std::string line;
    for (std::string word; words >> word;) line += (line.empty() ? "" : " ") + word;
    return line;
  }
  // A program installed below the test's folder, which has to find the object itself.
  std::filesystem::path install() {
    ::unsetenv("MORACLE_CUDA_LIBRARY");
    std::filesystem::create_directories(folder_ / "bin");
    std::filesystem::copy_file(MORACLE_BINARY, folder_ / "bin" / "moracle");
    return folder_ / "bin" / "moracle";
  }
  void put(const char* object, const char* place) {
    std::filesystem::create_directories(folder_ / place);
    std::filesystem::copy_file(kObjects / object, folder_ / place / kName);
  }
};

TEST_F(DeviceLibraryCli, NamedButNotThere) {
  const auto object = folder_ / "nothing.so";
  EXPECT_EQ(failure_with(object),
            "moracle: error: wanted libmoracle_cuda.so, which holds the CUDA kernels, found none at " +
                object.string() +
                " [device.library]; correct MORACLE_CUDA_LIBRARY, or unset it to look beside the "
                "program\n");
}

TEST_F(DeviceLibraryCli, NamedButNoLibrary) {
  const auto text = folder_ / "text.so";
  std::ofstream(text) << "not a library, but long enough for the header of one: " << std::string(100, '.');
  const std::string expected =
      "moracle: error: " + text.string() + ": wanted a shared object with CUDA kernels, found ";
  const std::string said = failure_with(text);
  EXPECT_TRUE(said.starts_with(expected + "invalid ELF header [device.library]; use the object")) << said;
  const std::string folder = failure_with(folder_);
  EXPECT_NE(folder.find("Is a directory [device.library]; use the object"), std::string::npos) << folder;
}

TEST_F(DeviceLibraryCli, OfAnotherBuild) {
  for (const char* const name : {"libobject_of_version.so", "libobject_of_size.so"}) {
    const auto object = kObjects / name;
    const std::string said = failure_with(object);
    EXPECT_TRUE(said.starts_with("moracle: error: " + object.string() + ": wanted version ")) << said;
    EXPECT_TRUE(said.ends_with(" bytes [device.version]; use the object that was built with this program\n")) << said;
  }
  EXPECT_NE(failure_with(kObjects / "libobject_of_version.so").find("found version 99 of "), std::string::npos);
  EXPECT_NE(failure_with(kObjects / "libobject_of_size.so").find(" of 8 bytes [device.version]"), std::string::npos);
  EXPECT_NE(
      failure_with(kObjects / "libobject_without.so")
          .find("wanted a shared object that exports moracle_device_api, found none of that name [device.library]"),
      std::string::npos);
}

TEST_F(DeviceLibraryCli, IsLookedForInEveryPlace) {
  const auto program = install();
  const std::string said = failure_of(program);
  EXPECT_NE(said.find("found none at " + (folder_ / "bin" / kName).string() + ", " +
                      (folder_ / "lib" / "moracle" / kName).string() +
                      " [device.library]; build with the preset cuda, or set MORACLE_CUDA_LIBRARY to the file\n"),
            std::string::npos)
      << said;
}

TEST_F(DeviceLibraryCli, IsFoundInThePackagesFolder) {
  const auto program = install();
  put("libobject_of_host.so", "lib/moracle");
  const RunOutcome devices = run_process({program.string(), "devices"});
  EXPECT_EQ(devices.code, 0) << devices.err;
  EXPECT_NE(devices.out.find("cuda:0: Fake GPU (sm_90)"), std::string::npos) << devices.out;
}

// The first that is there is taken, whether it serves or not.
TEST_F(DeviceLibraryCli, IsTakenFromBesideTheProgram) {
  const auto program = install();
  put("libobject_of_host.so", "lib/moracle");
  put("libobject_of_version.so", "bin");
  const std::string said = failure_of(program);
  EXPECT_NE(said.find((folder_ / "bin" / kName).string() + ": wanted version "), std::string::npos) << said;
  std::filesystem::remove(folder_ / "bin" / kName);
  put("libobject_of_host.so", "bin");
  std::filesystem::remove(folder_ / "lib" / "moracle" / kName);
  const RunOutcome devices = run_process({program.string(), "devices"});
  EXPECT_NE(devices.out.find("cuda:0: Fake GPU (sm_90)"), std::string::npos) << devices.out;
}

TEST_F(DeviceLibraryCli, HasNoGpuOfThatNumber) {
  ::setenv("MORACLE_CUDA_LIBRARY", (kObjects / "libobject_of_host.so").c_str(), 1);
  EXPECT_EQ(
      failure_of(MORACLE_BINARY, "cuda:7", 2),
      "moracle: error: --device: wanted cuda:0 (Fake GPU), found cuda:7 [device.unknown]; `moracle devices` lists "
      "the GPUs\n");
}

// What `devices` says of GPUs that kernels cannot run on; a load says the same and ends.
TEST_F(DeviceLibraryCli, HasADriverThatIsTooOld) {
  const std::string devices = devices_with("MORACLE_HOST_OBJECT_DRIVER", "12040");
  const std::string said = failure_of(MORACLE_BINARY);
  ::unsetenv("MORACLE_HOST_OBJECT_DRIVER");
  const std::string wanted = "an NVIDIA driver of version 580 or newer (CUDA 13.0)";
  EXPECT_NE(devices.find("none: needs " + wanted + "; found one for CUDA 12.4 "), std::string::npos) << devices;
  EXPECT_EQ(said, "moracle: error: CUDA: wanted " + wanted +
                      ", found one for CUDA 12.4 [device.driver]; install the driver, or compute with --device cpu\n");
}

TEST_F(DeviceLibraryCli, HasAGpuOfAnotherCapability) {
  const std::string devices = devices_with("MORACLE_HOST_OBJECT_CAPABILITY", "75");
  const Json document = json_of({"devices"});
  ::unsetenv("MORACLE_HOST_OBJECT_CAPABILITY");
  EXPECT_NE(
      devices.find("cuda:0: Fake GPU, of 7.5; needs a GPU of compute capability 8.0 or newer, which multiplies bf16"),
      std::string::npos)
      << devices;
  EXPECT_EQ(document.at("gpus"), Json::array());
}

// A GPU that cannot hold the experts: the plan says so, and a load is refused with what there is room for.
TEST_F(DeviceLibraryCli, HasAGpuOfTooLittleMemory) {
  ::setenv("MORACLE_CUDA_LIBRARY", (kObjects / "libobject_of_host.so").c_str(), 1);
  ::setenv("MORACLE_HOST_OBJECT_BYTES", "1000000", 1);
  const RunOutcome plan = moracle_run({"plan", model_path(), "--device", "cuda:0"});
  const Json document = json_of({"plan", model_path(), "--device", "cuda:0"});
  const std::string said = failure_of(MORACLE_BINARY);
  ::unsetenv("MORACLE_HOST_OBJECT_BYTES");
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_NE(plan.out.find("957.0 KiB free of 976.6 KiB"), std::string::npos) << plan.out;
  const Json& machine = document.at("machines").at(1);
  EXPECT_EQ(machine.at("free_bytes"), 980000) << "less a fiftieth, which the driver keeps";
  EXPECT_EQ(machine.at("fits"), false);
  const Json& room = machine.at("room");
  EXPECT_EQ(room.at("call_tokens"), 0);
  EXPECT_LT(room.at("layers"), room.at("of_layers"));
  const std::string has_room = "cuda:0 has room for the weights of " + room.at("layers").dump() + " of " +
                               room.at("of_layers").dump() + " layers\n";
  EXPECT_NE(plan.out.find(has_room), std::string::npos) << plan.out;
  EXPECT_NE(said.find("moracle: error: cuda:0: wanted "), std::string::npos) << said;
  EXPECT_TRUE(said.ends_with(has_room)) << said;
}

}  // namespace
}  // namespace moracle::test
