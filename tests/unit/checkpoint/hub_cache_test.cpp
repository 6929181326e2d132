// Folders of the hub cache stand for one of their snapshots.
#include "checkpoint/hub_cache.h"

#include "checkpoint/checkpoint.h"
#include "unit/checkpoint/fixture.h"

namespace moracle {
namespace {

using test::braces;
using test::expect_error;
using test::safetensors_text;
using test::tensor_text;

class HubCache : public test::FolderTest {
 protected:
  // A snapshot with a model in it.
  void snapshot(const std::string& revision) const {
    put("models--org--name/snapshots/" + revision + "/config.json", "{\"model_type\":\"qwen3_moe\"}");
    put("models--org--name/snapshots/" + revision + "/model.safetensors",
        safetensors_text(braces(tensor_text("a", "U8", "[4]", "[0,4]")), 4));
  }
  std::filesystem::path cached() const { return folder_ / "models--org--name"; }
};

TEST_F(HubCache, NamesOfRepositories) {
  EXPECT_EQ(hub_folder_name("Qwen/Qwen3-30B-A3B"), "models--Qwen--Qwen3-30B-A3B");
  EXPECT_EQ(hub_folder_name("gpt2"), "models--gpt2");
  EXPECT_EQ(hub_repository("/cache/hub/models--Qwen--Qwen3-30B-A3B/snapshots/1f"), "Qwen/Qwen3-30B-A3B");
  EXPECT_EQ(hub_repository("models--gpt2"), "gpt2");
  EXPECT_EQ(hub_repository("/models/mixtral"), "");
}

TEST_F(HubCache, FollowsTheMainRevision) {
  snapshot("1f");
  snapshot("2e");
  put("models--org--name/refs/main", "2e\n");
  for (const auto& path : {cached(), cached() / "", cached() / "snapshots"}) {
    const auto found = resolve_model_folder(path);
    ASSERT_TRUE(found.ok()) << found.error().message();
    EXPECT_EQ(found->filename(), "2e");
  }
  const auto checkpoint = Checkpoint::open(cached());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  EXPECT_EQ((*checkpoint)->folder().filename(), "2e");
}

TEST_F(HubCache, TakesTheOnlySnapshot) {
  snapshot("1f");
  EXPECT_EQ(resolve_model_folder(cached())->filename(), "1f");
  put("models--org--name/refs/main", "gone");
  EXPECT_EQ(resolve_model_folder(cached())->filename(), "1f");
  put("models--org--name/refs/main", "../../../etc");
  EXPECT_EQ(resolve_model_folder(cached())->filename(), "1f");
}

TEST_F(HubCache, ListsWhatItCannotChooseFrom) {
  snapshot("1f");
  snapshot("2e");
  expect_error(resolve_model_folder(cached()), "hub.snapshot", {"models--org--name", "'1f', '2e'", "found nothing"});
  put("models--org--name/refs/main", "3d");
  expect_error(Checkpoint::open(cached()), "hub.snapshot", {"refs/main", "'3d' beside '1f', '2e'"});
}

TEST_F(HubCache, NamesTheDownloadOfWhatIsNotThere) {
  put("models--org--name/snapshots/1f/README.md", "");
  expect_error(resolve_model_folder(cached()), "hub.snapshot", {"none with a config.json", "hf download org/name"});
  snapshot("1f");
  put("models--org--name/snapshots/1f/model.safetensors.index.json",
      R"({"weight_map":{"a":"model-00001-of-00002.safetensors"}})");
  std::filesystem::remove(cached() / "snapshots/1f/model.safetensors");
  expect_error(Checkpoint::open(cached()), "shard.missing", {"no such file", "hf download org/name"});
}

TEST_F(HubCache, LeavesOtherPathsAlone) {
  put("models--org--name/config.json", "{}");
  put("plain/config.json", "{}");
  for (const auto& path : {cached(), folder_ / "plain", folder_ / "nowhere", std::filesystem::path("models--x--y")}) {
    EXPECT_EQ(*resolve_model_folder(path), path);
  }
}

}  // namespace
}  // namespace moracle
