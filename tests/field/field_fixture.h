// Tiny models in the situations that users of such engines report (tests/data/field), tried through the program.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/safetensors_file.h"
#include "support/mutable_checkpoint.h"
#include "support/subprocess.h"
#include "support/temporary_folder.h"
#include "support/test_data.h"

namespace moracle::test {

class FieldTest : public ::testing::Test {
 protected:
  // The case as a model folder. Its file "base" names another case, whose files it has as well: small ones that are not
  // its own, and weights where it has none.
  std::filesystem::path model(const std::string& name) {
    const std::filesystem::path folder = temporary_.path() / name;
    std::filesystem::create_directories(folder);
    lay_over(name, folder);
    return folder;
  }

  // The case with its tensors and its config changed.
  std::filesystem::path changed(const std::string& name, const std::function<void(MutableCheckpoint&)>& change) {
    const std::filesystem::path original = model(name);
    MutableCheckpoint copy = MutableCheckpoint::read(original);
    change(copy);
    const std::filesystem::path folder = temporary_.path() / ("changed" + std::to_string(++copies_));
    std::filesystem::create_directories(folder);
    copy.write(folder);
    return folder;
  }

  static RunOutcome moracle(std::vector<std::string> arguments, const RunOptions& options = {}) {
    arguments.insert(arguments.begin(), MORACLE_BINARY);
    return run_process(arguments, options);
  }

  // What `moracle logits` does with a fixed prompt.
  struct Logits {
    std::vector<float> values;
    std::string err;
  };
  Logits logits(const std::filesystem::path& folder) {
    const std::filesystem::path out = temporary_.path() / ("logits" + std::to_string(++copies_));
    const RunOutcome run = moracle({"logits", folder.string(), "--ids", "72,101,108,108,111,32,119,111", "--backend",
                                    "ref", "--threads", "1", "--out", out.string()});
    EXPECT_EQ(run.code, 0) << run.err;
    Logits logits{.values = {}, .err = run.err};
    if (run.code != 0) return logits;
    const auto file = SafetensorsFile::open(out);
    const TensorView* tensor = file.ok() ? file->find("logits") : nullptr;
    if (tensor == nullptr) {
      ADD_FAILURE() << "no tensor \"logits\" in " << out;
      return logits;
    }
    logits.values.resize(tensor->bytes.size() / sizeof(float));
    std::memcpy(logits.values.data(), tensor->bytes.data(), tensor->bytes.size());
    return logits;
  }

  // 2-norm of the difference over 2-norm of the reference; infinite where sizes differ.
  static double relative_error(const Logits& found, const Logits& reference) {
    if (found.values.empty() || found.values.size() != reference.values.size()) return INFINITY;
    double difference = 0.0;
    double norm = 0.0;
    for (std::size_t i = 0; i < found.values.size(); ++i) {
      const double one = static_cast<double>(found.values[i]) - static_cast<double>(reference.values[i]);
      difference += one * one;
      norm += static_cast<double>(reference.values[i]) * static_cast<double>(reference.values[i]);
    }
    return std::sqrt(difference / norm);
  }
  void expect_equal(const std::filesystem::path& found, const std::filesystem::path& reference) {
    EXPECT_LE(relative_error(logits(found), logits(reference)), 1e-5) << found << " and " << reference;
  }

 private:
  static void lay_over(const std::string& name, const std::filesystem::path& folder) {
    const std::filesystem::path from = data_dir() / "field" / name;
    bool weights = false;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) weights |= is_weights(entry.path());
    for (const auto& entry : std::filesystem::directory_iterator(from)) {
      const std::filesystem::path to = folder / entry.path().filename();
      if (entry.path().filename() == "base" || std::filesystem::exists(to)) continue;
      if (!weights || !is_weights(entry.path())) std::filesystem::create_symlink(entry.path(), to);
    }
    std::ifstream file(from / "base");
    if (std::string base; std::getline(file, base)) lay_over(base, folder);
  }
  static bool is_weights(const std::filesystem::path& path) { return path.extension() == ".safetensors"; }

  TemporaryFolder temporary_;
  int copies_ = 0;
};

}  // namespace moracle::test
