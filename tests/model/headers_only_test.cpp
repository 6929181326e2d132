// A plan needs the headers of a checkpoint and no byte of its tensors.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "model/load/memory_plan.h"
#include "support/model_fixture.h"
#include "support/mutable_checkpoint.h"
#include "support/mutations.h"
#include "support/tiny_model.h"

namespace moracle::test {
namespace {

// Takes the pages of all tensors away: whoever reads one is killed. Pages that a header reaches into are kept.
class Locked {
 public:
  explicit Locked(const Checkpoint& checkpoint) {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    std::map<std::string, std::pair<std::uintptr_t, std::uintptr_t>> files;  // first and last byte of the data
    for (const auto& [name, tensor] : checkpoint.tensors()) {
      const auto begin = reinterpret_cast<std::uintptr_t>(tensor.bytes.data());
      const auto [file, added] = files.try_emplace(tensor.file, begin, begin);
      file->second.first = std::min(file->second.first, begin);
      file->second.second = std::max(file->second.second, begin + tensor.bytes.size());
    }
    for (const auto& [name, range] : files) {
      const std::uintptr_t begin = (range.first + page - 1) / page * page;
      const std::uintptr_t end = range.second / page * page;
      if (begin >= end) continue;
      ranges_.emplace_back(reinterpret_cast<void*>(begin), end - begin);
      EXPECT_EQ(mprotect(ranges_.back().first, ranges_.back().second, PROT_NONE), 0);
    }
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() {
    for (const auto& [begin, bytes] : ranges_) mprotect(begin, bytes, PROT_READ);
  }
  [[nodiscard]] std::size_t bytes() const {
    std::size_t total = 0;
    for (const auto& range : ranges_) total += range.second;
    return total;
  }

 private:
  std::vector<std::pair<void*, std::size_t>> ranges_;
};

std::unique_ptr<LoadPlan> planned(const std::filesystem::path& folder, const std::string& device, bool locked) {
  const auto checkpoint = Checkpoint::open(folder);
  const auto machine = resolve_machine(device);
  if (!checkpoint.ok() || !machine.ok()) {
    ADD_FAILURE() << (checkpoint.ok() ? machine.error() : checkpoint.error()).message();
    return nullptr;
  }
  std::optional<Locked> lock;
  if (locked) {
    lock.emplace(**checkpoint);
    EXPECT_GT(lock->bytes(), (*checkpoint)->total_bytes() / 2);
  }
  auto plan = LoadPlan::make(*checkpoint, *machine, {});
  if (!plan.ok()) {
    ADD_FAILURE() << plan.error().message();
    return nullptr;
  }
  return std::move(*plan);
}

std::vector<std::filesystem::path> all_checkpoints() {
  std::vector<std::filesystem::path> all;
  std::vector<std::filesystem::path> roots{data_dir() / "checkpoints", data_dir() / "families"};
  if (const auto shared = shared_dir()) roots.push_back(*shared / "checkpoints");
  for (const auto& root : roots) {
    for (const auto& entry : std::filesystem::directory_iterator(root)) {
      const auto known = std::find_if(all.begin(), all.end(), [&](const std::filesystem::path& path) {
        return path.filename() == entry.path().filename();
      });
      if (known == all.end() && std::filesystem::exists(entry.path() / "config.json")) all.push_back(entry.path());
    }
  }
  std::sort(all.begin(), all.end());
  return all;
}

class HeadersOnlyTest : public testing::TestWithParam<std::filesystem::path> {};

bool reordered(const LoadPlan& plan) {
  return std::any_of(plan.modules().begin(), plan.modules().end(),
                     [](const ModuleReport& module) { return module.problem && module.problem->act_order; });
}

// Every byte of data is 0xFF, which is NaN, -1 or a scale out of range, and may not even be read: the answers are those
// of the checkpoint as it was. Of act-order the group indices are needed, and nothing else.
TEST_P(HeadersOnlyTest, DecideEverything) {
  const auto original = planned(GetParam(), "zen4", false);
  ASSERT_NE(original, nullptr);
  const bool indices = reordered(*original);
  MutableCheckpoint poisoned = MutableCheckpoint::read(GetParam());
  for (auto& [file, tensors] : poisoned.shards) {
    for (auto& [name, tensor] : tensors) {
      if (!indices || !name.ends_with("g_idx")) std::fill(tensor.bytes.begin(), tensor.bytes.end(), std::uint8_t{0xFF});
    }
  }
  const TemporaryFolder folder;
  poisoned.write(folder.path());
  for (const char* device : {"zen4", "gfx950"}) {
    SCOPED_TRACE(device);
    const auto wanted = planned(GetParam(), device, false);
    const auto found = planned(folder.path(), device, !indices);
    ASSERT_TRUE(wanted != nullptr && found != nullptr);
    EXPECT_EQ(found->parameters(), wanted->parameters());
    EXPECT_EQ(found->warnings(), wanted->warnings());
    ASSERT_EQ(found->modules().size(), wanted->modules().size());
    for (std::size_t i = 0; i < wanted->modules().size(); ++i) {
      const ModuleReport& a = wanted->modules()[i];
      const ModuleReport& b = found->modules()[i];
      EXPECT_EQ(b.name, a.name);
      EXPECT_EQ(b.scheme, a.scheme) << a.name;
      EXPECT_EQ(b.problem, a.problem) << a.name;
      EXPECT_EQ(b.bytes, a.bytes) << a.name;
      if (a.decision) {
        EXPECT_EQ(b.decision->winner, a.decision->winner) << a.name;
      }
    }
  }
  EXPECT_FALSE(load_wholly(folder.path()).ok()) << "what a plan does not read, a load does";
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, HeadersOnlyTest, testing::ValuesIn(all_checkpoints()), [](const auto& info) {
  std::string name = info.param.filename().string();
  std::replace_if(name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
});

}  // namespace
}  // namespace moracle::test
