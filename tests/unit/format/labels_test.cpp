// A format is known by what is stored; its label in quantization_config is a hint.
#include <gtest/gtest.h>

#include "format/decode/stored_fp8.h"
#include "format/format.h"
#include "support/memory_checkpoint.h"
#include "support/open_whole.h"

namespace moracle {
namespace {

using test::MemoryCheckpoint;
using Fake = std::shared_ptr<MemoryCheckpoint>;

const ModuleRef kModule{.path = "model.layers.0.self_attn.q_proj", .fused = {}, .out = 8, .in = 8};

Fake fake(Json section) {
  return std::make_shared<MemoryCheckpoint>(Json{{"quantization_config", std::move(section)}});
}

// Codes 1 everywhere, in words along the input as GPTQ has them, or along the output as AWQ.
void add_words(MemoryCheckpoint& c, bool along_in, std::uint32_t zeros) {
  c.add(kModule.path + ".qweight", Dtype::i32,
        along_in ? std::vector<std::int64_t>{1, 8} : std::vector<std::int64_t>{8, 1},
        std::vector<std::uint32_t>(8, 0x11111111U));
  c.add(kModule.path + ".qzeros", Dtype::i32, {1, 1}, std::vector<std::uint32_t>{zeros});
  c.add(kModule.path + ".scales", Dtype::f32, {1, 8}, std::vector<float>(8, 0.5F));
}

// The value of every weight, which all have.
Result<float> value_of(const Fake& c, const ModuleRef& module = kModule) {
  MORACLE_ASSIGN(const auto format, make_format(*c));
  TensorClaims claims(c);
  MORACLE_ASSIGN(const CanonicalLinear linear, test::open_whole(*format, module, claims));
  MatrixPanel panel;
  MORACLE_TRY(linear.weight->read(0, module.out, panel));
  const float zero = panel.zeros.empty() ? 8.0F : static_cast<float>(panel.zeros[0]);
  return (static_cast<float>(panel.codes[0]) - zero) * panel.scales[0];
}

TEST(Labels, AutoRoundUnderEveryName) {
  for (const char* method : {"auto-round", "auto_round", "autoround", "intel/auto-round", "AutoRound"})
    for (const char* key : {"packing_format", "backend"})
      for (const Json& packing : {Json("auto_round"), Json("auto_round:auto_gptq"), Json("auto_round:gptq"),
                                  Json("auto_gptq"), Json("auto_round:gptqmodel"), Json("auto_round:exllamav2"),
                                  Json("auto_round:auto_awq"), Json("auto_awq"), Json(nullptr)})
        for (const bool along_in : {true, false})
          for (const std::uint32_t zeros : {0x77777777U, 0x88888888U}) {
            SCOPED_TRACE(std::string(method) + " " + key + " " + packing.dump());
            auto c =
                fake({{"quant_method", method}, {key, packing}, {"bits", 4}, {"group_size", 8}, {"sym", along_in}});
            if (!along_in && zeros == 0x77777777U) continue;  // AWQ's zero points are what they say
            add_words(*c, along_in, zeros);
            const Result<float> value = value_of(c);
            ASSERT_TRUE(value.ok()) << value.error().message();
            EXPECT_EQ(*value, (1.0F - 8.0F) * 0.5F);
          }
}

TEST(Labels, ZeroPointsOfAutoRoundByItsLabel) {
  for (const auto& [packing, zero] : {std::pair{"auto_round", 2.0F},
                                      {"auto_round:gptqmodel", 2.0F},
                                      {"auto_round:auto_gptq", 3.0F},
                                      {"auto_round:gptq", 3.0F},
                                      {"auto_gptq", 3.0F}}) {
    SCOPED_TRACE(packing);
    auto c = fake(
        {{"quant_method", "auto-round"}, {"packing_format", packing}, {"bits", 4}, {"group_size", 8}, {"sym", false}});
    add_words(*c, true, 0x22222222U);
    const Result<float> value = value_of(c);
    ASSERT_TRUE(value.ok()) << value.error().message();
    EXPECT_EQ(*value, (1.0F - zero) * 0.5F);
  }
}

TEST(Labels, PackingThatNobodyKnowsIsRefused) {
  auto c = fake({{"quant_method", "auto-round"}, {"packing_format", "zipped"}, {"bits", 4}, {"group_size", 8}});
  add_words(*c, true, 0x77777777U);
  const Result<float> value = value_of(c);
  ASSERT_FALSE(value.ok());
  EXPECT_EQ(value.error().code, "quant.unsupported");
  EXPECT_EQ(value.error().found, "zipped");
}

TEST(Labels, WordsTellGptqFromAwq) {
  for (const bool along_in : {true, false}) {
    auto c = fake({{"quant_method", along_in ? "awq" : "gptq"},
                   {"bits", 4},
                   {"group_size", 8},
                   {"zero_point", false},
                   {"sym", true},
                   {"version", "gemm"}});
    add_words(*c, along_in, 0x88888888U);
    const Result<float> value = value_of(c);
    ASSERT_TRUE(value.ok()) << value.error().message();
    EXPECT_EQ(*value, (1.0F - 8.0F) * 0.5F);
    const auto format = make_format(*c);
    EXPECT_EQ((*format)->name(), along_in ? "gptq" : "awq");
    ASSERT_EQ((*format)->notes().size(), 1U);
    EXPECT_NE((*format)->notes()[0].find("they are read as stored"), std::string::npos);
  }
}

// Tools and engines call the same layouts by names of their own.
TEST(Labels, WordsUnderOtherLabels) {
  for (const char* label : {"gptqmodel", "auto_gptq", "gptq_marlin", "awq_marlin", "AutoAWQ", "auto-awq", "inc"})
    for (const bool along_in : {true, false}) {
      SCOPED_TRACE(label);
      auto c = fake({{"quant_method", label}, {"bits", 4}, {"group_size", 8}, {"sym", true}});
      add_words(*c, along_in, 0x88888888U);
      const Result<float> value = value_of(c);
      ASSERT_TRUE(value.ok()) << value.error().message();
      EXPECT_EQ(*value, (1.0F - 8.0F) * 0.5F);
    }
  auto round = fake({{"quant_method", "auto-round"}, {"data_type", "int_sym"}, {"bits", 4}, {"group_size", 8}});
  add_words(*round, true, 0x77777777U);
  EXPECT_TRUE(value_of(round).ok());
  auto c = fake({{"quant_method", "bitblas"}, {"bits", 4}, {"group_size", 8}});
  add_words(*c, true, 0x88888888U);
  EXPECT_EQ(value_of(c).error().code, "config.unsupported");
}

TEST(Labels, BlocksOfFp8UnderOtherLabels) {
  for (const char* label : {"fp8", "FP8", "fbgemm_fp8", "finegrained_fp8", "deepseek-fp8", "block_fp8", "w8a8_fp8"}) {
    SCOPED_TRACE(label);
    auto c = fake({{"quant_method", label}});
    c->add(kModule.path + ".weight", Dtype::f8_e4m3, {8, 8}, std::vector<std::uint8_t>(64, 0x38));
    c->add(kModule.path + ".weight_scale_inv", Dtype::f32, {1, 1}, std::vector<float>(1, 1.0F));
    const auto format = make_format(*c);
    ASSERT_TRUE(format.ok()) << format.error().message();
    EXPECT_EQ((*format)->name(), "fp8");
  }
}

// What AutoRound mixes is told apart by what each module holds.
TEST(Labels, FloatsOfAutoRoundByModule) {
  const Json section{{"quant_method", "auto-round"}, {"bits", 4}, {"data_type", "mx_fp"}, {"group_size", 32}};
  const ModuleRef module{.path = kModule.path, .fused = {}, .out = 8, .in = 64};
  const auto scheme_of = [&](const Fake& c) {
    TensorClaims claims(c);
    const auto format = make_format(*c);
    return to_string((*format)->scheme_of(module, claims)->scheme);
  };
  auto c = fake(section);
  c->add(module.path + ".weight_packed", Dtype::u8, {8, 32}, std::vector<std::uint8_t>(256));
  c->add(module.path + ".weight_scale", Dtype::u8, {8, 2}, std::vector<std::uint8_t>(16, 127));
  EXPECT_EQ(scheme_of(c), "W: mxfp4");
  c = fake(section);
  c->add(module.path + ".weight", Dtype::f8_e4m3, {8, 64}, std::vector<std::uint8_t>(512));
  c->add(module.path + ".weight_scale", Dtype::u8, {8, 2}, std::vector<std::uint8_t>(16, 127));
  EXPECT_EQ(scheme_of(c), "W: mxfp8");
  c = fake(section);
  c->add(module.path + ".weight", Dtype::f8_e4m3, {8, 64}, std::vector<std::uint8_t>(512));
  c->add(module.path + ".weight_scale", Dtype::f32, {8}, std::vector<float>(8, 1.0F));
  EXPECT_EQ(scheme_of(c), "W: fp8 channel");
  c = fake(section);
  c->add(module.path + ".weight_packed", Dtype::u8, {8, 32}, std::vector<std::uint8_t>(256));
  c->add(module.path + ".weight_scale", Dtype::f8_e4m3, {8, 4}, std::vector<std::uint8_t>(32, 0x38));
  c->add(module.path + ".weight_global_scale", Dtype::f32, {1}, std::vector<float>(1, 1.0F));
  EXPECT_EQ(scheme_of(c), "W: nvfp4");
}

TEST(Labels, RotationsOfAutoRoundAreRefused) {
  auto c = fake({{"quant_method", "auto-round"},
                 {"bits", 4},
                 {"group_size", 8},
                 {"rotation_config", {{"hadamard_type", "hadamard"}}}});
  add_words(*c, true, 0x77777777U);
  const Result<float> value = value_of(c);
  ASSERT_FALSE(value.ok());
  EXPECT_EQ(value.error().code, "quant.unsupported");
  EXPECT_NE(value.error().where.find("rotation_config"), std::string::npos);
}

// Codes 0x38, which is 1, under scales of one value.
void add_fp8(MemoryCheckpoint& c, const ModuleRef& module, const std::string& scale, Dtype dtype,
             std::vector<std::int64_t> shape) {
  c.add(module.path + ".weight", Dtype::f8_e4m3, {module.out, module.in},
        std::vector<std::uint8_t>(static_cast<std::size_t>(module.out * module.in), 0x38));
  std::size_t count = 1;
  for (const std::int64_t dim : shape) count *= static_cast<std::size_t>(dim);
  if (dtype == Dtype::f32) c.add(module.path + scale, dtype, std::move(shape), std::vector<float>(count, 0.25F));
  if (dtype == Dtype::bf16)
    c.add(module.path + scale, dtype, std::move(shape), std::vector<std::uint16_t>(count, 0x3E80));
  if (dtype == Dtype::f16)
    c.add(module.path + scale, dtype, std::move(shape), std::vector<std::uint16_t>(count, 0x3400));
  if (dtype == Dtype::u8 || dtype == Dtype::f8_e8m0)
    c.add(module.path + scale, dtype, std::move(shape), std::vector<std::uint8_t>(count, 125));
}

Result<float> fp8_value(const Fake& c, const ModuleRef& module) {
  MORACLE_ASSIGN(const auto format, make_format(*c));
  TensorClaims claims(c);
  MORACLE_ASSIGN(const CanonicalLinear linear, test::open_whole(*format, module, claims));
  MatrixPanel panel;
  MORACLE_TRY(linear.weight->read(0, module.out, panel));
  for (const std::uint8_t code : panel.codes) EXPECT_EQ(code, 0x38);
  for (const float scale : panel.scales) EXPECT_EQ(scale, 0.25F);
  EXPECT_TRUE(claims.unclaimed().empty());
  return panel.scales[0];
}

TEST(Labels, BlockScalesUnderEveryNameAndType) {
  const ModuleRef module{.path = kModule.path, .fused = {}, .out = 64, .in = 96};
  for (const char* name : {".weight_scale_inv", ".weight_scale", ".scale_inv", ".scale", "_weight_scale_inv",
                           "_weight_scale", "_scale_inv", "_scale"})
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::u8, Dtype::f8_e8m0})
      for (const bool said : {true, false}) {
        SCOPED_TRACE(std::string(name) + " " + std::string(to_string(dtype)));
        auto c = fake({{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}});
        if (said) c->mutable_config()["quantization_config"]["weight_block_size"] = {32, 32};
        add_fp8(*c, module, name, dtype, {2, 3});
        const Result<float> value = fp8_value(c, module);
        ASSERT_TRUE(value.ok()) << value.error().message();
      }
}

