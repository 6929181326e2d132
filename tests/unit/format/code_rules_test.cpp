// Which rule decides about a module, and how codes in bytes decode, publisher by publisher.
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "format/format.h"
#include "scheme/codes.h"
#include "support/memory_checkpoint.h"
#include "support/open_whole.h"
#include "support/temporary_folder.h"

namespace moracle {
namespace {

using test::MemoryCheckpoint;
using test::TemporaryFolder;
using Fake = std::shared_ptr<MemoryCheckpoint>;

const std::string kModule = "model.layers.0.self_attn.q_proj";

Fake fake(Json section, std::filesystem::path folder = "/nowhere") {
  return std::make_shared<MemoryCheckpoint>(Json{{"quantization_config", std::move(section)}}, std::move(folder));
}
std::vector<float> filled(std::size_t count, float value) {
  return std::vector<float>(count, value);
}

Result<CanonicalLinear> open(const Fake& c, const ModuleRef& module) {
  MORACLE_ASSIGN(const auto format, make_format(*c));
  TensorClaims claims(c);
  return test::open_whole(*format, module, claims);
}
// All values of a module, or the message of what is wrong.
std::vector<float> values(const Fake& c, const ModuleRef& module) {
  const auto linear = open(c, module);
  if (!linear.ok()) {
    ADD_FAILURE() << linear.error().message();
    return {};
  }
  const auto read = dequantize(*linear->weight);
  if (!read.ok()) ADD_FAILURE() << read.error().message();
  return read.ok() ? *read : std::vector<float>();
}
std::string excluded_by(const Fake& c, const ModuleRef& module) {
  const auto format = make_format(*c);
  if (!format.ok()) return format.error().message();
  TensorClaims claims(c);
  const auto scheme = (*format)->scheme_of(module, claims);
  if (!scheme.ok()) return scheme.error().message();
  const auto opened = (*format)->open(module, claims);
  if (opened.ok()) {
    EXPECT_EQ(opened->excluded_by, scheme->excluded_by);
  }
  return scheme->excluded_by;
}

Json quark(const Json& weight, const Json& input, const std::string& order = "reorder") {
  return {{"quant_method", "quark"},
          {"export", {{"pack_method", order}, {"weight_format", "real_quantized"}, {"kv_cache_group", Json::array()}}},
          {"global_quant_config", {{"weight", weight}, {"input_tensors", input}}}};
}
const Json kInt8{{"dtype", "int8"}, {"qscheme", "per_channel"}, {"ch_axis", 0}, {"symmetric", true}};
const Json kToken{{"dtype", "int8"}, {"qscheme", "per_channel"}, {"ch_axis", 1}, {"is_dynamic", true}};

void add_int8(MemoryCheckpoint& c, const std::string& path, std::int64_t out, std::int64_t in) {
  std::vector<std::int8_t> codes(static_cast<std::size_t>(out * in));
  std::iota(codes.begin(), codes.end(), std::int8_t{-128});
  c.add(path + ".weight", Dtype::i8, {out, in}, codes);
  c.add(path + ".weight_scale", Dtype::f32, {out}, filled(static_cast<std::size_t>(out), 0.5F));
}

TEST(QuarkRules, Int8ReachesItsLowestCode) {
  auto c = fake(quark(kInt8, kToken));
  add_int8(*c, kModule, 2, 4);
  const auto linear = open(c, {.path = kModule, .fused = {}, .out = 2, .in = 4});
  ASSERT_TRUE(linear.ok()) << linear.error().message();
  EXPECT_EQ(to_string(linear->scheme()), "W: int8 channel, A: int8 token dynamic");
  EXPECT_EQ(values(c, {.path = kModule, .fused = {}, .out = 2, .in = 4}),
            (std::vector<float>{-64.0F, -63.5F, -63.0F, -62.5F, -62.0F, -61.5F, -61.0F, -60.5F}));
}

TEST(QuarkRules, Int8ZeroPointsAreApplied) {
  Json weight = kInt8;
  weight["symmetric"] = false;
  for (const bool wide : {false, true}) {
    auto c = fake(quark(weight, kToken));
    add_int8(*c, kModule, 2, 2);
    if (wide)
      c->add(kModule + ".weight_zero_point", Dtype::i32, {2}, std::vector<std::int32_t>{-128, 10});
    else
      c->add(kModule + ".weight_zero_point", Dtype::i8, {2}, std::vector<std::int8_t>{-128, 10});
    EXPECT_EQ(values(c, {.path = kModule, .fused = {}, .out = 2, .in = 2}),
              (std::vector<float>{0.0F, 0.5F, -68.0F, -67.5F}));
  }
}

TEST(QuarkRules, LegacyTensorScales) {
  auto c = fake(quark({{"dtype", "int8"}, {"qscheme", "per_tensor"}}, {{"dtype", "int8"}, {"qscheme", "per_tensor"}}));
  add_int8(*c, kModule, 2, 2);
  c->add(kModule + ".weight_scale", Dtype::f32, {}, filled(1, 2.0F));
  c->add(kModule + ".input_scale", Dtype::f32, {}, filled(1, 0.25F));
  c->add(kModule + ".input_zero_point", Dtype::i8, {}, std::vector<std::int8_t>{0});
  const auto linear = open(c, {.path = kModule, .fused = {}, .out = 2, .in = 2});
  ASSERT_TRUE(linear.ok()) << linear.error().message();
  EXPECT_EQ(to_string(linear->scheme()), "W: int8 tensor, A: int8 tensor static");
  EXPECT_EQ(linear->input_scale, 0.25F);
  EXPECT_EQ(values(c, {.path = kModule, .fused = {}, .out = 2, .in = 2}),
            (std::vector<float>{-256.0F, -254.0F, -252.0F, -250.0F}));
}

// Nibble i of a word is column i, or column {0, 2, 4, 6, 1, 3, 5, 7}[i]; int4 is signed, uint4 is not.
TEST(QuarkRules, PackedInt4) {
  constexpr std::array<std::size_t, 8> kOrder{0, 2, 4, 6, 1, 3, 5, 7};
  for (const bool reorder : {false, true})
    for (const bool is_signed : {false, true}) {
      SCOPED_TRACE(std::string(reorder ? "reorder " : "order ") + (is_signed ? "int4" : "uint4"));
      const Json weight{{"dtype", is_signed ? "int4" : "uint4"},
                        {"qscheme", "per_group"},
                        {"group_size", 2},
                        {"ch_axis", 1},
                        {"symmetric", false}};
      auto c = fake(quark(weight, nullptr, reorder ? "reorder" : "order"));
      c->add(kModule + ".weight", Dtype::i32, {2, 1}, std::vector<std::uint32_t>{0x76543210U, 0xFEDCBA98U});
      c->add(kModule + ".weight_scale", Dtype::f32, {1, 8}, filled(8, 1.0F));
      c->add(kModule + ".weight_zero_point", Dtype::i32, {1, 1}, std::vector<std::uint32_t>{0x22222222U});
      const auto found = values(c, {.path = kModule, .fused = {}, .out = 8, .in = 2});
      ASSERT_EQ(found.size(), 16U);
      for (std::size_t nibble = 0; nibble < 8; ++nibble) {
        const std::size_t column = reorder ? kOrder[nibble] : nibble;
        EXPECT_EQ(found[column * 2], static_cast<float>(nibble) - 2.0F);
        EXPECT_EQ(found[column * 2 + 1], static_cast<float>(nibble) + (is_signed ? -8.0F : 8.0F) - 2.0F);
      }
    }
}

TEST(QuarkRules, SixBitCodesAreFourInThreeBytes) {
  for (const char* dtype : {"fp6_e2m3", "fp6_e3m2"}) {
    auto c = fake(
        quark({{"dtype", dtype}, {"qscheme", "per_group"}, {"group_size", 32}, {"scale_format", "e8m0"}}, nullptr));
    std::vector<std::uint8_t> packed(48, 0);
    for (std::size_t k = 0; k < 64; ++k)
      for (std::size_t bit = 0; bit < 6; ++bit)
        packed[(k * 6 + bit) / 8] |= static_cast<std::uint8_t>((k >> bit & 1U) << ((k * 6 + bit) % 8));
    c->add(kModule + ".weight", Dtype::u8, {1, 48}, packed);
    c->add(kModule + ".weight_scale", Dtype::u8, {1, 2}, std::vector<std::uint8_t>{128, 126});
    const auto found = values(c, {.path = kModule, .fused = {}, .out = 1, .in = 64});
    ASSERT_EQ(found.size(), 64U);
    for (std::size_t k = 0; k < 64; ++k) {
      const auto code = static_cast<std::uint8_t>(k);
      const float element = std::string(dtype) == "fp6_e2m3" ? decode_e2m3(code) : decode_e3m2(code);
      EXPECT_EQ(found[k], element * (k < 32 ? 2.0F : 0.5F)) << k;
    }
  }
}

TEST(QuarkRules, Excludes) {
  Json section = quark(kInt8, kToken);
  section["exclude"] = {"lm_head", "re:.*o_proj", "model.layers.0.mlp.experts.1.up_proj", "*router"};
  auto c = fake(section);
  for (const char* name : {"lm_head", "model.layers.3.self_attn.o_proj", "model.layers.0.mlp.experts.0.up_proj",
                           "model.layers.0.mlp.router"})
    c->add_zeros(std::string(name) + ".weight", Dtype::bf16, {2, 4});
  EXPECT_EQ(excluded_by(c, {.path = "lm_head", .fused = {}, .out = 2, .in = 4}), "lm_head");
  EXPECT_EQ(excluded_by(c, {.path = "model.layers.3.self_attn.o_proj", .fused = {}, .out = 2, .in = 4}), ".*o_proj");
  EXPECT_EQ(excluded_by(c, {.path = "model.layers.0.mlp.router", .fused = {}, .out = 2, .in = 4}),
            "stored unquantized");
  // One leaf of the experts in the list speaks for all that are stored so.
  const ModuleRef expert{
      .path = "model.layers.0.mlp.experts.0.up_proj", .fused = {"model.layers.0.mlp.experts"}, .out = 2, .in = 4};
  EXPECT_EQ(excluded_by(c, expert), "model.layers.0.mlp.experts.1.up_proj");
}

TEST(QuarkRules, LayersBeforeClassesBeforeTheRest) {
  const Json fp8{{"weight", {{"dtype", "fp8_e4m3"}, {"qscheme", "per_tensor"}}}};
  const Json fp4{
      {"weight", {{"dtype", "fp4"}, {"qscheme", "per_group"}, {"group_size", 32}, {"scale_format", "e8m0"}}}};
  Json section = quark(kInt8, kToken);
  section["layer_quant_config"] = {{"*q_proj", fp8}};
  section["layer_type_quant_config"] = {{"Linear", fp4}};
  auto c = fake(section);
  const auto scheme = [&](const ModuleRef& module, Dtype dtype, std::int64_t width) {
    c->add_zeros(module.path + ".weight", dtype, {2, width});
    const auto format = make_format(*c);
    const TensorClaims claims(c);
    const auto found = (*format)->scheme_of(module, claims);
    return found.ok() ? to_string(found->scheme) : found.error().message();
  };
  EXPECT_EQ(scheme({.path = kModule, .fused = {}, .out = 2, .in = 32}, Dtype::f8_e4m3, 32), "W: fp8 tensor");
  EXPECT_EQ(scheme({.path = "a.k_proj", .fused = {}, .out = 2, .in = 32}, Dtype::u8, 16), "W: mxfp4");
  EXPECT_EQ(scheme({.path = "a.v_proj", .fused = {}, .module_class = "Conv1D", .out = 2, .in = 32}, Dtype::i8, 32),
            "W: int8 channel, A: int8 token dynamic");
}

// One [E, N, K] tensor a projection, with scales [E, N] or [E, N, 1].
TEST(QuarkRules, StackedProjections) {
  for (const bool flat : {true, false}) {
    auto c = fake(quark(kInt8, kToken));
    std::vector<std::int8_t> codes(3 * 2 * 4, 1);
    codes[2 * 8 + 4] = 9;  // expert 2, row 1
    c->add("m.gate_proj.weight", Dtype::i8, {3, 2, 4}, codes);
    std::vector<float> scales{1, 2, 3, 4, 5, 6};
    c->add("m.gate_proj.weight_scale", Dtype::f32,
           flat ? std::vector<std::int64_t>{3, 2} : std::vector<std::int64_t>{3, 2, 1}, scales);
    const ModuleRef module{.path = "m.gate_proj",
                           .fused = {},
                           .out = 2,
                           .in = 4,
                           .slice = ModuleRef::Slice{.expert = 2, .experts = 3, .total_rows = 2}};
    EXPECT_EQ(values(c, module), (std::vector<float>{5, 5, 5, 5, 54, 6, 6, 6}));
  }
}

// gate_up of one expert with alternating rows, its bias with it.
TEST(QuarkRules, UnfusedGateUpAlternates) {
  auto c =
      fake(quark({{"dtype", "fp4"}, {"qscheme", "per_group"}, {"group_size", 32}, {"scale_format", "e8m0"}}, nullptr));
  std::vector<std::uint8_t> codes(4 * 16);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(0x11 * (i / 16));
  c->add("e.0.gate_up_proj.weight", Dtype::u8, {4, 16}, codes);
  c->add("e.0.gate_up_proj.weight_scale", Dtype::u8, {4, 1}, std::vector<std::uint8_t>{127, 128, 129, 130});
  c->add("e.0.gate_up_proj.bias", Dtype::f32, {4}, std::vector<float>{1, 2, 3, 4});
  const ModuleRef up{
      .path = "e.0.gate_up_proj",
      .fused = {},
      .out = 2,
      .in = 32,
      .slice = ModuleRef::Slice{.expert = 0, .experts = 1, .row_begin = 1, .row_stride = 2, .total_rows = 4}};
  const auto found = values(c, up);
  ASSERT_EQ(found.size(), 64U);
  EXPECT_EQ(found[0], 0.5F * 2.0F);   // row 1, code 1
  EXPECT_EQ(found[63], 1.5F * 8.0F);  // row 3, code 3
  const auto linear = open(c, up);
  ASSERT_TRUE(linear.ok());
  EXPECT_EQ(linear->bias, (std::vector<float>{2, 4}));
}

Fake nvfp4(Json section, std::filesystem::path folder = "/nowhere") {
  auto c = fake(std::move(section), std::move(folder));
  c->add_zeros(kModule + ".weight", Dtype::u8, {2, 8});
  c->add(kModule + ".weight_scale", Dtype::f8_e4m3, {2, 1}, std::vector<std::uint8_t>{0x38, 0x38});
  c->add(kModule + ".weight_scale_2", Dtype::f32, {}, filled(1, 0.5F));
  return c;
}

TEST(ModelOptRules, ExcludesDoNotRunIntoLongerNames) {
  auto c = nvfp4({{"quant_method", "modelopt"},
                  {"quant_algo", "W4A16_NVFP4"},
                  {"ignore", {"model.layers.0.mlp.gate", "model.layers.1*", "lm_head", "*embed*"}}});
  const auto who = [&](const std::string& path) {
    return excluded_by(c, {.path = path, .fused = {}, .out = 2, .in = 16});
  };
  c->add_zeros("model.layers.0.mlp.gate.weight", Dtype::bf16, {2, 16});
  c->add_zeros("model.layers.1.mlp.up_proj.weight", Dtype::bf16, {2, 16});
  c->add_zeros("model.layers.10.mlp.up_proj.weight", Dtype::u8, {2, 8});
  c->add_zeros("model.layers.0.mlp.gate_proj.weight", Dtype::u8, {2, 8});
  c->add_zeros("model.embed_tokens.weight", Dtype::bf16, {2, 16});
  EXPECT_EQ(who("model.layers.0.mlp.gate"), "model.layers.0.mlp.gate");
  EXPECT_EQ(who("model.layers.1.mlp.up_proj"), "model.layers.1.*");
  EXPECT_EQ(who("model.layers.10.mlp.up_proj"), "");
  EXPECT_EQ(who("model.layers.0.mlp.gate_proj"), "");
  EXPECT_EQ(who(kModule), "");
  EXPECT_EQ(who("model.embed_tokens"), "stored unquantized");
}

TEST(ModelOptRules, WeightsOnlyWhereNoGroupQuantizesInputs) {
  const Json group{{"targets", {"Linear"}}, {"weights", {{"num_bits", 4}}}, {"input_activations", nullptr}};
  auto c = nvfp4({{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}, {"config_groups", {{"group_0", group}}}});
  const auto linear = open(c, {.path = kModule, .fused = {}, .out = 2, .in = 16});
  ASSERT_TRUE(linear.ok()) << linear.error().message();
  EXPECT_EQ(to_string(linear->scheme()), "W: nvfp4");
  EXPECT_EQ(linear->weight->spec().global_scale, 0.5F);
}

TEST(ModelOptRules, MixedPrecisionByLayer) {
  auto c = nvfp4({{"quant_method", "modelopt"},
                  {"quantization",
                   {{"quant_algo", "MIXED_PRECISION"},
                    {"quantized_layers",
                     {{"model.language_model.layers.0.self_attn.q_proj", {{"quant_algo", "W4A16_NVFP4"}}},
                      {"model.layers.0.mlp.experts.3.up_proj", {{"quant_algo", "FP8"}}}}}}}});
  c->add_zeros("model.layers.0.mlp.experts.0.up_proj.weight", Dtype::f8_e4m3, {2, 16});
  c->add_zeros("model.layers.0.self_attn.k_proj.weight", Dtype::bf16, {2, 16});
  // With and without the infix.
  EXPECT_EQ(excluded_by(c, {.path = kModule, .fused = {}, .out = 2, .in = 16}), "");
  ModuleRef nested{.path = "model.language_model.layers.0.self_attn.q_proj", .fused = {}, .out = 2, .in = 16};
  for (const char* part : {".weight", ".weight_scale", ".weight_scale_2"}) {
    const TensorView tensor = *c->find(kModule + part);
    c->add(nested.path + part, tensor.dtype, tensor.shape, tensor.bytes);
    c->remove(kModule + part);
  }
  EXPECT_EQ(excluded_by(c, nested), "");
  EXPECT_EQ(excluded_by(c, {.path = "model.layers.0.self_attn.k_proj", .fused = {}, .out = 2, .in = 16}),
            "not in quantized_layers");
  EXPECT_EQ(excluded_by(c, {.path = "model.layers.0.mlp.experts.0.up_proj",
                            .fused = {"model.layers.0.mlp.experts"},
                            .out = 2,
                            .in = 16}),
            "");
}

TEST(ModelOptRules, ItsOwnFile) {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& text) { folder.write("hf_quant_config.json", text); };
  write(R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "W4A16_NVFP4", "group_size": 16}})");
  auto alone = std::make_shared<MemoryCheckpoint>(Json::object(), folder.path());
  auto format = make_format(*alone);
  ASSERT_TRUE(format.ok()) << format.error().message();
  EXPECT_EQ((*format)->name(), "modelopt");
  format = make_format(*fake({{"quant_method", "modelopt"}, {"quant_algo", "FP8"}}, folder.path()));
  ASSERT_TRUE(format.ok()) << format.error().message();
  ASSERT_EQ((*format)->notes().size(), 1U);
  EXPECT_EQ((*format)->notes()[0],
            "hf_quant_config.json: /quantization/quant_algo = \"W4A16_NVFP4\" is not read: config.json says \"FP8\"");
  // Another publisher's section is none of its business.
  format = make_format(*fake({{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}}, folder.path()));
  ASSERT_TRUE(format.ok()) << format.error().message();
  EXPECT_EQ((*format)->name(), "fp8");
}

