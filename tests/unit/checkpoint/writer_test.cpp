#include "checkpoint/safetensors_writer.h"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors_file.h"
#include "unit/checkpoint/fixture.h"

namespace moracle {
namespace {

using test::bytes_of;
using test::expect_error;

class Writer : public test::FolderTest {
 protected:
  std::filesystem::path path() const { return folder_ / "out.safetensors"; }
};

TEST_F(Writer, WhatIsWrittenInChunksIsReadBack) {
  const std::vector<TensorSpec> specs = {
      {"wide", Dtype::f32, {2, 3}}, {"scalar", Dtype::i64, {}}, {"quote\" \\ \xC3\xA9\n", Dtype::f4, {4, 2}}};
  const std::vector<std::string> contents = {"abcdefghijklmnopqrstuvwx", "01234567", "wxyz"};
  auto writer = SafetensorsWriter::create(path(), specs);
  ASSERT_TRUE(writer.ok()) << writer.error().message();
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const auto bytes = bytes_of(contents[i]);
    ASSERT_TRUE(writer->write(specs[i].name, bytes.first(3)).ok());
    ASSERT_TRUE(writer->write(specs[i].name, {}).ok());
    ASSERT_TRUE(writer->write(specs[i].name, bytes.subspan(3)).ok());
  }
  EXPECT_FALSE(std::filesystem::exists(path())) << "before finish() there is nothing under the name";
  const auto finished = writer->finish();
  ASSERT_TRUE(finished.ok()) << finished.error().message();
  EXPECT_EQ(files_there(), 1U);

  const auto file = SafetensorsFile::open(path());
  ASSERT_TRUE(file.ok()) << file.error().message();
  ASSERT_EQ(file->tensors().size(), specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const TensorView* view = file->find(specs[i].name);
    ASSERT_NE(view, nullptr);
    EXPECT_EQ(view->dtype, specs[i].dtype);
    EXPECT_EQ(view->shape, specs[i].shape);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(view->bytes.data()), view->bytes.size()), contents[i]);
  }
  EXPECT_EQ(file->find("wide")->offset % 8, 0U);
}

TEST_F(Writer, RefusesSpecsThatNoReaderWouldTake) {
  const auto create = [&](std::vector<TensorSpec> specs) {
    return SafetensorsWriter::create(path(), std::move(specs));
  };
  expect_error(create({{"a", Dtype::u8, {1}}, {"a", Dtype::u8, {1}}}), "tensor.duplicate", {path().string(), "'a'"});
  expect_error(create({{"a", Dtype::u8, {0}}}), "shape.overflow", {"'a'", "[0]"});
  expect_error(create({{"a", Dtype::f4, {3}}}), "dtype.misaligned", {"'a'", "3 elements"});
  expect_error(create({{"\xFF", Dtype::u8, {1}}}), "header.syntax", {"\\xff", "UTF-8"});
  expect_error(create({{"__metadata__", Dtype::u8, {1}}}), "header.syntax", {"__metadata__"});
  const std::int64_t half = std::int64_t{1} << 59;
  std::vector<TensorSpec> huge;
  for (int i = 0; i < 9; ++i) huge.push_back({std::to_string(i), Dtype::u64, {half / 8}});
  EXPECT_FALSE(create(huge).ok());
  EXPECT_EQ(files_there(), 0U);
}

TEST_F(Writer, RefusesWrongOrderAndSize) {
  auto writer = SafetensorsWriter::create(path(), {{"a", Dtype::u8, {4}}, {"b", Dtype::u8, {4}}});
  ASSERT_TRUE(writer.ok()) << writer.error().message();
  expect_error(writer->write("b", bytes_of("1234")), "writer.order", {path().string(), "'b'", "bytes of 'a'"});
  expect_error(writer->write("a", bytes_of("12345")), "writer.size", {"'a'", "at most 4", "found 5"});
  ASSERT_TRUE(writer->write("a", bytes_of("123")).ok());
  expect_error(writer->finish(), "writer.size", {"'a'", "1 more bytes"});
  ASSERT_TRUE(writer->write("a", bytes_of("4")).ok());
  ASSERT_TRUE(writer->write("b", bytes_of("1234")).ok());
  expect_error(writer->write("b", bytes_of("5")), "writer.order", {"no more bytes"});
  EXPECT_TRUE(writer->finish().ok());
}

