// Bytes that are read anew, beside the mapping.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/mapped_file.h"
#include "unit/checkpoint/fixture.h"

namespace moracle {
namespace {

using test::braces;
using test::expect_error;
using test::safetensors_text;
using test::tensor_text;

constexpr std::size_t kBytes = std::size_t{1} << 20;

class DirectRead : public test::FolderTest {
 protected:
  void SetUp() override {
    put("config.json", "{}");
    put("model.safetensors", safetensors_text(braces(tensor_text("w", "U8", "[1048576]", "[0,1048576]")), kBytes));
    auto opened = Checkpoint::open(folder_);
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    checkpoint_ = *opened;
    bytes_ = checkpoint_->find("w")->bytes;
    auto memory = PageBuffer::allocate(kBytes + 2 * kDiskBlock);
    ASSERT_TRUE(memory.ok());
    memory_ = std::move(*memory);
  }
  Result<std::span<const std::byte>> read(std::span<const std::byte> bytes) {
    return checkpoint_->read(bytes, {memory_.data(), memory_.size()});
  }
  std::string path() const { return (folder_ / "model.safetensors").string(); }

  std::shared_ptr<const Checkpoint> checkpoint_;
  std::span<const std::byte> bytes_;
  PageBuffer memory_;
};

TEST_F(DirectRead, GivesTheBytesOfTheFileWhereverTheyBegin) {
  for (const std::size_t first : {std::size_t{0}, std::size_t{1}, std::size_t{4095}, std::size_t{70001}, kBytes - 1}) {
    for (const std::size_t size : {std::size_t{1}, std::size_t{17}, std::size_t{4096}, std::size_t{99999}, kBytes}) {
      const std::span<const std::byte> part = bytes_.subspan(first, std::min(size, kBytes - first));
      const auto copy = read(part);
      ASSERT_TRUE(copy.ok()) << copy.error().message();
      ASSERT_EQ(copy->size(), part.size());
      EXPECT_NE(copy->data(), part.data());
      EXPECT_EQ(std::memcmp(copy->data(), part.data(), part.size()), 0) << first << " " << size;
    }
  }
}

TEST_F(DirectRead, TellsOfOneFile) {
  EXPECT_TRUE(checkpoint_->in_one_file(bytes_));
  EXPECT_TRUE(checkpoint_->in_one_file(bytes_.subspan(5, 7)));
  EXPECT_FALSE(checkpoint_->in_one_file({bytes_.data(), 2 * kBytes}));
  EXPECT_FALSE(checkpoint_->in_one_file({memory_.data(), 1}));
}

TEST_F(DirectRead, ACutFileIsAnErrorAndNoSignal) {
  ASSERT_TRUE(read(bytes_.first(9)).ok());
  ASSERT_EQ(truncate(path().c_str(), 8192), 0);
  expect_error(read(bytes_.last(4096)), "file.truncated", {path()});
}

TEST_F(DirectRead, AFileThatIsWrittenToOrReplacedIsAnError) {
  ASSERT_TRUE(read(bytes_.first(9)).ok());
  std::fstream(path(), std::ios::in | std::ios::out | std::ios::binary).seekp(9000).write("moracle", 7);
  expect_error(read(bytes_.last(4096)), "file.changed", {path()});
  std::filesystem::remove(path());
  expect_error(read(bytes_.last(4096)), "file.changed", {path()});
}

}  // namespace
}  // namespace moracle
