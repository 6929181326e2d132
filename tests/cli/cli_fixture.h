// What the tests of the program share: the binary, a small model, copies of it with one thing changed.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "support/subprocess.h"
#include "support/temporary_folder.h"
#include "support/test_data.h"

namespace moracle::test {

inline RunOutcome moracle_run(std::vector<std::string> arguments, const RunOptions& options = {}) {
  arguments.insert(arguments.begin(), MORACLE_BINARY);
  return run_process(arguments, options);
}

inline std::string model_path(const char* name = "qwen3moe-gptq-w4g128-sym") {
  return (data_dir() / "checkpoints" / name).string();
}

// Runs with --json, demands exit code `code` and one document on standard output.
inline Json json_of(std::vector<std::string> arguments, int code = 0) {
  arguments.push_back("--json");
  const RunOutcome outcome = moracle_run(arguments);
  EXPECT_EQ(outcome.code, code) << outcome.err;
  auto json = parse_json(outcome.out, "stdout");
  EXPECT_TRUE(json.ok()) << outcome.out;
  return json.ok() ? *json : Json();
}

// A folder that goes with the test.
class CliTest : public ::testing::Test {
 protected:
  // What is told of GPUs is the same with and without one, and with and without the object beside the program.
  CliTest() { ::setenv("MORACLE_CUDA_LIBRARY", "/nowhere/libmoracle_cuda.so", 1); }

  // A copy of the small model, changed by the test.
  std::filesystem::path copy_model(const char* name = "qwen3moe-gptq-w4g128-sym") {
    const auto copy = folder_ / "model";
    std::filesystem::copy(model_path(name), copy, std::filesystem::copy_options::recursive);
    return copy;
  }

  TemporaryFolder temporary_;
  const std::filesystem::path& folder_ = temporary_.path();
};

// Where a tensor's bytes are in model.safetensors.
struct TensorPlace {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};
inline TensorPlace find_tensor(const std::filesystem::path& file, const std::string& name) {
  std::ifstream stream(file, std::ios::binary);
  std::uint64_t length = 0;
  stream.read(reinterpret_cast<char*>(&length), sizeof length);
  std::string header(length, '\0');
  stream.read(header.data(), static_cast<std::streamsize>(length));
  const auto offsets = Json::parse(header).at(name).at("data_offsets");
  return {8 + length + offsets[0].get<std::uint64_t>(), 8 + length + offsets[1].get<std::uint64_t>()};
}
inline void overwrite(const std::filesystem::path& file, std::uint64_t offset, const std::string& bytes) {
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekp(static_cast<std::streamoff>(offset));
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace moracle::test
