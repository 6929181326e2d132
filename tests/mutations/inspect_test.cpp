// Scheme and excluding rule of every linear, router and block of experts of each sample checkpoint, against lists
// written by hand from the configs (tests/data/inspect): "name | scheme | rule". [a-b] in a name stands for the layers
// a to b, # in a rule for the layer's number; no rule where a module is quantized.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "machine/machine.h"
#include "model/model.h"
#include "support/mutations.h"
#include "support/test_data.h"

namespace moracle::test {
namespace {

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// name -> "scheme | rule"
using Verdicts = std::map<std::string, std::string>;

void add_line(const std::string& line, Verdicts& list) {
  const std::size_t first = line.find('|');
  const std::size_t second = line.find('|', first + 1);
  ASSERT_NE(second, std::string::npos) << line;
  const std::string name = trimmed(line.substr(0, first));
  const std::string scheme = trimmed(line.substr(first + 1, second - first - 1));
  const std::string rule = trimmed(line.substr(second + 1));
  const std::size_t range = name.find('[');
  if (range == std::string::npos) {
    EXPECT_TRUE(list.emplace(name, scheme + " | " + rule).second) << name;
    return;
  }
  for (char layer = name[range + 1]; layer <= name[range + 3]; ++layer) {
    const std::string one = replaced(name, name.substr(range, 5), std::string(1, layer));
    EXPECT_TRUE(list.emplace(one, scheme + " | " + replaced(rule, "#", std::string(1, layer))).second) << one;
  }
}

Verdicts written(const std::filesystem::path& path) {
  Verdicts list;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (!line.empty() && line[0] != '#') add_line(line, list);
  return list;
}

std::vector<std::string> lists() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(data_dir() / "inspect"))
    names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

class InspectLists : public ::testing::TestWithParam<std::string> {};

TEST_P(InspectLists, EverySchemeAndRule) {
  const auto folder = find_checkpoint(GetParam());
  if (!folder) GTEST_SKIP() << GetParam() << " is only in the shared collection";
  const auto checkpoint = Checkpoint::open(*folder);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  const auto plan = LoadPlan::make(*checkpoint, probe_machine(), {});
  if (!plan.ok() && plan.error().where == "/model_type") GTEST_SKIP() << plan.error().message();
  ASSERT_TRUE(plan.ok()) << plan.error().message();
  Verdicts found;
  for (const ModuleReport& module : (*plan)->modules()) {
    const bool vector = !(*checkpoint)->find(module.name + ".weight") && (*checkpoint)->find(module.name);
    if (module.kind == "linear" || module.kind == "experts" || (module.kind == "router" && !vector))
      found[module.name] = to_string(module.scheme) + " | " + module.excluded_by;
  }
  EXPECT_EQ(found, written(data_dir() / "inspect" / (GetParam() + ".txt")));
  for (const std::string& warning : (*plan)->warnings()) {
    // One of them was published with two types.
    EXPECT_EQ(warning, "config.json: /dtype = \"bfloat16\" is used, and not /torch_dtype = \"float16\"");
    EXPECT_EQ(GetParam(), "mixtral-awq-w4g32");
  }
}

TEST(InspectList, IsThereForEverySample) {
  EXPECT_EQ(lists().size(), 15U);
  if (!shared_dir()) GTEST_SKIP() << "the larger reference collection is not here";
  for (const auto& entry : std::filesystem::directory_iterator(*shared_dir() / "checkpoints")) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(!entry.is_directory() || std::filesystem::exists(data_dir() / "inspect" / (name + ".txt"))) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, InspectLists, ::testing::ValuesIn(lists()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace moracle::test
