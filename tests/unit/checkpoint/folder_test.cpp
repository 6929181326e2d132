#include <sys/stat.h>

#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors_file.h"
#include "support/test_data.h"
#include "unit/checkpoint/fixture.h"

namespace moracle {
namespace {

using test::braces;
using test::expect_error;
using test::safetensors_text;
using test::tensor_text;

std::string file_with(const std::string& name) {
  return safetensors_text(braces(tensor_text(name, "U8", "[4]", "[0,4]")), 4);
}

class CheckpointFolder : public test::FolderTest {
 protected:
  void SetUp() override { put("config.json", "{\"model_type\":\"qwen3_moe\"}"); }
  Result<std::shared_ptr<const Checkpoint>> open() const { return Checkpoint::open(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void put_index(const std::string& weight_map) const {
    put("model.safetensors.index.json",
        fmt::format("{{\"metadata\":{{\"total_size\":8}},\"weight_map\":{}}}", weight_map));
  }
};

TEST_F(CheckpointFolder, OpensASingleFile) {
  put("model.safetensors", file_with("a"));
  put("consolidated.safetensors", file_with("other"));
  const auto checkpoint = open();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  EXPECT_EQ((*checkpoint)->config().at("model_type"), "qwen3_moe");
  EXPECT_EQ((*checkpoint)->tensors().size(), 1U);
  EXPECT_EQ((*checkpoint)->total_bytes(), 4U);
  const TensorView* view = (*checkpoint)->find("a");
  ASSERT_NE(view, nullptr);
  EXPECT_EQ((*checkpoint)->find("b"), nullptr);
  EXPECT_EQ(view->elements(), 4);
  EXPECT_EQ(view->file, path("model.safetensors"));
  EXPECT_EQ(view->offset, std::filesystem::file_size(folder_ / "model.safetensors") - 4);
  ASSERT_EQ(view->bytes.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(std::to_integer<std::size_t>(view->bytes[i]), i);
  EXPECT_TRUE((*checkpoint)->verify_unchanged().ok());
}

TEST_F(CheckpointFolder, OpensShardsByTheirIndex) {
  put("model-00001-of-00002.safetensors", file_with("a"));
  put("model-00002-of-00002.safetensors", file_with("b"));
  put("consolidated.safetensors", file_with("a"));
  put_index(R"({"b":"model-00002-of-00002.safetensors","a":"model-00001-of-00002.safetensors"})");
  const auto checkpoint = open();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  EXPECT_EQ((*checkpoint)->total_bytes(), 8U);
  EXPECT_EQ((*checkpoint)->find("b")->file, path("model-00002-of-00002.safetensors"));
}

TEST_F(CheckpointFolder, OpensFilesWithoutAnIndexWhenNamesDoNotCollide) {
  put("one.safetensors", file_with("a"));
  put("two.safetensors", file_with("b"));
  const auto checkpoint = open();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  EXPECT_EQ((*checkpoint)->tensors().size(), 2U);
  put("three.safetensors", file_with("a"));
  expect_error(open(), "tensor.duplicate", {path("three.safetensors"), path("one.safetensors"), "'a'"});
}

TEST_F(CheckpointFolder, ReadsFilesOfSeveralStemsWithoutAnIndex) {
  put("model-bf16-00001.safetensors", file_with("a"));
  put("layer-0-experts.safetensors", file_with("b"));
  put("adapter_model.safetensors", file_with("c"));
  const auto checkpoint = open();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  EXPECT_NE((*checkpoint)->find("a"), nullptr);
  EXPECT_NE((*checkpoint)->find("b"), nullptr);
  EXPECT_EQ((*checkpoint)->find("c"), nullptr);
  EXPECT_EQ((*checkpoint)->unread_files(), std::vector<std::string>{"adapter_model.safetensors"});
  put("merged.safetensors", file_with("a"));  // a copy of what the others hold
  const auto beside = open();
  ASSERT_TRUE(beside.ok()) << beside.error().message();
  EXPECT_EQ((*beside)->find("a")->file, path("model-bf16-00001.safetensors"));
  EXPECT_EQ((*beside)->unread_files(), (std::vector<std::string>{"adapter_model.safetensors", "merged.safetensors"}));
}

TEST_F(CheckpointFolder, TellsWhichUnreadFileHasATensor) {
  put("model-00001-of-00001.safetensors", file_with("a"));
  put("experts.safetensors", file_with("model.layers.0.mlp.experts.3.up_proj.weight"));
  put_index(R"({"a":"model-00001-of-00001.safetensors"})");
  const auto checkpoint = open();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  EXPECT_EQ((*checkpoint)->unread_files(), std::vector<std::string>{"experts.safetensors"});
  Error error{.code = "experts.count", .where = "model.layers.0.mlp.experts.{e}.up_proj", .found = "none"};
  name_unread_file(**checkpoint, error);
  EXPECT_THAT(error.message(), testing::HasSubstr("'experts.safetensors' has it, and was not read"));
  EXPECT_THAT(error.message(), testing::HasSubstr("the index is of another build"));
  Error other{.code = "tensor.missing", .where = "b", .found = "none"};
  name_unread_file(**checkpoint, other);
  EXPECT_EQ(other.found, "none");
}

TEST_F(CheckpointFolder, RefusesAnIndexOfAnotherBuild) {
  put("model-00001-of-00003.safetensors", file_with("a"));
  put_index(R"({"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"})");
  expect_error(open(), "shard.missing",
               {"model-00001-of-00002.safetensors", "the folder has 'model-00001-of-00003.safetensors'",
                "the index is of another build"});
}

TEST_F(CheckpointFolder, FollowsLinksToFiles) {
  std::filesystem::create_directory(folder_ / "blobs");
  put("blobs/1f2e", file_with("a"));
  std::filesystem::create_symlink("blobs/1f2e", folder_ / "model.safetensors");
  const auto checkpoint = open();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
}

TEST_F(CheckpointFolder, SaysWhatAModelFolderIs) {
  expect_error(Checkpoint::open(folder_ / "nowhere"), "file.open", {path("nowhere"), "no such folder", "config.json"});
  expect_error(Checkpoint::open(folder_ / "config.json"), "file.open", {path("config.json"), "found a file"});
  std::filesystem::remove(folder_ / "config.json");
  expect_error(open(), "file.open", {folder_.string(), "a folder without config.json", "tokenizer.json"});
  put("config.json", "[1]");
  expect_error(open(), "config.type", {path("config.json"), "wanted an object", "found array"});
  put("config.json", "{");
  expect_error(open(), "json.syntax", {path("config.json"), "byte"});
}

TEST_F(CheckpointFolder, SaysWhereTheModelIs) {
  std::filesystem::remove(folder_ / "config.json");
  put("sub/config.json", "{}");
  put("empty/README.md", "");
  expect_error(open(), "file.open", {"a folder without config.json, which is in 'sub'", "name the folder that has it"});
  expect_error(Checkpoint::open(folder_ / "sub" / "config.json"), "file.open",
               {"found a file", "name the folder that it lies in: '" + path("sub") + "'"});
  std::filesystem::remove_all(folder_ / "sub");
  put("models--a--b/snapshots/1f/config.json", "{}");
  put("models--c/blobs/1", "");
  expect_error(open(), "file.open", {"models of the hub's cache: 'models--a--b', 'models--c'", "as org/name"});
  expect_error(Checkpoint::open(folder_ / "models--c"), "file.open", {"without config.json", "hf download c"});
}

TEST_F(CheckpointFolder, SaysWhereTheWeightsAre) {
  put("model-Q4_K_M.gguf", "GGUF");
  expect_error(open(), "checkpoint.missing", {"no *.safetensors file, but 'model-Q4_K_M.gguf'", "GGUF is not read"});
  std::filesystem::remove(folder_ / "model-Q4_K_M.gguf");
  put("original/model.safetensors", file_with("a"));
  expect_error(open(), "checkpoint.missing", {"there are some in 'original'", "name the folder that has them"});
  put(".cache/huggingface/download/a.1f.incomplete", "");
  expect_error(open(), "checkpoint.missing", {"a download that is not finished, 'a.1f.incomplete'"});
  put("model-00001-of-00002.safetensors", file_with("a"));
  put_index(R"({"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"})");
  expect_error(open(), "shard.missing",
               {"model-00002-of-00002.safetensors", "a download is not finished: 'a.1f.incomplete'"});
}

TEST_F(CheckpointFolder, SaysWhichOfTwoSetsIsWhole) {
  for (const char* name : {"model-00001-of-00002", "model-00002-of-00002", "model-00003-of-00003"})
    put(std::string(name) + ".safetensors", file_with(name));
  expect_error(
      open(), "shard.missing",
      {"model-*-of-00003.safetensors", "model-*-of-00002.safetensors is complete: move the files of this set"});
}

TEST_F(CheckpointFolder, SaysWhatIsThereInPlaceOfJson) {
  for (const char* file : {"config.json", "model.safetensors.index.json"})
    for (const auto& [text, found, advice] :
         {std::tuple{"version https://git-lfs.github.com/spec/v1\nsize 9\n", "a git-LFS pointer", "git lfs pull"},
          {"\n<!DOCTYPE html>", "a page of HTML", "look at the page"},
          {" \n", "an empty file", "download it again"},
          {"{\"a\":", "the end", "the file is damaged"},
          {"{<", "byte 0x3c '<'", "the file is damaged"}}) {
      put("config.json", "{}");
      put(file, text);
      expect_error(open(), "json.syntax", {path(file), found, advice});
    }
}

TEST_F(CheckpointFolder, RefusesPicklesAndEmptyFolders) {
  expect_error(open(), "checkpoint.missing", {folder_.string(), "model.safetensors", "no *.safetensors file"});
  put("pytorch_model-00001-of-00002.bin", "\x80\x02}q");
  expect_error(open(), "pickle.refused", {path("pytorch_model-00001-of-00002.bin"), "*.safetensors", "only pickle"});
  put("model.safetensors", safetensors_text("{}", 0));
  expect_error(open(), "checkpoint.missing", {folder_.string(), "without a single tensor"});
}

TEST_F(CheckpointFolder, RefusesAnIndexWithoutItsShard) {
  put("model-00001-of-00002.safetensors", file_with("a"));
  put_index(R"({"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"})");
  expect_error(open(), "shard.missing",
               {path("model-00002-of-00002.safetensors"), path("model.safetensors.index.json"), "no such file"});
  put("model-00002-of-00002.safetensors", file_with("c"));
  expect_error(open(), "shard.missing",
               {path("model.safetensors.index.json"), "'b'", "model-00002-of-00002", "it is in no shard"});
  put("model-00002-of-00002.safetensors",
      safetensors_text(braces(tensor_text("b", "U8", "[]", "[0,1]") + "," + tensor_text("c", "U8", "[]", "[1,2]")), 2));
  expect_error(open(), "shard.missing", {path("model.safetensors.index.json"), "'c'", "listed", "not this one"});
}

TEST_F(CheckpointFolder, RefusesATensorInTheWrongShard) {
  put("model-00001-of-00002.safetensors", file_with("b"));
  put("model-00002-of-00002.safetensors", file_with("a"));
  put_index(R"({"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"})");
  expect_error(open(), "shard.missing",
               {"'a'", "the tensor in 'model-00001-of-00002.safetensors'", path("model-00002-of-00002.safetensors")});
  put("model-00001-of-00002.safetensors", file_with("a"));
  expect_error(open(), "tensor.duplicate",
               {"'a'", path("model-00001-of-00002.safetensors"), path("model-00002-of-00002.safetensors")});
}

TEST_F(CheckpointFolder, KeepsShardPathsInside) {
  for (const std::string hostile : {"../x.safetensors", "/etc/x.safetensors", "a/../../x.safetensors", "..",
                                    "pytorch_model.bin", "", "a\\u0000.safetensors"}) {
    SCOPED_TRACE(hostile);
    put_index(fmt::format("{{\"w\":\"{}\"}}", hostile));
    expect_error(open(), "shard.path", {path("model.safetensors.index.json"), "'w'", "inside the model folder"});
  }
}

TEST_F(CheckpointFolder, RefusesBrokenIndices) {
  put_index(R"({"a":"m.safetensors","a":"m.safetensors"})");
  expect_error(open(), "tensor.duplicate", {path("model.safetensors.index.json"), "'a'", "byte"});
  put_index("{}");
  expect_error(open(), "shard.index", {path("model.safetensors.index.json"), "weight_map", "an empty one"});
  put("model.safetensors.index.json", "{\"metadata\":{}}");
  expect_error(open(), "shard.index", {"found nothing"});
  put("model.safetensors.index.json", braces("\"metadata\":" + std::string(1000, '[')));
  expect_error(open(), "json.depth", {path("model.safetensors.index.json"), "byte 28"});
  put_index("{\"a\":1}");
  expect_error(open(), "json.syntax", {"byte", "wanted a string"});
  put_index(R"({"a":"m.safetensors"})");
  put("model.safetensors", file_with("a"));
  put("m.safetensors", file_with("a"));
  expect_error(open(), "shard.ambiguous", {path("model.safetensors"), "does not name it", "move one of the two"});
  std::filesystem::remove(folder_ / "m.safetensors");
  expect_error(open(), "shard.ambiguous", {"whose files are not there", "merged: remove model.safetensors.index.json"});
}

TEST_F(CheckpointFolder, CountsNumberedShardsWithoutAnIndex) {
  put("model-00001-of-00003.safetensors", file_with("a"));
  put("model-00003-of-00003.safetensors", file_with("b"));
  expect_error(open(), "shard.missing", {"model-*-of-00003", "wanted 3 files", "found 2"});
  put("model-00002-of-00003.safetensors", file_with("c"));
  EXPECT_TRUE(open().ok());
}

TEST_F(CheckpointFolder, FindsACutShardBeforeAnyUse) {
  const std::string whole = file_with("a");
  put("model.safetensors", std::string_view(whole).substr(0, whole.size() - 1));
  expect_error(
      open(), "file.truncated",
      {path("model.safetensors"), "'a'", std::to_string(whole.size()), std::to_string(whole.size() - 1), "cut"});
  put("model.safetensors", std::string_view(whole).substr(0, 20));
  expect_error(open(), "header.length", {path("model.safetensors"), "at most 12 bytes", "cut"});
  put("model.safetensors", "");
  expect_error(open(), "header.too_small", {path("model.safetensors"), "found 0 bytes"});
  put("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 77\n");
  expect_error(open(), "lfs.pointer",
               {path("model.safetensors"), "git-LFS pointer, 77 bytes expected", "git lfs pull"});
}

TEST_F(CheckpointFolder, RefusesWhatIsNoRegularFile) {
  ASSERT_EQ(mkfifo(path("model.safetensors").c_str(), 0600), 0);
  expect_error(open(), "file.open", {path("model.safetensors"), "pipe"});  // and does not wait for a writer
  std::filesystem::remove(folder_ / "model.safetensors");
  std::filesystem::create_directory(folder_ / "model.safetensors");
  expect_error(open(), "file.open", {path("model.safetensors"), "folder"});
}

void open_all_below(const std::filesystem::path& root) {
  int opened = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().string());
    const auto checkpoint = Checkpoint::open(entry.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
    std::uint64_t sum = 0;
    for (const auto& [name, view] : (*checkpoint)->tensors()) {
      EXPECT_EQ(name, view.name);
      EXPECT_EQ(static_cast<std::uint64_t>(view.elements() * bits_of(view.dtype)), view.bytes.size() * 8);
      sum += view.bytes.size();
    }
    EXPECT_EQ(sum, (*checkpoint)->total_bytes());
    EXPECT_TRUE((*checkpoint)->verify_unchanged().ok());
    ++opened;
  }
  EXPECT_GT(opened, 0);
}

TEST(RealCheckpoints, OfTheSourceTreeOpen) {
  open_all_below(test::data_dir() / "checkpoints");
}

TEST(RealCheckpoints, OfTheReferenceCollectionOpen) {
  const auto shared = test::shared_dir();
  if (!shared) GTEST_SKIP() << "the reference collection is not there";
  open_all_below(*shared / "checkpoints");
}

TEST(SafetensorsFileTest, OpensSingleFiles) {
  int opened = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::reference_dir() / "golden")) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto file = SafetensorsFile::open(entry.path());
    ASSERT_TRUE(file.ok()) << file.error().message();
    EXPECT_FALSE(file->tensors().empty());
    ++opened;
  }
  EXPECT_GT(opened, 0);
}

}  // namespace
}  // namespace moracle