// Stacked experts packed along the input: element (row r, column k) is half of byte [k / 2, r].
TEST(ModelOptRules, FusedExpertsArePackedAlongTheInput) {
  auto c = fake({{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}});
  std::vector<std::uint8_t> codes(2 * 8 * 4, 0);
  const auto byte = [&](std::size_t e, std::size_t k, std::size_t row) -> std::uint8_t& {
    return codes[(e * 8 + k / 2) * 4 + row];
  };
  byte(1, 6, 3) = 0x52;  // columns 6 and 7 of row 3: 1 and 3
  c->add("x.gate_up_proj", Dtype::u8, {2, 8, 4}, codes);
  c->add("x.gate_up_proj_weight_scale", Dtype::f8_e4m3, {2, 1, 4},
         std::vector<std::uint8_t>{0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x40});
  c->add("x.gate_up_proj_weight_scale_2", Dtype::f32, {}, filled(1, 0.25F));
  c->add("x.gate_up_proj_input_scale", Dtype::f32, {}, filled(1, 0.5F));
  c->add("x.gate_up_proj_bias", Dtype::f32, {2, 4}, std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7});
  const ModuleRef up{
      .path = "x.gate_up_proj",
      .fused = {},
      .out = 2,
      .in = 16,
      .slice = ModuleRef::Slice{
          .expert = 1, .experts = 2, .row_begin = 1, .row_stride = 2, .total_rows = 4, .transposed = true}};
  const auto found = values(c, up);
  ASSERT_EQ(found.size(), 32U);
  EXPECT_EQ(found[16 + 6], 1.0F * 2.0F * 0.25F);
  EXPECT_EQ(found[16 + 7], 3.0F * 2.0F * 0.25F);
  EXPECT_EQ(found[6], 0.0F);
  const auto linear = open(c, up);
  ASSERT_TRUE(linear.ok());
  EXPECT_EQ(linear->bias, (std::vector<float>{5, 7}));
  EXPECT_EQ(linear->input_scale, 2.0F);
}

