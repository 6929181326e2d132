#include "engine/pack_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <numeric>
#include <random>
#include <thread>

#include "support/temporary_folder.h"

namespace moracle {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

class PackFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 rng(5);
    // More than two blocks, less than a page, nothing.
    for (const std::size_t size : {std::size_t{2500000}, std::size_t{100}, std::size_t{0}}) {
      std::vector<std::byte>& memory = memories.emplace_back(size);
      for (std::byte& byte : memory) byte = static_cast<std::byte>(rng());
      packs.push_back({.name = "pack " + std::to_string(size), .memory = memory});
    }
  }

  // Whether the file opens and gives back every pack.
  bool whole() {
    const auto file = PackFile::open(path, "key");
    if (!file.ok()) return false;
    for (std::size_t i = 0; i < packs.size(); ++i) {
      std::vector<std::byte> read(memories[i].size());
      if (!file->has(packs[i].name, read.size())) return false;
      if (!file->read(packs[i].name, read, pool).ok()) return false;
      EXPECT_EQ(read, memories[i]) << "wrong bytes were taken for good ones";
    }
    return true;
  }
  std::size_t files() const { return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {})); }

  ThreadPool pool{2};
  test::TemporaryFolder temporary;
  fs::path folder = temporary.path();
  fs::path path = folder / "a.pack";
  std::vector<std::vector<std::byte>> memories;
  std::vector<KeptPack> packs;
};

TEST_F(PackFiles, ComeBackAsTheyWere) {
  EXPECT_EQ(PackFile::open(path, "key").error().code, "cache.absent");
  ASSERT_TRUE(write_pack_file(path, "key", packs, {}).ok());
  EXPECT_EQ(fs::file_size(path), pack_file_bytes("key", packs));
  EXPECT_TRUE(whole());
  EXPECT_EQ(files(), 1U);
  EXPECT_EQ(PackFile::open(path, "another key").error().code, "cache.other");
  const auto file = PackFile::open(path, "key");
  ASSERT_TRUE(file.ok());
  EXPECT_FALSE(file->has("pack 100", 101));
  EXPECT_FALSE(file->has("pack", 100));
}

TEST_F(PackFiles, EveryChangedByteOfTheTableIsNoticed) {
  ASSERT_TRUE(write_pack_file(path, "key", packs, {}).ok());
  const std::string good = bytes_of(path);
  std::uint64_t table = 0;
  std::memcpy(&table, good.data() + 8, 8);
  for (std::size_t at = 0; at < 24 + table; ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    write_bytes(path, bad);
    EXPECT_FALSE(whole()) << at;
  }
}

TEST_F(PackFiles, ChangedPacksAreNoticed) {
  ASSERT_TRUE(write_pack_file(path, "key", packs, {}).ok());
  const std::string good = bytes_of(path);
  // Each pack begins with a page.
  const std::size_t first = 4096;
  const std::size_t second = (first + memories[0].size() + 4095) / 4096 * 4096;
  for (const std::size_t at :
       {first, first + (1 << 20), first + memories[0].size() - 1, second + memories[1].size() - 1}) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    write_bytes(path, bad);
    EXPECT_FALSE(whole()) << at;
  }
}

TEST_F(PackFiles, CutFilesAreNoticed) {
  ASSERT_TRUE(write_pack_file(path, "key", packs, {}).ok());
  const std::string good = bytes_of(path);
  for (std::size_t size = 0; size < good.size(); size += size < 200 ? 1 : 99991) {
    write_bytes(path, good.substr(0, size));
    EXPECT_FALSE(whole()) << size;
  }
}

// Tables whose checksum is right and whose numbers are not: any bytes at all behind the key.
TEST_F(PackFiles, HostileNumbers) {
  std::mt19937 rng(9);
  for (int round = 0; round < 500; ++round) {
    std::string table("\3\0\0\0key\1\0\0\0", 11);
    const std::size_t size = rng() % 64;
    for (std::size_t i = 0; i < size; ++i) table += static_cast<char>(rng() % 4 == 0 ? 0xFF : rng() % 3);
    std::string file("moracle\n");
    for (const std::uint64_t number :
         {std::uint64_t{table.size()}, std::uint64_t{XXH3_64bits(table.data(), table.size())}})
      file.append(reinterpret_cast<const char*>(&number), 8);
    write_bytes(path, file + table);
    EXPECT_FALSE(whole());
  }
}

TEST_F(PackFiles, NotOfThisUserAlone) {
  ASSERT_TRUE(write_pack_file(path, "key", packs, {}).ok());
  fs::permissions(path, fs::perms::others_write, fs::perm_options::add);
  EXPECT_EQ(PackFile::open(path, "key").error().code, "cache.broken");
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_EQ(PackFile::open(path, "key").error().code, "cache.broken");
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(PackFile::open(path, "key").error().code, "cache.broken");
  fs::remove(path);
  ASSERT_TRUE(write_pack_file(folder / "b.pack", "key", packs, {}).ok());
  fs::create_symlink(folder / "b.pack", path);
  EXPECT_EQ(PackFile::open(path, "key").error().code, "cache.broken");
}

TEST_F(PackFiles, StoppedWritersLeaveNothing) {
  for (int blocks = 0; blocks < 4; ++blocks) {
    int asked = 0;
    const auto written = write_pack_file(path, "key", packs, [&] { return asked++ == blocks; });
    EXPECT_EQ(written.error().code, "cache.stopped");
    EXPECT_EQ(files(), 0U);
  }
}

TEST_F(PackFiles, FullDisksLeaveNothing) {
  struct rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 1 << 20;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto written = write_pack_file(path, "key", packs, {});
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(written.error().code, "file.write");
  EXPECT_EQ(files(), 0U);
}

TEST_F(PackFiles, WritersAndReadersAtOnce) {
  std::vector<std::thread> writers;
  for (int i = 0; i < 3; ++i) {
    writers.emplace_back([&] {
      for (int round = 0; round < 5; ++round) EXPECT_TRUE(write_pack_file(path, "key", packs, {}).ok());
    });
  }
  for (int round = 0; round < 20; ++round) {
    if (!fs::exists(path)) continue;
    EXPECT_TRUE(whole());
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_TRUE(whole());
  EXPECT_EQ(files(), 1U);
}

}  // namespace
}  // namespace moracle
