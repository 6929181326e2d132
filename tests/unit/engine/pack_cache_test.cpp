// Models whose layers come from the pack cache compute the same bits as those that were packed, and nothing that
// happens to the cache's files changes that.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <mutex>

#include "engine/pack_cache.h"
#include "engine/session.h"
#include "support/model_fixture.h"
#include "support/temporary_folder.h"

namespace moracle::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

struct Outcome {
  bool from_cache = false;
  std::vector<float> logits;
  std::vector<std::string> notes;
};

class PackCaches : public testing::Test {
 protected:
  void SetUp() override {
    fs::copy(data_dir() / "checkpoints" / "qwen3moe-gptq-w4g128-sym", model, fs::copy_options::recursive);
  }

  Outcome load(const fs::path& folder, const std::string& backend = {}, std::uint64_t limit = kDefaultCacheLimit,
               const std::function<bool()>& stop = {}) {
    Outcome outcome;
    std::mutex mutex;
    SessionOptions options;
    options.folder = folder;
    options.machine = probe_machine();
    options.threads = 2;
    options.needs_text = false;
    if (!backend.empty()) options.policy.pinned = backend;
    options.cache = {.folder = cache,
                     .limit = limit,
                     .note =
                         [&](const std::string& line) {
                           const std::lock_guard lock(mutex);
                           outcome.notes.push_back(line);
                         },
                     .stop = stop};
    auto session = Session::open(options);
    if (!session.ok()) {
      ADD_FAILURE() << session.error().message();
      return outcome;
    }
    (*session)->settle();
    outcome.from_cache = (*session)->loaded_from_cache();
    const auto state = new_state((*session)->model());
    EXPECT_TRUE((*session)->model().reserve(8).ok());
    outcome.logits = run((*session)->model(), *state, {1, 2, 3, 5, 8, 13, 21, 34});
    return outcome;
  }
  Outcome load() { return load(model); }

  std::vector<fs::path> kept() const {
    std::vector<fs::path> files;
    std::error_code code;
    for (const auto& entry : fs::directory_iterator(cache, code)) files.push_back(entry.path());
    return files;
  }

  TemporaryFolder temporary;
  fs::path model = temporary.path() / "model";
  fs::path cache = temporary.path() / "cache" / "packs";
};

TEST_F(PackCaches, TheSameBitsFromThere) {
  for (const char* name : {"qwen3moe-gptq-w4g128-sym", "qwen3moe-gptq-w4g32-actorder-cut", "mixtral-awq-w4g32"}) {
    const Outcome packed = load(data_dir() / "checkpoints" / name);
    EXPECT_FALSE(packed.from_cache);
    const Outcome restored = load(data_dir() / "checkpoints" / name);
    EXPECT_TRUE(restored.from_cache) << name;
    EXPECT_EQ(packed.logits, restored.logits) << name;
    EXPECT_TRUE(packed.notes.empty() && restored.notes.empty());
  }
  EXPECT_EQ(kept().size(), 3U);
  EXPECT_EQ(fs::status(cache).permissions(), fs::perms::owner_all);
}

TEST_F(PackCaches, DamagedFilesAreWrittenAnew) {
  const Outcome packed = load();
  ASSERT_EQ(kept().size(), 1U);
  const fs::path file = kept().front();
  const auto size = fs::file_size(file);
  for (const std::uintmax_t at : {std::uintmax_t{3}, std::uintmax_t{40}, size / 2, size - 1}) {
    {
      std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
      stream.seekg(static_cast<std::streamoff>(at));
      const int byte = stream.get();
      stream.seekp(static_cast<std::streamoff>(at));
      stream.put(static_cast<char>(byte ^ 4));
    }
    const Outcome rebuilt = load();
    EXPECT_FALSE(rebuilt.from_cache) << at;
    EXPECT_EQ(rebuilt.notes.size(), 1U) << at;
    EXPECT_EQ(rebuilt.logits, packed.logits) << at;
    EXPECT_TRUE(load().from_cache) << at;
  }
  for (const std::uintmax_t left : {std::uintmax_t{0}, std::uintmax_t{100}, size - 1}) {
    fs::resize_file(file, left);
    EXPECT_EQ(load().logits, packed.logits) << left;
    EXPECT_TRUE(load().from_cache) << left;
  }
}

