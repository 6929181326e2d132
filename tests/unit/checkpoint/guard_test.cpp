// Files that change under their reader.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "checkpoint/checkpoint.h"
#include "checkpoint/mapped_file.h"
#include "unit/checkpoint/fixture.h"

namespace moracle {
namespace {

using test::braces;
using test::expect_error;
using test::safetensors_text;
using test::tensor_text;

constexpr std::size_t kBytes = std::size_t{4} << 20;

class ChangingFile : public test::FolderTest {
 protected:
  void SetUp() override {
    put("config.json", "{}");
    text_ = safetensors_text(braces(tensor_text("w", "U8", "[4194304]", "[0,4194304]")), kBytes);
    put("model.safetensors", text_);
    auto opened = Checkpoint::open(folder_);
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    checkpoint_ = *opened;
    bytes_ = checkpoint_->find("w")->bytes;
  }
  std::string path() const { return (folder_ / "model.safetensors").string(); }
  static std::uint64_t sum(std::span<const std::byte> bytes) {
    std::uint64_t total = 0;
    for (const std::byte byte : bytes) total += std::to_integer<std::uint64_t>(byte);
    return total;
  }

  std::string text_;
  std::shared_ptr<const Checkpoint> checkpoint_;
  std::span<const std::byte> bytes_;
};

TEST_F(ChangingFile, TruncationUnderAReaderIsAnErrorAndNotASignal) {
  EXPECT_GT(sum(bytes_.first(100)), 0U);
  ASSERT_EQ(truncate(path().c_str(), 8192), 0);
  // Behind the new end there is nothing: the system would end the process here.
  EXPECT_EQ(sum(bytes_.last(kBytes / 2)), 0U);
  // The whole file again: size and mtime may match, but what was read is lost.
  expect_error(checkpoint_->verify_unchanged(), "file.truncated",
               {path(), std::to_string(text_.size()) + " bytes", "8192 bytes"});
  ASSERT_EQ(truncate(path().c_str(), static_cast<off_t>(text_.size())), 0);
  expect_error(checkpoint_->verify_unchanged(), "file.truncated", {path()});
}

TEST_F(ChangingFile, TruncationUnderManyReadersIsAnErrorToo) {
  ASSERT_EQ(truncate(path().c_str(), 4096), 0);
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i) readers.emplace_back([&] { EXPECT_EQ(sum(bytes_.last(kBytes - 8192)), 0U); });
  for (auto& reader : readers) reader.join();
  expect_error(checkpoint_->verify_unchanged(), "file.truncated", {path()});
}

TEST_F(ChangingFile, ANewGuardForgetsTheOldTear) {
  ASSERT_EQ(truncate(path().c_str(), 4096), 0);
  EXPECT_EQ(sum(bytes_.last(100)), 0U);
  checkpoint_.reset();
  put("model.safetensors", text_);
  const auto again = Checkpoint::open(folder_);
  ASSERT_TRUE(again.ok());
  EXPECT_GT(sum((*again)->find("w")->bytes.last(100)), 0U);
  EXPECT_TRUE((*again)->verify_unchanged().ok());
}

TEST_F(ChangingFile, NoticesWhatIsNoTruncation) {
  struct stat before{};
  ASSERT_EQ(stat(path().c_str(), &before), 0);
  const auto set_time = [&](time_t seconds) {
    const std::array<timespec, 2> times = {before.st_atim, timespec{seconds, before.st_mtim.tv_nsec}};
    ASSERT_EQ(utimensat(AT_FDCWD, path().c_str(), times.data(), 0), 0);
  };
  set_time(before.st_mtim.tv_sec + 1);
  expect_error(checkpoint_->verify_unchanged(), "file.changed", {path(), "a later write"});
  set_time(before.st_mtim.tv_sec);
  EXPECT_TRUE(checkpoint_->verify_unchanged().ok());

  ASSERT_EQ(truncate(path().c_str(), static_cast<off_t>(text_.size() + 1)), 0);
  expect_error(checkpoint_->verify_unchanged(), "file.changed", {std::to_string(text_.size() + 1) + " bytes"});
  ASSERT_EQ(truncate(path().c_str(), static_cast<off_t>(text_.size() - 1)), 0);
  expect_error(checkpoint_->verify_unchanged(), "file.truncated", {std::to_string(text_.size() - 1) + " bytes"});

  put("other", text_);
  std::filesystem::rename(folder_ / "other", path());
  expect_error(checkpoint_->verify_unchanged(), "file.changed", {path(), "another file"});
  std::filesystem::remove(path());
  expect_error(checkpoint_->verify_unchanged(), "file.changed", {path(), "No such file"});
}

// Pages of [begin, begin + size) in memory, by mincore on private file pages' own account: /proc/self/smaps.
std::size_t resident_kib(const std::byte* address) {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  while (std::getline(maps, line)) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%zx-%zx ", &begin, &end) == 2) {
      const auto at = reinterpret_cast<std::uintptr_t>(address);
      inside = begin <= at && at < end;
    }
    std::size_t kib = 0;
    if (inside && std::sscanf(line.c_str(), "Rss: %zu kB", &kib) == 1) return kib;
  }
  return 0;
}

