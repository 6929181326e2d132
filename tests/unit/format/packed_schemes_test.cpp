// Packed schemes beyond the plain ones: AutoRound, Quark's int4 by channel and over FP8, stacked pack-quantized
// experts, six-bit activations, and NVFP4 experts of a checkpoint that calls itself fp8.
#include <gtest/gtest.h>

#include <array>

#include "format/format.h"
#include "support/memory_checkpoint.h"
#include "support/open_whole.h"

namespace moracle {
namespace {

using test::MemoryCheckpoint;
using Fake = std::shared_ptr<MemoryCheckpoint>;

constexpr std::array<std::size_t, 8> kReordered{0, 2, 4, 6, 1, 3, 5, 7};

Fake fake(Json section, const char* model_type = "qwen3_moe") {
  return std::make_shared<MemoryCheckpoint>(
      Json{{"model_type", model_type}, {"quantization_config", std::move(section)}});
}
ModuleRef module_of(std::string path, std::int64_t out, std::int64_t in) {
  return ModuleRef{.path = std::move(path), .fused = {}, .out = out, .in = in};
}

Result<CanonicalLinear> open(const Fake& c, const ModuleRef& module) {
  MORACLE_ASSIGN(const auto format, make_format(*c));
  TensorClaims claims(c);
  MORACLE_TRY(format->scheme_of(module, claims));
  MORACLE_ASSIGN(CanonicalLinear linear, test::open_whole(*format, module, claims));
  EXPECT_TRUE(claims.unclaimed().empty()) << claims.unclaimed()[0];
  return linear;
}
std::vector<float> values_of(const CanonicalLinear& linear) {
  const auto values = dequantize(*linear.weight);
  if (!values.ok()) ADD_FAILURE() << values.error().message();
  return values.ok() ? *values : std::vector<float>();
}
void expect_refusal(const Fake& c, const ModuleRef& module, const std::string& code, const std::string& text) {
  const auto result = open(c, module);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, code) << result.error().message();
  EXPECT_NE(result.error().message().find(text), std::string::npos) << result.error().message();
}

// --- AutoRound -----------------------------------------------------------------------------------------------------

Fake auto_round(const char* packing, bool symmetric) {
  return fake({{"quant_method", "auto-round"},
               {"packing_format", packing},
               {"bits", 4},
               {"group_size", 8},
               {"sym", symmetric},
               {"data_type", "int"},
               {"block_name_to_quantize", "model.layers"}});
}
const ModuleRef kSquare = module_of("model.layers.0.self_attn.q_proj", 8, 8);

// Codes 1 everywhere, zero points as stored.
void add_words(MemoryCheckpoint& c, std::vector<std::int64_t> shape, std::uint32_t zeros) {
  c.add(kSquare.path + ".qweight", Dtype::i32, std::move(shape), std::vector<std::uint32_t>(8, 0x11111111U));
  c.add(kSquare.path + ".qzeros", Dtype::i32, {1, 1}, std::vector<std::uint32_t>{zeros});
  c.add(kSquare.path + ".scales", Dtype::f32, {1, 8}, std::vector<float>(8, 0.5F));
}

TEST(AutoRound, GptqPackingStoresZeroPointsLessOne) {
  auto c = auto_round("auto_round:auto_gptq", false);
  add_words(*c, {1, 8}, 0x22222222U);
  const auto linear = open(c, kSquare);
  ASSERT_TRUE(linear.ok()) << linear.error().message();
  EXPECT_EQ(to_string(linear->scheme()), "W: int4 g8 asym");
  EXPECT_EQ(values_of(*linear), std::vector<float>(64, (1.0F - 3.0F) * 0.5F));
}

TEST(AutoRound, AwqPackingStoresThemAsTheyAre) {
  auto c = auto_round("auto_round:auto_awq", false);
  add_words(*c, {8, 1}, 0x22222222U);
  const auto linear = open(c, kSquare);
  ASSERT_TRUE(linear.ok()) << linear.error().message();
  EXPECT_EQ(values_of(*linear), std::vector<float>(64, (1.0F - 2.0F) * 0.5F));
}

TEST(AutoRound, ExtraConfigOverridesByNameBeforePattern) {
  auto c = auto_round("auto_round:auto_gptq", true);
  c->mutable_config()["quantization_config"]["extra_config"] = {{kSquare.path, {{"bits", 4}, {"group_size", 4}}}};
  c->add(kSquare.path + ".qweight", Dtype::i32, {1, 8}, std::vector<std::uint32_t>(8, 0x99999999U));
  c->add(kSquare.path + ".scales", Dtype::f32, {2, 8}, std::vector<float>(16, 1.0F));
  const auto linear = open(c, kSquare);
  ASSERT_TRUE(linear.ok()) << linear.error().message();
  EXPECT_EQ(to_string(linear->scheme()), "W: int4 g4 sym");

  for (const char* name : {"lm_head", ".*_head$"}) {
    auto plain = auto_round("auto_round:auto_gptq", true);
    plain->mutable_config()["quantization_config"]["extra_config"] = {{name, {{"bits", 16}, {"data_type", "float"}}}};
    plain->mutable_config()["quantization_config"]["lm_head"] = true;
    plain->add_zeros("lm_head.weight", Dtype::bf16, {8, 8});
    const auto format = make_format(*plain);
    ASSERT_TRUE(format.ok()) << format.error().message();
    const TensorClaims claims(plain);
    const auto scheme = (*format)->scheme_of(module_of("lm_head", 8, 8), claims);
    ASSERT_TRUE(scheme.ok()) << scheme.error().message();
    EXPECT_EQ(scheme->excluded_by, name);
  }
}

TEST(AutoRound, Refusals) {
  const auto with = [](const char* key, Json value) {
    auto c = auto_round("auto_round:auto_gptq", true);
    c->mutable_config()["quantization_config"][key] = std::move(value);
    add_words(*c, {1, 8}, 0x77777777U);
    return c;
  };
  expect_refusal(with("data_type", "mx_int"), kSquare, "quant.unsupported", "data_type");
  expect_refusal(with("act_bits", 8), kSquare, "quant.unsupported", "act_bits");
  expect_refusal(with("bits", 3), kSquare, "quant.unsupported", "4 or 8");
  expect_refusal(with("extra_config", {{kSquare.path, {{"data_type", "mx_fp"}}}}), kSquare, "quant.unsupported",
                 "extra_config/" + kSquare.path);
  expect_refusal(with("extra_config", {{kSquare.path, 4}}), kSquare, "config.type", "extra_config/" + kSquare.path);
  expect_refusal(with("extra_config", {{"(", {{"bits", 16}}}}), kSquare, "config.pattern", "(");
}

// --- Quark ---------------------------------------------------------------------------------------------------------

const Json kInt4{{"dtype", "int4"}, {"qscheme", "per_channel"}, {"ch_axis", 0}, {"symmetric", true}};
const Json kFp8{{"dtype", "fp8_e4m3"}, {"qscheme", "per_tensor"}, {"is_dynamic", false}};
const ModuleRef kRows = module_of("model.layers.0.mlp.experts.0.up_proj", 8, 8);

Fake quark(Json weight, Json inputs, const char* order) {
  return fake({{"quant_method", "quark"},
               {"export", {{"pack_method", order}, {"weight_format", "real_quantized"}}},
               {"global_quant_config", {{"weight", std::move(weight)}, {"input_tensors", std::move(inputs)}}}});
}
// Row r: nibble i of its word holds the signed code i - r.
void add_rows(MemoryCheckpoint& c) {
  std::vector<std::uint32_t> words(8);
  for (unsigned r = 0; r < 8; ++r)
    for (unsigned i = 0; i < 8; ++i) words[r] |= ((i - r) & 15U) << (4 * i);
  c.add(kRows.path + ".weight", Dtype::i32, {8, 1}, words);
}

// By channel the tool does not transpose: words run along the input.
TEST(QuarkInt4, ByChannelRunsAlongTheInput) {
  for (const bool reorder : {false, true}) {
    auto c = quark(kInt4, nullptr, reorder ? "reorder" : "order");
    add_rows(*c);
    c->add(kRows.path + ".weight_scale", Dtype::f32, {8}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
    c->add(kRows.path + ".weight_zero_point", Dtype::i32, {1}, std::vector<std::uint32_t>{0});
    const auto linear = open(c, kRows);
    ASSERT_TRUE(linear.ok()) << linear.error().message();
    EXPECT_EQ(to_string(linear->scheme()), "W: int4 channel");
    const auto found = values_of(*linear);
    for (std::size_t r = 0; r < 8; ++r)
      for (std::size_t i = 0; i < 8; ++i)
        EXPECT_EQ(found[r * 8 + (reorder ? kReordered[i] : i)],
                  (static_cast<float>(i) - static_cast<float>(r)) * static_cast<float>(r + 1))
            << r << " " << i;
  }
}

// uint4 with zero points packed as the codes are.
TEST(QuarkInt4, ZeroPointsByChannel) {
  Json weight = kInt4;
  weight["dtype"] = "uint4";
  weight["symmetric"] = false;
  auto c = quark(weight, nullptr, "order");
  c->add(kRows.path + ".weight", Dtype::i32, {8, 1}, std::vector<std::uint32_t>(8, 0x99999999U));
  c->add(kRows.path + ".weight_scale", Dtype::f32, {8}, std::vector<float>(8, 1.0F));
  c->add(kRows.path + ".weight_zero_point", Dtype::i32, {1}, std::vector<std::uint32_t>{0x76543210U});
  const auto linear = open(c, kRows);
  ASSERT_TRUE(linear.ok()) << linear.error().message();
  const auto found = values_of(*linear);
  for (std::size_t r = 0; r < 8; ++r) EXPECT_EQ(found[r * 8], 9.0F - static_cast<float>(r));
}

// w = q * weight_scale_2[o] * weight_scale, in this order of names.
TEST(QuarkInt4, OverFp8) {
  Json dynamic = kFp8;
  dynamic["is_dynamic"] = true;
  dynamic["qscheme"] = "per_channel";
  for (const bool is_static : {false, true}) {
    auto c = quark(Json::array({kFp8, kInt4}), is_static ? kFp8 : dynamic, "reorder");
    add_rows(*c);
    c->add(kRows.path + ".weight_scale", Dtype::f32, {}, std::vector<float>{0.25F});
    c->add(kRows.path + ".weight_scale_2", Dtype::f32, {8}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
    if (is_static) c->add(kRows.path + ".input_scale", Dtype::f32, {}, std::vector<float>{0.125F});
    const auto linear = open(c, kRows);
    ASSERT_TRUE(linear.ok()) << linear.error().message();
    EXPECT_EQ(to_string(linear->scheme()), is_static ? "W: int4 channel two-level, A: fp8 tensor static"
                                                     : "W: int4 channel two-level, A: fp8 token dynamic");
    EXPECT_EQ(linear->input_scale.has_value(), is_static);
    const auto found = values_of(*linear);
    for (std::size_t r = 0; r < 8; ++r)
      EXPECT_EQ(found[r * 8 + kReordered[3]], (3.0F - static_cast<float>(r)) * static_cast<float>(r + 1) * 0.25F);
    c->add(kRows.path + ".weight_scale", Dtype::f32, {}, std::vector<float>{0.0F});
    expect_refusal(c, kRows, "value.zero_scales", "weight_scale");
    c->remove(kRows.path + ".weight_scale");
    expect_refusal(c, kRows, "quant.incomplete", kRows.path + ".weight_scale");
  }
}

TEST(QuarkMx, SixBitActivations) {
  for (const char* dtype : {"fp6_e2m3", "fp6_e3m2"}) {
    Json weight{{"dtype", "fp4"}, {"qscheme", "per_group"}, {"group_size", 32}, {"scale_format", "e8m0"}};
    Json inputs = weight;
    inputs["dtype"] = dtype;
    inputs["is_dynamic"] = true;
    auto c = quark(weight, inputs, "order");
    const ModuleRef module = module_of(kRows.path, 1, 32);
    c->add_zeros(module.path + ".weight", Dtype::u8, {1, 16});
    c->add(module.path + ".weight_scale", Dtype::u8, {1, 1}, std::vector<std::uint8_t>{127});
    const auto linear = open(c, module);
    ASSERT_TRUE(linear.ok()) << linear.error().message();
    EXPECT_EQ(to_string(linear->scheme()), std::string("W: mxfp4, A: mxfp6 ") + (dtype + 4) + " dynamic");
    inputs["scale_calculation_mode"] = "floor";
    c->mutable_config()["quantization_config"]["global_quant_config"]["input_tensors"] = inputs;
    expect_refusal(c, module, "quant.unsupported", "even rule");
  }
}

// --- fp8 with NVFP4 experts ----------------------------------------------------------------------------------------

TEST(Fp8Nvfp4, ExpertsOfTheToolAndThoseItLeftOut) {
  auto c = fake({{"quant_method", "fp8"},
                 {"activation_scheme", "dynamic"},
                 {"weight_block_size", {128, 128}},
                 {"scale_fmt", "ue8m0"},
                 {"moe_quant_algo", "NVFP4"}});
  const std::vector<std::uint8_t> codes(16, 0x21);
  c->add("a.w1.weight", Dtype::u8, {1, 16}, codes);
  c->add("a.w1.weight_scale", Dtype::f8_e4m3, {1, 2}, std::vector<std::uint8_t>{0x38, 0x40});
  c->add("a.w1.weight_scale_2", Dtype::f32, {}, std::vector<float>{0.5F});
  c->add("a.w1.input_scale", Dtype::f32, {}, std::vector<float>{0.25F});
  c->add("b.w1.weight", Dtype::i8, {1, 16}, codes);
  c->add("b.w1.scale", Dtype::f8_e8m0, {1, 1}, std::vector<std::uint8_t>{128});
  const auto format = make_format(*c);
  ASSERT_TRUE(format.ok()) << format.error().message();
  TensorClaims claims(c);
  const auto tool = test::open_whole(**format, module_of("a.w1", 1, 32), claims);
  ASSERT_TRUE(tool.ok()) << tool.error().message();
  EXPECT_EQ(to_string(tool->scheme()), "W: nvfp4, A: nvfp4 dynamic");
  EXPECT_EQ(tool->input_scale, 4.0F);
  const auto values = values_of(*tool);
  EXPECT_EQ(values[1], 0.5F);
  EXPECT_EQ(values[17], 1.0F);
  const auto own = test::open_whole(**format, module_of("b.w1", 1, 32), claims);
  ASSERT_TRUE(own.ok()) << own.error().message();
  EXPECT_EQ(to_string(own->scheme().weight), "mxfp4");
  EXPECT_EQ(values_of(*own)[1], 2.0F);

  c->remove("a.w1.weight_scale_2");
  expect_refusal(c, module_of("a.w1", 1, 32), "quant.incomplete", "a.w1.weight_scale_2");
}

TEST(Fp8Nvfp4, NoOtherAlgorithm) {
  auto c = fake({{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}, {"moe_quant_algo", "MXFP4"}});
  expect_refusal(c, kRows, "quant.unsupported", "NVFP4");
}

// --- compressed-tensors, stacked -----------------------------------------------------------------------------------

Fake stacked(bool symmetric) {
  const Json weights{
      {"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 8}, {"symmetric", symmetric}};
  auto c = fake({{"quant_method", "compressed-tensors"},
                 {"format", "pack-quantized"},
                 {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}});
  // [experts 2, rows 16 (gate 8, up 8), in 16]: the code of a row is its number, of expert 1 that plus 1, less 16.
  std::vector<std::uint32_t> words;
  std::vector<float> scales;
  for (unsigned e = 0; e < 2; ++e)
    for (unsigned r = 0; r < 16; ++r)
      for (int half = 0; half < 2; ++half) {
        words.push_back(((r + e) & 15U) * 0x11111111U);
        scales.push_back(static_cast<float>(e + 1));
      }
  c->add("experts.gate_up_proj.weight_packed", Dtype::i32, {2, 16, 2}, words);
  c->add("experts.gate_up_proj.weight_scale", Dtype::f32, {2, 16, 2}, scales);
  c->add("experts.down_proj.weight_packed", Dtype::i32, {2, 16, 1}, std::vector<std::uint32_t>(32, 0x99999999U));
  c->add("experts.down_proj.weight_scale", Dtype::f32, {2, 16, 1}, std::vector<float>(32, 1.0F));
  if (symmetric) return c;
  c->add("experts.gate_up_proj.weight_zero_point", Dtype::i32, {2, 2, 2},
         std::vector<std::uint32_t>{0x11111111U, 0x11111111U, 0x22222222U, 0x22222222U, 0x33333333U, 0x33333333U,
                                    0x44444444U, 0x44444444U});
  c->add("experts.down_proj.weight_zero_point", Dtype::i32, {2, 2, 1}, std::vector<std::uint32_t>(4, 0));
  return c;
}
Result<CanonicalExperts> open_stack(const Fake& c, bool interleaved = false) {
  MORACLE_ASSIGN(const auto format, make_format(*c));
  TensorClaims claims(c);
  ExpertsRef ref{.name = "experts", .layouts = {}, .experts = 2, .hidden = 16, .intermediate = 8};
  ref.layouts.push_back({.gate_up = "experts.gate_up_proj", .stacked_down = "experts.down_proj"});
  ref.layouts[0].interleaved = interleaved;
  return test::open_whole(*format, ref, claims);
}

TEST(CtStacked, EachExpertGetsItsRows) {
  for (const bool symmetric : {true, false}) {
    const auto experts = open_stack(stacked(symmetric));
    ASSERT_TRUE(experts.ok()) << experts.error().message();
    for (std::size_t e = 0; e < 2; ++e)
      for (const bool up : {false, true}) {
        const auto found = values_of(up ? experts->experts[e].up : experts->experts[e].gate);
        ASSERT_EQ(found.size(), 128U);
        for (std::size_t r = 0; r < 8; ++r) {
          const std::size_t code = ((up ? 8 + r : r) + e) & 15U;
          const std::size_t zero = symmetric ? 8 : 1 + 2 * e + (up ? 1 : 0);
          const float wanted = (static_cast<float>(code) - static_cast<float>(zero)) * static_cast<float>(e + 1);
          EXPECT_EQ(found[r * 16], wanted) << e << " " << up << " " << r;
          EXPECT_EQ(found[r * 16 + 15], wanted);
        }
      }
  }
}

TEST(CtStacked, Refusals) {
  const auto refused = [](const Fake& c, bool interleaved, const char* code, const char* text) {
    const auto result = open_stack(c, interleaved);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, code) << result.error().message();
    EXPECT_NE(result.error().message().find(text), std::string::npos) << result.error().message();
  };
  refused(stacked(true), true, "quant.unsupported", "alternating rows");
  auto missing = stacked(true);
  missing->remove("experts.gate_up_proj.weight_scale");
  refused(missing, false, "quant.incomplete", "experts.gate_up_proj.weight_scale");
  auto many = stacked(true);
  many->add_zeros("experts.gate_up_proj.weight_packed", Dtype::i32, {3, 16, 2});
  refused(many, false, "experts.count", "2 experts");
  auto flat = stacked(true);
  flat->add_zeros("experts.gate_up_proj.weight_packed", Dtype::i32, {32, 2});
  refused(flat, false, "tensor.shape", "[2, 16, ...]");
  auto wide = stacked(true);
  wide->add_zeros("experts.gate_up_proj.weight_packed", Dtype::i32, {2, 16, 4});
  refused(wide, false, "config.contradiction", "gate_up_proj.weight_packed[0");
}

}  // namespace
}  // namespace moracle
