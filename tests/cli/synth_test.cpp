// Synthetic checkpoints are checkpoints: written whole, opened, run.
#include "cli/cli_fixture.h"

namespace moracle::test {
namespace {

// One layer with its embeddings is 1.6 GB, of gpt-oss 2.8 GB.
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

TEST_F(CliTest, SynthWritesNvfp4ThatVerifies) {
  if (std::filesystem::space(folder_).available < kSpace) GTEST_SKIP() << "needs 6 GB of free space";
  const auto model = (folder_ / "model").string();
  const Json written = json_of({"synth", "qwen3-30b-a3b", "--scheme", "nvfp4", "--layers", "1", "--out", model});
  const Json inspected = json_of({"inspect", model});
  EXPECT_EQ(inspected.at("format"), "compressed-tensors");
  EXPECT_EQ(inspected.at("total_bytes"), written.at("bytes"));
  EXPECT_TRUE(inspected.at("warnings").empty()) << inspected.at("warnings").dump();
  const Json verified = json_of({"verify", model});
  EXPECT_EQ(verified.at("ok"), true) << verified.dump();
}

TEST_F(CliTest, SynthWritesStackedExpertsThatRun) {
  if (std::filesystem::space(folder_).available < kSpace) GTEST_SKIP() << "needs 6 GB of free space";
  const auto model = (folder_ / "model").string();
  const Json written = json_of({"synth", "gpt-oss-20b", "--scheme", "mxfp4", "--layers", "1", "--out", model});
  const Json inspected = json_of({"inspect", model});
  EXPECT_EQ(inspected.at("architecture"), "gpt_oss");
  EXPECT_EQ(inspected.at("format"), "mxfp4");
  EXPECT_EQ(inspected.at("experts_per_layer"), 32);
  EXPECT_EQ(inspected.at("total_bytes"), written.at("bytes"));
  EXPECT_TRUE(inspected.at("warnings").empty()) << inspected.at("warnings").dump();
  const Json bench = json_of({"bench", "model", model, "--prompt", "8", "--generate", "2"});
  EXPECT_EQ(bench.at("prefill_tokens"), 8);
  EXPECT_GT(bench.at("decode_tok_s").get<double>(), 0.0);
}

}  // namespace
}  // namespace moracle::test