TEST(Fp8Rules, TheLastBlocksMayBeRagged) {
  auto c = fake({{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}, {"weight_block_size", {2, 4}}});
  c->add(kModule + ".weight", Dtype::f8_e4m3, {3, 6}, std::vector<std::uint8_t>(18, 0x38));
  c->add(kModule + ".weight_scale_inv", Dtype::f32, {2, 2}, std::vector<float>{1, 2, 3, 4});
  EXPECT_EQ(values(c, {.path = kModule, .fused = {}, .out = 3, .in = 6}),
            (std::vector<float>{1, 1, 1, 1, 2, 2, 1, 1, 1, 1, 2, 2, 3, 3, 3, 3, 4, 4}));
}

TEST(Fp8Rules, WhatIsStoredPlainlyIsUnquantized) {
  auto c = fake({{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}, {"weight_block_size", {128, 128}}});
  c->add_zeros("lm_head.weight", Dtype::bf16, {2, 4});
  EXPECT_EQ(excluded_by(c, {.path = "lm_head", .fused = {}, .out = 2, .in = 4}), "stored unquantized");
}

TEST(Fp8Rules, TheTypesOfExpertsAndScalesTellTheirScheme) {
  auto c = fake({{"quant_method", "fp8"},
                 {"activation_scheme", "dynamic"},
                 {"weight_block_size", {128, 128}},
                 {"scale_fmt", "ue8m0"}});
  c->add("e.w1.weight", Dtype::i8, {1, 16}, std::vector<std::uint8_t>(16, 0x21));
  c->add("e.w1.scale", Dtype::f8_e8m0, {1, 1}, std::vector<std::uint8_t>{128});
  c->add("s.w1.weight", Dtype::f8_e4m3, {1, 2}, std::vector<std::uint8_t>(2, 0x38));
  c->add("s.w1.scale", Dtype::f32, {1, 1}, filled(1, 0.25F));
  const auto found = values(c, {.path = "e.w1", .fused = {}, .out = 1, .in = 32});
  ASSERT_EQ(found.size(), 32U);
  EXPECT_EQ(found[0], 1.0F);
  EXPECT_EQ(found[1], 2.0F);
  EXPECT_EQ(values(c, {.path = "s.w1", .fused = {}, .out = 1, .in = 2}), (std::vector<float>{0.25F, 0.25F}));
  // Floats of that name are powers of two because scale_fmt says so.
  const ModuleRef shared{.path = "s.w1", .fused = {}, .out = 1, .in = 2};
  EXPECT_EQ(open(c, shared)->scheme().weight.scale, ScaleType::e8m0);
  c->mutable_config()["quantization_config"].erase("scale_fmt");
  EXPECT_EQ(open(c, shared)->scheme().weight.scale, ScaleType::f32);
  EXPECT_EQ(values(c, {.path = "e.w1", .fused = {}, .out = 1, .in = 32})[1], 2.0F);
}