TEST_F(Writer, LeavesNothingBehindWhenItIsDropped) {
  {
    auto writer = SafetensorsWriter::create(path(), {{"a", Dtype::u8, {4}}});
    ASSERT_TRUE(writer.ok());
    EXPECT_EQ(files_there(), 1U);
    const SafetensorsWriter moved = std::move(*writer);
    EXPECT_EQ(files_there(), 1U);
  }
  EXPECT_EQ(files_there(), 0U);
}

TEST_F(Writer, ReplacesAFileAsAWhole) {
  put("out.safetensors", "old");
  for (const char* content : {"1234", "5678"}) {
    auto writer = SafetensorsWriter::create(path(), {{"a", Dtype::u8, {4}}});
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->write("a", bytes_of(content)).ok());
    ASSERT_TRUE(writer->finish().ok());
    const auto file = SafetensorsFile::open(path());
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(std::to_integer<char>(file->find("a")->bytes[0]), content[0]);
  }
}

// A limit on file sizes answers writes as a full disk does, without needing a disk of its own.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    previous_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &previous_);
    rlimit limited = previous_;
    limited.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limited);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &previous_);
    std::signal(SIGXFSZ, previous_handler_);
  }

 private:
  rlimit previous_{};
  void (*previous_handler_)(int) = nullptr;
};

TEST_F(Writer, TellsThatTheDiskIsFullAtOnce) {
  const FullDisk disk(4096);
  const auto writer = SafetensorsWriter::create(path(), {{"a", Dtype::u8, {10000}}});
  expect_error(writer, "file.write", {path().string(), "errno", "free space"});
  EXPECT_EQ(files_there(), 0U);
}

TEST_F(Writer, TellsThatTheDiskIsFullWhileItWrites) {
  const std::string content(10000, 'x');
  {
    auto writer = SafetensorsWriter::create(path(), {{"a", Dtype::u8, {10000}}});
    ASSERT_TRUE(writer.ok());
    const FullDisk disk(4096);
    expect_error(writer->write("a", bytes_of(content)), "file.write",
                 {path().string(), "write to it", "File too large (errno 27)", "free space"});
  }
  EXPECT_EQ(files_there(), 0U);
}

TEST_F(Writer, NamesAFolderThatCannotBeWritten) {
  expect_error(SafetensorsWriter::create(folder_ / "nowhere" / "x.safetensors", {}), "file.write",
               {"nowhere/x.safetensors", "No such file or directory (errno 2)"});
}

TEST_F(Writer, ShardsWithAnIndexOpenAsACheckpoint) {
  put("config.json", "{}");
  std::map<std::string, std::string> weight_map;
  for (const std::string name : {"a", "b"}) {
    const std::string file = "model-" + name + ".safetensors";
    auto writer = SafetensorsWriter::create(folder_ / file, {{name, Dtype::u8, {4}}});
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->write(name, bytes_of("1234")).ok());
    ASSERT_TRUE(writer->finish().ok());
    weight_map[name] = file;
  }
  const auto written = write_shard_index(folder_, weight_map, 8);
  ASSERT_TRUE(written.ok()) << written.error().message();
  const auto checkpoint = Checkpoint::open(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  EXPECT_EQ((*checkpoint)->tensors().size(), 2U);
  weight_map["\xFF"] = "model-a.safetensors";
  expect_error(write_shard_index(folder_, weight_map, 8), "header.syntax", {"\\xff"});
}

}  // namespace
}  // namespace moracle
