// Synthetic checkpoints are checkpoints: written whole, opened, run.
#include "cli/cli_fixture.h"

namespace moracle::test {
namespace {

// One layer with its embeddings is 1.6 GB.
constexpr std::uintmax_t kSpace = 6'000'000'000;

TEST_F(CliTest, SynthWritesACheckpointThatRuns) {
  if (std::filesystem::space(folder_).available < kSpace) GTEST_SKIP() << "needs 6 GB of free space";
  const auto model = (folder_ / "a" / "model").string();
  const Json written =
      json_of({"synth", "qwen3-30b-a3b", "--scheme", "int4-g32-actorder", "--layers", "1", "--out", model});
  std::printf("[ %.0f MB/s ]\n", written.at("bytes").get<double>() / 1e6 / written.at("seconds").get<double>());
  const Json inspected = json_of({"inspect", model});
  EXPECT_EQ(inspected.at("architecture"), "qwen3_moe");
  EXPECT_EQ(inspected.at("format"), "gptq");
  EXPECT_EQ(inspected.at("experts_per_layer"), 128);
  EXPECT_EQ(inspected.at("total_bytes"), written.at("bytes"));
  EXPECT_TRUE(inspected.at("warnings").empty()) << inspected.at("warnings").dump();
  const Json run = json_of({"run", model, "-p", "hello", "-n", "2", "--temperature", "0"});
  EXPECT_EQ(run.at("prompt_ids").size(), 5U);  // bytes: the synthetic tokenizer has no merges
  EXPECT_EQ(run.at("ids").size(), 2U);
}

}  // namespace
}  // namespace moracle::test