TEST(Labels, Fp8OfAutoRound) {
  struct Row {
    Json section;
    std::vector<std::int64_t> scales;
    const char* scale;
    bool input;
    const char* scheme;
  };
  const Json fp8{{"quant_method", "auto-round"}, {"bits", 8}, {"data_type", "fp"}};
  const auto with = [&](Json more) {
    more.update(fp8);
    return more;
  };
  const std::vector<Row> rows{
      {with({{"packing_format", "auto_round:fp8_static"}, {"act_bits", 8}, {"act_dynamic", false}}),
       {8},
       ".weight_scale",
       true,
       "W: fp8 channel, A: fp8 tensor static"},
      {with({{"packing_format", "auto_round:fp8"}, {"act_bits", 16}}),
       {8, 1},
       ".weight_scale",
       false,
       "W: fp8 channel"},
      {with({{"act_bits", 16}}), {}, ".weight_scale", false, "W: fp8 tensor"},
      {with({{"act_bits", 8}, {"act_dynamic", true}, {"group_size", {128, 128}}}),
       {1, 1},
       ".weight_scale_inv",
       false,
       "W: fp8 block 128x128, A: fp8 g128 dynamic"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.section.dump());
    auto c = fake(row.section);
    add_fp8(*c, kModule, row.scale, Dtype::bf16, row.scales);
    if (row.input) c->add(kModule.path + ".input_scale", Dtype::bf16, {1}, std::vector<std::uint16_t>(1, 0x3F80));
    const Result<float> value = fp8_value(c, kModule);
    ASSERT_TRUE(value.ok()) << value.error().message();
    const auto format = make_format(*c);
    TensorClaims claims(c);
    EXPECT_EQ(to_string((*format)->scheme_of(kModule, claims)->scheme), row.scheme);
  }
}

