// Model folders of a stranger, run through the program: each ends soon, in little memory, with one short error that
// names the cause. A case is a folder of tests/data/hostile (or of $MORACLE_HOSTILE_CASES): files laid over a copy of a
// checkpoint, and case.json:
//   base     the checkpoint below tests/data/checkpoints or tests/data
//   args     the command; MODEL and OUT stand for the folder and a file to write
//   want     a regular expression that the error must match
//   served   true where the answer may be right as well: exit code 0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "hostile/hostile_run.h"
#include "support/temporary_folder.h"
#include "support/test_data.h"

namespace moracle::test {
namespace {

std::filesystem::path cases_dir() {
  const char* other = std::getenv("MORACLE_HOSTILE_CASES");
  return other != nullptr ? std::filesystem::path(other) : data_dir() / "hostile";
}

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(cases_dir())) {
    if (std::filesystem::exists(entry.path() / "case.json")) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class Hostile : public testing::TestWithParam<std::string> {};

TEST_P(Hostile, EndsSoonWithOneShortError) {
  const auto source = cases_dir() / GetParam();
  const auto json = read_json(source / "case.json");
  ASSERT_TRUE(json.ok()) << json.error().message();
  const TemporaryFolder temporary;
  const auto model = temporary.path() / "model";
  std::filesystem::copy(hostile_base(json->at("base")), model, std::filesystem::copy_options::recursive);
  for (const auto& entry : std::filesystem::directory_iterator(source)) {
    if (entry.path().filename() == "case.json" || entry.path().filename() == "README.md") continue;
    std::filesystem::copy(entry.path(), model / entry.path().filename(),
                          std::filesystem::copy_options::overwrite_existing);
  }
  std::vector<std::string> arguments;
  for (const std::string argument : json->at("args")) {
    arguments.push_back(argument == "MODEL" ? model.string()
                        : argument == "OUT" ? (temporary.path() / "out").string()
                                            : argument);
  }
  expect_soon(arguments, json->at("want"), json->value("served", false));
}

INSTANTIATE_TEST_SUITE_P(Cases, Hostile, testing::ValuesIn(case_names()), [](const auto& one) {
  std::string name = one.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace moracle::test
