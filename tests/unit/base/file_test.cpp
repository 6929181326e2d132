#include "base/files/file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/files/file_error.h"
#include "support/temporary_folder.h"

namespace moracle {
namespace {

namespace fs = std::filesystem;

Error refusal(const fs::path& path) {
  const auto text = read_text(path);
  EXPECT_FALSE(text.ok()) << path;
  return text.ok() ? Error{} : text.error();
}

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

TEST(ReadText, TellsWhatIsWrongWithAPath) {
  const test::TemporaryFolder folder;
  folder.write("text", "12345");
  const fs::path path = folder.path() / "text";
  EXPECT_EQ(*read_text(path), "12345");
  EXPECT_EQ(*read_text(path, 5), "12345");
  EXPECT_EQ(read_text(path, 4).error().code, "file.size");

  const Error absent = refusal(folder.path() / "nothing");
  EXPECT_EQ(absent.code, "file.open");
  EXPECT_EQ(absent.file, (folder.path() / "nothing").string());
  EXPECT_TRUE(has(absent.found, "No such file")) << absent.message();

  const Error below_a_file = refusal(path / "more");
  EXPECT_TRUE(has(below_a_file.found, "Not a directory")) << below_a_file.message();

  const Error a_folder = refusal(folder.path());
  EXPECT_EQ(a_folder.code, "file.open");
  EXPECT_TRUE(has(a_folder.found, "a folder")) << a_folder.message();

  fs::create_symlink("circle", folder.path() / "circle");
  const Error circle = refusal(folder.path() / "circle");
  EXPECT_TRUE(has(circle.found, "symbolic links")) << circle.message();
  EXPECT_TRUE(has(circle.advice, "circle")) << circle.message();

  fs::create_symlink("../blobs/gone", folder.path() / "dangling");
  const Error dangling = refusal(folder.path() / "dangling");
  EXPECT_TRUE(has(dangling.found, "../blobs/gone")) << dangling.message();
  EXPECT_TRUE(has(dangling.advice, "download")) << dangling.message();

  const Error long_name = refusal(folder.path() / std::string(300, 'x'));
  EXPECT_TRUE(has(long_name.found, "too long")) << long_name.message();
  EXPECT_TRUE(has(long_name.advice, "shorten")) << long_name.message();

  const Error device = refusal("/dev/null");
  EXPECT_EQ(device.code, "file.open");
  EXPECT_TRUE(has(device.found, "device")) << device.message();
}

TEST(ReadText, SaysThatItMayNotRead) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const test::TemporaryFolder folder;
  folder.write("secret", "12345");
  ASSERT_EQ(chmod((folder.path() / "secret").c_str(), 0), 0);
  const Error error = refusal(folder.path() / "secret");
  EXPECT_TRUE(has(error.found, "Permission denied")) << error.message();
  EXPECT_TRUE(has(error.advice, "chmod")) << error.message();
}

// The first page of a process's memory is never there: a regular file whose reads fail with EIO.
TEST(InputFile, AReadThatFailsIsNoMissingFile) {
  const auto file = InputFile::open("/proc/self/mem");
  if (!file.ok()) GTEST_SKIP() << file.error().message();
  const auto text = file->read_start(16);
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code, "file.read");
  EXPECT_EQ(text.error().where, "byte 0");
  EXPECT_TRUE(has(text.error().found, "Input/output error")) << text.error().message();
  EXPECT_TRUE(has(text.error().advice, "dmesg")) << text.error().message();
}

TEST(InputFile, AFileThatShrankIsNamedAsThat) {
  const test::TemporaryFolder folder;
  folder.write("text", "12345");
  const auto file = InputFile::open(folder.path() / "text");
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(truncate(file->path().c_str(), 2), 0);
  const auto text = file->read_start(file->size());
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code, "file.truncated");
  EXPECT_EQ(text.error().wanted, "5 bytes");
}

TEST(FileError, AdviceFitsTheReason) {
  for (const auto& [reason, words] : {std::pair{EIO, "dmesg"},
                                      {EACCES, "chmod"},
                                      {EMFILE, "ulimit -n"},
                                      {ESTALE, "mounted"},
                                      {ENOSPC, "free space"},
                                      {EROFS, "read-only"}}) {
    const Error error = file_error("file.read", "/models/x", reason);
    EXPECT_EQ(error.code, "file.read");
    EXPECT_EQ(error.file, "/models/x");
    EXPECT_EQ(error.found, std::strerror(reason));
    EXPECT_TRUE(has(error.advice, words)) << error.message();
  }
}

TEST(FileExists, TellsAbsentFromUnreadable) {
  const test::TemporaryFolder folder;
  folder.write("text", "12345");
  EXPECT_TRUE(*file_exists(folder.path() / "text"));
  EXPECT_TRUE(*file_exists(folder.path()));
  EXPECT_FALSE(*file_exists(folder.path() / "nothing"));
  EXPECT_FALSE(*file_exists(folder.path() / "text" / "below"));
  fs::create_symlink("circle", folder.path() / "circle");
  fs::create_symlink("gone", folder.path() / "dangling");
  for (const char* name : {"circle", "dangling"}) {
    const auto exists = file_exists(folder.path() / name);
    ASSERT_FALSE(exists.ok()) << name;
    EXPECT_EQ(exists.error().code, "file.open");
  }
}

}  // namespace
}  // namespace moracle