TEST_F(ChangingFile, ReleaseDropsResidentPagesAndKeepsTheBytes) {
  const std::uint64_t before = sum(bytes_);
  EXPECT_GE(resident_kib(bytes_.data()), kBytes / 1024);
  checkpoint_->release(bytes_);
  EXPECT_LE(resident_kib(bytes_.data()), 16U);
  EXPECT_EQ(sum(bytes_), before);
  const std::string foreign(1 << 16, 'x');
  checkpoint_->release(test::bytes_of(foreign));  // not of the mapping: left alone
  EXPECT_EQ(foreign[40000], 'x');
}

TEST_F(ChangingFile, SmallPartsAreReleasedTogether) {
  constexpr std::size_t kMany = 6 * kBytes;
  put("model.safetensors", safetensors_text(braces(tensor_text("w", "U8", "[25165824]", "[0,25165824]")), kMany));
  auto opened = Checkpoint::open(folder_);
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  const std::span<const std::byte> bytes = (*opened)->find("w")->bytes;
  const std::uint64_t before = sum(bytes);
  constexpr std::size_t kPart = std::size_t{64} << 10;
  for (std::size_t at = 0; at < bytes.size(); at += kPart) (*opened)->release(bytes.subspan(at, kPart));
  EXPECT_LE(resident_kib(bytes.data()), (std::size_t{8} << 10) + 16);
  EXPECT_EQ(sum(bytes), before);
}

TEST_F(ChangingFile, CopiesKeepNoPageResident) {
  checkpoint_->release(bytes_);
  std::vector<std::byte> copied(bytes_.size());
  checkpoint_->copy(bytes_, copied.data());
  EXPECT_LE(resident_kib(bytes_.data()), 16U);
  EXPECT_TRUE(std::equal(copied.begin(), copied.end(), bytes_.begin()));
}

TEST_F(ChangingFile, ACopyOfWhatWasCutOffIsNoticed) {
  ASSERT_EQ(truncate(path().c_str(), 8192), 0);
  std::vector<std::byte> copied(bytes_.size(), std::byte{1});
  checkpoint_->copy(bytes_, copied.data());
  expect_error(checkpoint_->verify_unchanged(), "file.truncated", {path()});
}

volatile sig_atomic_t chained = 0;
void* chained_page = nullptr;

void earlier_handler(int, siginfo_t* info, void*) {
  chained = chained + 1;
  const auto page = reinterpret_cast<std::uintptr_t>(info->si_addr) & ~std::uintptr_t{4095};
  chained_page = mmap(reinterpret_cast<void*>(page), 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

// The guard is installed once per process, so a process of its own is needed to come before it.
TEST(MappingGuardDeathTest, PassesForeignFaultsToTheEarlierHandler) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        struct sigaction action{};
        action.sa_sigaction = earlier_handler;
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGBUS, &action, nullptr);
        const std::byte own{};
        const MappingGuard guard(&own, 1);
        std::FILE* file = std::tmpfile();
        void* mapped = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, fileno(file), 0);  // of an empty file
        const int value = *static_cast<volatile unsigned char*>(mapped);
        std::_Exit(value == 0 && chained == 1 && !guard.torn() ? 42 : 1);
      },
      testing::ExitedWithCode(42), "");
}

TEST(MappingGuardDeathTest, AForeignFaultStillEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        signal(SIGBUS, SIG_DFL);
        const std::byte own{};
        const MappingGuard guard(&own, 1);
        std::FILE* file = std::tmpfile();
        void* mapped = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, fileno(file), 0);
        const int value = *static_cast<volatile unsigned char*>(mapped);
        std::_Exit(value);
      },
      testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace moracle