// fbgemm's FP8: scales of rows, inputs by token, and a bound of theirs that is not applied.
TEST(Labels, Fp8OfFbgemm) {
  auto c = fake({{"quant_method", "fbgemm_fp8"}, {"activation_scale_ub", 1200.0}});
  add_fp8(*c, kModule, ".weight_scale", Dtype::f32, {8, 1});
  const Result<float> value = fp8_value(c, kModule);
  ASSERT_TRUE(value.ok()) << value.error().message();
  const auto format = make_format(*c);
  TensorClaims claims(c);
  EXPECT_EQ(to_string((*format)->scheme_of(kModule, claims)->scheme), "W: fp8 channel, A: fp8 token dynamic");
  ASSERT_EQ((*format)->warnings().size(), 1U);
  EXPECT_NE((*format)->warnings()[0].find("activation_scale_ub"), std::string::npos);
}

TEST(Labels, SizesOfBlocksByTheShapeOfTheirScales) {
  struct Row {
    std::int64_t out, in;
    std::vector<std::int64_t> scales;
    std::optional<Granularity> wanted;
  };
  const std::vector<Row> rows{
      {64, 96, {}, Granularity::tensor()},
      {64, 96, {1}, Granularity::tensor()},
      {64, 96, {64}, Granularity::channel()},
      {64, 96, {64, 1}, Granularity::channel()},
      {64, 96, {64, 3}, Granularity::group(32)},
      {64, 96, {2, 3}, Granularity::block(32, 32)},
      {32, 64, {1, 2}, Granularity::block(32, 32)},
      {576, 7168, {5, 56}, Granularity::block(128, 128)},  // the last row of blocks is half as high
      {1536, 7168, {12, 1, 56, 1}, Granularity::block(128, 128)},
      {100, 100, {1, 1}, Granularity::block(128, 128)},
      {2048, 512, {1, 1}, Granularity::block(2048, 2048)},
      {128, 16384, {1, 128}, Granularity::block(128, 128)},
      {48, 96, {3, 2}, Granularity::block(16, 64)},
      {90, 90, {9, 9}, Granularity::block(10, 10)},
      {64, 96, {65, 3}, std::nullopt},
      {64, 96, {3}, std::nullopt},
      {64, 96, {2, 3, 4}, std::nullopt},
  };
  for (const Row& row : rows) {
    TensorView scales;
    scales.shape = row.scales;
    const ModuleRef module{.path = "m", .fused = {}, .out = row.out, .in = row.in};
    EXPECT_EQ(fp8_granularity(module, scales, std::nullopt), row.wanted)
        << row.out << "x" << row.in << " " << testing::PrintToString(row.scales);
  }
  TensorView scales;
  scales.shape = {2, 2};
  const ModuleRef module{.path = "m", .fused = {}, .out = 48, .in = 96};
  EXPECT_EQ(fp8_granularity(module, scales, Granularity::block(24, 48)), Granularity::block(24, 48));
}