Json ct(const std::string& format, const Json& weights, const Json& inputs) {
  return {
      {"quant_method", "compressed-tensors"},
      {"format", format},
      {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}, {"input_activations", inputs}}}}}};
}

TEST(CompressedTensorsRules, FourBitWeightsWithEightBitActivations) {
  const Json weights{{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 8}};
  for (const char* type : {"int", "float"}) {
    const Json token{{"num_bits", 8}, {"type", type}, {"strategy", "token"}, {"dynamic", true}};
    const std::string activation = std::string(", A: ") + (type[0] == 'i' ? "int8" : "fp8") + " token dynamic";
    auto packed = fake(ct("pack-quantized", weights, token));
    packed->add(kModule + ".weight_packed", Dtype::i32, {1, 1}, std::vector<std::uint32_t>{0xFEDCBA90U});
    packed->add(kModule + ".weight_scale", Dtype::f32, {1, 1}, filled(1, 1.0F));
    auto bytes = fake(ct("int-quantized", weights, token));
    bytes->add(kModule + ".weight", Dtype::i8, {1, 8}, std::vector<std::int8_t>{-8, 1, 2, 3, 4, 5, 6, 7});
    bytes->add(kModule + ".weight_scale", Dtype::f32, {1, 1}, filled(1, 1.0F));
    for (const Fake& c : {packed, bytes}) {
      const ModuleRef module{.path = kModule, .fused = {}, .out = 1, .in = 8};
      const auto linear = open(c, module);
      ASSERT_TRUE(linear.ok()) << linear.error().message();
      EXPECT_EQ(to_string(linear->scheme()), "W: int4 g8 sym" + activation);
      EXPECT_EQ(values(c, module), (std::vector<float>{-8, 1, 2, 3, 4, 5, 6, 7}));
    }
  }
}

