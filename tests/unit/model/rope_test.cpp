#include "model/spec/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace moracle {
namespace {

TEST(Rope, PlainFrequencies) {
  const auto inv = plain_frequencies(10000.0, 8);
  ASSERT_EQ(inv.size(), 4U);
  EXPECT_DOUBLE_EQ(inv[0], 1.0);
  EXPECT_NEAR(inv[1], 0.1, 1e-15);
  EXPECT_NEAR(inv[2], 0.01, 1e-15);
  EXPECT_NEAR(inv[3], 0.001, 1e-15);
}

// The numbers of gpt-oss: theta 150000, 64 dimensions, factor 32 over 4096 positions, no truncation. The ramp runs from
// 64 ln(4096 / (2 pi 32)) / (2 ln 150000) = 8.0928 to 64 ln(4096 / (2 pi)) / (2 ln 150000) = 17.3980.
TEST(Rope, YarnRampWithoutTruncation) {
  const YarnSpec yarn{.factor = 32.0, .original_positions = 4096.0, .truncate = false};
  const auto plain = plain_frequencies(150000.0, 64);
  const auto inv = yarn_frequencies(yarn, 150000.0, 64);
  for (std::size_t i = 0; i <= 8; ++i) EXPECT_DOUBLE_EQ(inv[i], plain[i]);
  for (std::size_t i = 18; i < 32; ++i) EXPECT_DOUBLE_EQ(inv[i], plain[i] / 32.0);
  const double ramp = (12.0 - 8.0928) / (17.3980 - 8.0928);
  EXPECT_NEAR(inv[12] / plain[12], ramp / 32.0 + 1.0 - ramp, 1e-4);
}

// With truncation the same ramp runs from 8 to 18.
TEST(Rope, YarnRampWithTruncation) {
  const YarnSpec yarn{.factor = 32.0, .original_positions = 4096.0};
  const auto plain = plain_frequencies(150000.0, 64);
  const auto inv = yarn_frequencies(yarn, 150000.0, 64);
  EXPECT_DOUBLE_EQ(inv[8], plain[8]);
  EXPECT_NEAR(inv[13] / plain[13], 0.5 / 32.0 + 0.5, 1e-12);
  EXPECT_DOUBLE_EQ(inv[18], plain[18] / 32.0);
}

TEST(Rope, YarnRampOfNoWidthIsFinite) {
  const YarnSpec yarn{.factor = 4.0, .original_positions = 1.0, .beta_fast = 1.0, .beta_slow = 1.0};
  for (const double f : yarn_frequencies(yarn, 10000.0, 16)) EXPECT_TRUE(std::isfinite(f));
}

// Llama 3.1: wavelengths below 2048 stay, above 8192 are stretched by 8.
TEST(Rope, Llama3) {
  const Llama3Spec spec;
  const auto plain = plain_frequencies(500000.0, 128);
  const auto inv = llama3_frequencies(spec, 500000.0, 128);
  int between = 0;
  for (std::size_t i = 0; i < inv.size(); ++i) {
    const double wavelength = 2.0 * std::numbers::pi / plain[i];
    if (wavelength < 2048.0) {
      EXPECT_DOUBLE_EQ(inv[i], plain[i]);
    } else if (wavelength > 8192.0) {
      EXPECT_DOUBLE_EQ(inv[i], plain[i] / 8.0);
    } else {
      const double smooth = (8192.0 / wavelength - 1.0) / 3.0;
      EXPECT_NEAR(inv[i], (1.0 - smooth) * plain[i] / 8.0 + smooth * plain[i], 1e-12);
      ++between;
    }
  }
  EXPECT_GT(between, 0);
}

class FakeCheckpoint final : public Checkpoint {
 public:
  explicit FakeCheckpoint(Json config) : config_(std::move(config)) { config_["model_type"] = "any"; }
  [[nodiscard]] const std::filesystem::path& folder() const override { return folder_; }
  [[nodiscard]] const Json& config() const override { return config_; }
  [[nodiscard]] const std::map<std::string, TensorView, std::less<>>& tensors() const override { return tensors_; }
  [[nodiscard]] std::uint64_t total_bytes() const override { return 0; }
  [[nodiscard]] Result<> verify_unchanged() const override { return Ok{}; }
  void release(std::span<const std::byte>) const override {}