// What a config leaves unquantized may hold the FP8 codes of its source, in every format.
TEST(Labels, ExcludedModulesKeepFp8) {
  const Json ct{
      {"quant_method", "compressed-tensors"},
      {"format", "pack-quantized"},
      {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", {{"num_bits", 4}, {"group_size", 32}}}}}}},
      {"ignore", {kModule.path}}};
  const Json quark{{"quant_method", "quark"},
                   {"export", Json::object()},
                   {"exclude", {"re:.*q_proj"}},
                   {"global_quant_config", {{"weight", {{"dtype", "int8"}, {"qscheme", "per_tensor"}}}}}};
  const Json modelopt{{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}, {"ignore", {"*q_proj"}}};
  const Json gptq{{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 8}};
  const Json awq{{"quant_method", "awq"}, {"bits", 4}, {"group_size", 8}};
  const Json mxfp4{{"quant_method", "mxfp4"}};
  for (const Json& section : {ct, quark, modelopt, gptq, awq, mxfp4}) {
    SCOPED_TRACE(section.dump());
    auto c = fake(section);
    add_fp8(*c, kModule, ".weight_scale_inv", Dtype::f32, {1, 1});
    const Result<float> value = fp8_value(c, kModule);
    EXPECT_TRUE(value.ok()) << value.error().message();
    const auto format = make_format(*c);
    TensorClaims claims(c);
    const auto linear = (*format)->open(kModule, claims);
    ASSERT_TRUE(linear.ok());
    EXPECT_FALSE(linear->activation);
    ASSERT_EQ((*format)->warnings().size(), 1U);
    EXPECT_NE((*format)->warnings()[0].find("1 modules that quantization_config leaves unquantized hold FP8"),
              std::string::npos);
  }
  auto none = std::make_shared<MemoryCheckpoint>();
  add_fp8(*none, kModule, ".weight_scale_inv", Dtype::f32, {1, 1});
  EXPECT_EQ(fp8_value(none, kModule).error().code, "config.contradiction");
}

}  // namespace
}  // namespace moracle