TEST(CompressedTensorsRules, ZeroPointsMayBeUnpacked) {
  const Json weights{
      {"num_bits", 4}, {"type", "int"}, {"strategy", "channel"}, {"group_size", nullptr}, {"symmetric", false}};
  auto c = fake(ct("pack-quantized", weights, nullptr));
  c->add(kModule + ".weight_packed", Dtype::i32, {2, 1}, std::vector<std::uint32_t>{0x88888888U, 0x88888888U});
  c->add(kModule + ".weight_scale", Dtype::f32, {2, 1}, filled(2, 1.0F));
  c->add(kModule + ".weight_zero_point", Dtype::i8, {2, 1}, std::vector<std::int8_t>{-8, 7});
  const auto found = values(c, {.path = kModule, .fused = {}, .out = 2, .in = 8});
  ASSERT_EQ(found.size(), 16U);
  EXPECT_EQ(found[0], 8.0F);
  EXPECT_EQ(found[8], -7.0F);
}

TEST(CompressedTensorsRules, GroupsHaveFormatsOfTheirOwn) {
  const Json int8{{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}};
  const Json mxfp8{
      {"num_bits", 8}, {"type", "float"}, {"strategy", "group"}, {"group_size", 32}, {"scale_dtype", "torch.uint8"}};
  const Json section{{"quant_method", "compressed-tensors"},
                     {"format", "mixed-precision"},
                     {"config_groups",
                      {{"a", {{"targets", {"re:.*q_proj"}}, {"weights", int8}, {"format", "int-quantized"}}},
                       {"b", {{"targets", {"Linear"}}, {"weights", mxfp8}, {"format", "mxfp8-quantized"}}}}}};
  // The order of groups is read from the file.
  const TemporaryFolder folder;
  folder.write("config.json", Json{{"quantization_config", section}}.dump());
  auto c = fake(section, folder.path());
  add_int8(*c, kModule, 2, 4);
  c->add("k.weight", Dtype::f8_e4m3, {1, 32}, std::vector<std::uint8_t>(32, 0x38));
  c->add("k.weight_scale", Dtype::u8, {1, 1}, std::vector<std::uint8_t>{129});
  const auto first = open(c, {.path = kModule, .fused = {}, .out = 2, .in = 4});
  ASSERT_TRUE(first.ok()) << first.error().message();
  EXPECT_EQ(to_string(first->scheme()), "W: int8 channel");
  EXPECT_EQ(values(c, {.path = "k", .fused = {}, .out = 1, .in = 32}), filled(32, 4.0F));
}

}  // namespace
}  // namespace moracle