TEST_F(PackCaches, AnotherModelInThePlaceIsNotTakenForTheOld) {
  const Outcome old = load();
  // One weight changes; size and time of the last write stay as they were.
  const fs::path shard = model / "model.safetensors";
  const auto written = fs::last_write_time(shard);
  {
    const auto file = SafetensorsFile::open(shard);
    ASSERT_TRUE(file.ok());
    std::fstream stream(shard, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekp(static_cast<std::streamoff>(file->find("lm_head.weight")->offset));
    for (int i = 0; i < 4096; ++i) stream.put(0);
  }
  fs::last_write_time(shard, written);
  const Outcome changed = load();
  EXPECT_FALSE(changed.from_cache);
  EXPECT_NE(changed.logits, old.logits);
  EXPECT_EQ(kept().size(), 1U) << "it replaces the old one";
  EXPECT_TRUE(load().from_cache);
  EXPECT_EQ(load().logits, changed.logits);
}

TEST_F(PackCaches, ConfigurationsCount) {
  const Outcome first = load();
  std::ofstream(model / "config.json", std::ios::app) << "\n";
  EXPECT_FALSE(load().from_cache);
  EXPECT_TRUE(load().from_cache);
}

TEST_F(PackCaches, ChoicesOfKernelsAreKeptApart) {
  if (!has(probe_machine().cpu_features, CpuFeature::avx2)) GTEST_SKIP() << "this CPU lacks AVX2";
  load(model, "avx2");
  EXPECT_TRUE(load(model, "avx2").from_cache);
  const Outcome reference = load(model, "ref");
  EXPECT_FALSE(reference.from_cache);
  EXPECT_EQ(load(model, "ref").logits, reference.logits);
  EXPECT_TRUE(load(model, "avx2").from_cache);
}

TEST_F(PackCaches, TheLeastRecentlyUsedGoFirst) {
  const fs::path actorder = data_dir() / "checkpoints" / "qwen3moe-gptq-w4g32-actorder-cut";
  const fs::path mixtral = data_dir() / "checkpoints" / "mixtral-awq-w4g32";
  const auto age = [&](const fs::path& file, std::chrono::hours hours) {
    fs::last_write_time(file, fs::file_time_type::clock::now() - hours);
  };
  load(mixtral);
  const std::uint64_t incoming = fs::file_size(kept().front());
  fs::remove(kept().front());
  load();
  const fs::path first = kept().front();
  load(actorder);
  std::uint64_t total = incoming;
  for (const fs::path& file : kept()) {
    total += fs::file_size(file);
    age(file, file == first ? 2h : 1h);
  }
  EXPECT_TRUE(load().from_cache) << "which makes it the most recently used";
  load(mixtral, {}, total - 1);
  EXPECT_EQ(kept().size(), 2U);
  EXPECT_TRUE(load().from_cache);
  EXPECT_TRUE(load(mixtral).from_cache);
  // Nothing that is larger than the limit is written, and nobody has to go for it.
  const Outcome none = load(actorder, {}, 1000);
  EXPECT_FALSE(none.from_cache) << "it had to go";
  EXPECT_EQ(none.notes.size(), 1U);
  EXPECT_EQ(kept().size(), 2U);
}

TEST_F(PackCaches, LeftoversOfKilledWritersGo) {
  fs::create_directories(cache);
  std::ofstream(cache / "0.pack.partial-1-0") << "old";
  std::ofstream(cache / "1.pack.partial-2-0") << "new";
  std::ofstream(cache / "mine.txt") << "of somebody else";
  fs::last_write_time(cache / "0.pack.partial-1-0", fs::file_time_type::clock::now() - 2h);
  load();
  EXPECT_FALSE(fs::exists(cache / "0.pack.partial-1-0"));
  EXPECT_TRUE(fs::exists(cache / "1.pack.partial-2-0")) << "somebody may still write it";
  EXPECT_TRUE(fs::exists(cache / "mine.txt"));
}

TEST_F(PackCaches, InterruptedWritesLeaveNothing) {
  const Outcome stopped = load(model, {}, kDefaultCacheLimit, [] { return true; });
  EXPECT_TRUE(kept().empty());
  EXPECT_TRUE(stopped.notes.empty());
  EXPECT_FALSE(load().from_cache);
}

TEST_F(PackCaches, FoldersThatCannotBeWritten) {
  fs::create_directories(cache.parent_path());
  std::ofstream(cache) << "a file where the folder should be";
  const Outcome packed = load();
  EXPECT_EQ(packed.notes.size(), 1U);
  EXPECT_FALSE(packed.logits.empty());
}

}  // namespace
}  // namespace moracle::test