 private:
  Json config_;
  std::filesystem::path folder_;
  std::map<std::string, TensorView, std::less<>> tensors_;
};

RopeSpec parse(const Json& json, const std::string& layer_type = "full_attention",
               const std::optional<YarnSpec>& yarn = {}) {
  const FakeCheckpoint checkpoint(json);
  const auto config = ModelConfig::of(checkpoint);
  EXPECT_TRUE(config.ok());
  auto rope = parse_rope(*config, {.head_dim = 16, .max_positions = 4096, .layer_type = layer_type, .yarn = yarn});
  EXPECT_TRUE(rope.ok()) << (rope.ok() ? "" : rope.error().message());
  return rope.ok() ? *rope : RopeSpec{};
}

TEST(Rope, BothSpellingsAgree) {
  const RopeSpec old =
      parse({{"rope_theta", 5e5},
             {"rope_scaling", {{"type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 4096}}}});
  const RopeSpec modern = parse(
      {{"rope_parameters",
        {{"rope_type", "yarn"}, {"rope_theta", 5e5}, {"factor", 4}, {"original_max_position_embeddings", 4096}}}});
  EXPECT_EQ(old, modern);
  EXPECT_EQ(old.max_positions, 16384);
  EXPECT_FLOAT_EQ(old.scale, static_cast<float>(0.1 * std::log(4.0) + 1.0));
  // Where both are there rope_scaling holds, as in transformers 5; one that says nothing does not.
  const Json linear = {{"type", "linear"}, {"factor", 3}};
  const Json plain = {{"rope_theta", 1e5}, {"rope_type", "default"}};
  EXPECT_EQ(parse({{"rope_theta", 7.0}, {"rope_scaling", linear}, {"rope_parameters", plain}}),
            parse({{"rope_theta", 7.0}, {"rope_scaling", linear}}));
  EXPECT_EQ(parse({{"rope_scaling", Json::object()}, {"rope_parameters", plain}}), parse({{"rope_theta", 1e5}}));
}

TEST(Rope, ParametersPerLayerType) {
  const Json json{{"rope_parameters",
                   {{"full_attention", {{"rope_theta", 1e6}}},
                    {"sliding_attention", {{"rope_theta", 1e4}, {"partial_rotary_factor", 0.5}}}}}};
  EXPECT_EQ(parse(json, "full_attention"), parse({{"rope_theta", 1e6}}));
  const RopeSpec sliding = parse(json, "sliding_attention");
  EXPECT_EQ(sliding.rotary_dims, 8);
  EXPECT_EQ(sliding, parse({{"rope_theta", 1e4}, {"partial_rotary_factor", 0.5}}));
}

TEST(Rope, LinearDividesFrequencies) {
  const RopeSpec linear = parse({{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}});
  const RopeSpec plain = parse({{"rope_scaling", nullptr}});
  for (std::size_t i = 0; i < plain.inv_freq.size(); ++i) EXPECT_FLOAT_EQ(linear.inv_freq[i] * 2, plain.inv_freq[i]);
  EXPECT_EQ(linear.max_positions, 8192);
}

// Of a family whose config class scales unless told otherwise.
TEST(Rope, YarnByDefault) {
  const YarnSpec yarn{.factor = 32.0, .original_positions = 4096.0, .truncate = false};
  const Json given{
      {"rope_type", "yarn"}, {"factor", 32}, {"original_max_position_embeddings", 4096}, {"truncate", false}};
  const RopeSpec rope = parse(Json::object(), "full_attention", yarn);
  EXPECT_EQ(rope, parse({{"rope_scaling", given}}));
  EXPECT_EQ(rope.max_positions, 131072);
  const Json plain{{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e4}}}};
  EXPECT_EQ(parse(plain, "full_attention", yarn), parse(plain));
}

TEST(Rope, AttentionFactorOfDeepSeek) {
  const Json yarn{{"type", "yarn"},
                  {"factor", 40},
                  {"original_max_position_embeddings", 4096},
                  {"mscale", 1.0},
                  {"mscale_all_dim", 1.0}};
  EXPECT_FLOAT_EQ(parse({{"rope_scaling", yarn}}).scale, 1.0F);
  Json given = yarn;
  given["attention_factor"] = 1.5;
  EXPECT_FLOAT_EQ(parse({{"rope_scaling", given}}).scale, 1.5F);
}

}  // namespace
}  // namespace moracle
