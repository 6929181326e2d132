// FP8, INT8, MXFP4 and NVFP4 experts of the golden files, stored as each publisher stores them.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "format/format.h"
#include "scheme/canonical.h"
#include "support/memory_checkpoint.h"
#include "support/open_whole.h"
#include "support/safetensors_reader.h"

namespace moracle {
namespace {

using test::GoldenFile;
using test::MemoryCheckpoint;
using test::same_bits;

const std::string kModule = "model.layers.0.mlp.up_proj";

Json section(Json values) {
  return {{"quantization_config", std::move(values)}};
}

Json ct(const std::string& format, Json weights, Json activations) {
  Json group{{"targets", {"Linear"}}, {"weights", std::move(weights)}, {"input_activations", std::move(activations)}};
  return section({{"quant_method", "compressed-tensors"},
                  {"format", format},
                  {"config_groups", {{"group_0", std::move(group)}}},
                  {"ignore", {"lm_head"}}});
}

Json quark(Json weight, Json input) {
  return section({{"quant_method", "quark"},
                  {"export", {{"pack_method", "reorder"}, {"weight_format", "real_quantized"}}},
                  {"global_quant_config", {{"weight", std::move(weight)}, {"input_tensors", std::move(input)}}}});
}

// Where a part comes from. Golden files hold some types as bytes.
struct Part {
  const char* name;    // on disk
  const char* golden;  // after "w13." or "w2."
  std::optional<Dtype> dtype{};
};

struct Case {
  std::string name;
  const char* file;
  Json config;
  std::vector<Part> parts;
  std::string scheme;
  const char* input = nullptr;  // golden tensor of the activation scale
  bool reciprocal = false;      // and whether its reciprocal is wanted
};

// Expert 0: the whole matrix, or of w13 the gate half where gate and up have scales of their own.
void check(const Case& c, const std::string& matrix, std::int64_t in) {
  SCOPED_TRACE(c.name + " " + matrix);
  const GoldenFile file(c.file);
  auto checkpoint = std::make_shared<MemoryCheckpoint>(c.config);
  std::int64_t rows = 256;
  for (const Part& part : c.parts) {
    TensorView view = file.part(matrix + "." + part.golden, 0);
    if (view.shape == std::vector<std::int64_t>{2}) {
      view = TensorView{.name = "", .dtype = view.dtype, .shape = {}, .bytes = view.bytes.first(4), .file = ""};
      rows = 128;
    }
    checkpoint->add(kModule + "." + part.name, part.dtype.value_or(view.dtype), view.shape, view.bytes);
  }
  if (rows == 128)
    for (const Part& part : c.parts) {
      TensorView view = *checkpoint->find(kModule + "." + part.name);
      if (view.shape.empty() || view.shape[0] != 256) continue;
      view.shape[0] = rows;
      const std::vector<std::byte> half(view.bytes.begin(),
                                        view.bytes.begin() + static_cast<std::ptrdiff_t>(view.bytes.size() / 2));
      checkpoint->add(view.name, view.dtype, view.shape, half);
    }
  const auto format = make_format(*checkpoint);
  ASSERT_TRUE(format.ok()) << format.error().message();
  TensorClaims claims(checkpoint);
  const auto linear =
      test::open_whole(**format, ModuleRef{.path = kModule, .fused = {}, .out = rows, .in = in}, claims);
  ASSERT_TRUE(linear.ok()) << linear.error().message();
  EXPECT_TRUE(claims.unclaimed().empty());
  EXPECT_EQ(to_string(linear->scheme()), c.scheme);
  MatrixPanel panel;
  for (const std::int64_t begin : {0, 5, 31}) {
    const auto read = linear->weight->read(begin, 32, panel);
    ASSERT_TRUE(read.ok()) << read.error().message();
    std::vector<float> found(static_cast<std::size_t>((32 - begin) * in));
    dequantize_panel(linear->weight->spec(), panel, found);
    const auto all = file.values<float>("check." + matrix + "_e0_rows0_31_f32");
    EXPECT_TRUE(same_bits(found, std::vector<float>(all.begin() + begin * in, all.end()))) << begin;
  }
  if (c.input == nullptr) {
    EXPECT_FALSE(linear->input_scale.has_value());
    return;
  }
  const float stored = file.values<float>(matrix + "." + c.input)[0];
  ASSERT_TRUE(linear->input_scale.has_value());
  EXPECT_EQ(*linear->input_scale, c.reciprocal ? 1.0F / stored : stored);
}

void check_all(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    check(c, "w13", 256);
    check(c, "w2", 128);
  }
}

const Json kInt8Token{{"num_bits", 8}, {"type", "int"}, {"strategy", "token"}, {"dynamic", true}};
const Json kFp8Token{{"num_bits", 8}, {"type", "float"}, {"strategy", "token"}, {"dynamic", true}};
const Json kQuarkInt8{{"dtype", "int8"}, {"qscheme", "per_channel"}, {"ch_axis", 0}, {"symmetric", true}};
const Json kQuarkInt8Token{{"dtype", "int8"}, {"qscheme", "per_channel"}, {"ch_axis", 1}, {"is_dynamic", true}};
const Json kQuarkFp4{{"dtype", "fp4"}, {"qscheme", "per_group"}, {"group_size", 32}, {"scale_format", "e8m0"}};

TEST(FormatCodesGolden, Int8ChannelToken) {
  const Json channel{{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}};
  const std::string scheme = "W: int8 channel, A: int8 token dynamic";
  check_all({{"compressed-tensors",
              "moe_w8a8_int8_channel_token",
              ct("int-quantized", channel, kInt8Token),
              {{"weight", "weight"}, {"weight_scale", "weight_scale_ct"}},
              scheme},
             {"quark, scales of one dimension",
              "moe_w8a8_int8_channel_token",
              quark(kQuarkInt8, kQuarkInt8Token),
              {{"weight", "weight"}, {"weight_scale", "weight_scale_quark_1d"}},
              scheme},
             {"quark, scales of two dimensions",
              "moe_w8a8_int8_channel_token",
              quark(kQuarkInt8, kQuarkInt8Token),
              {{"weight", "weight"}, {"weight_scale", "weight_scale_ct"}},
              scheme}});
}

TEST(FormatCodesGolden, Fp8) {
  const Json tensor{{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}};
  const Json fixed{{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}, {"dynamic", false}};
  const Json channel{{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}};
  const Json block{{"num_bits", 8}, {"type", "float"}, {"strategy", "block"}, {"block_structure", {128, 128}}};
  const Json group{{"num_bits", 8}, {"type", "float"}, {"strategy", "group"}, {"group_size", 128}, {"dynamic", true}};
  const Part codes{"weight", "weight_u8", Dtype::f8_e4m3};
  const std::vector<Part> fixed_parts{codes, {"weight_scale", "weight_scale"}, {"input_scale", "input_scale"}};
  const std::vector<Part> channel_parts{codes, {"weight_scale", "weight_scale"}};
  const std::string static_scheme = "W: fp8 tensor, A: fp8 tensor static";
  const std::string token_scheme = "W: fp8 channel, A: fp8 token dynamic";
  const std::string block_scheme = "W: fp8 block 128x128, A: fp8 g128 dynamic";
  check_all(
      {{"compressed-tensors tensor", "moe_fp8_tensor_static", ct("float-quantized", tensor, fixed), fixed_parts,
        static_scheme, "input_scale"},
       {"modelopt tensor", "moe_fp8_tensor_static", section({{"quant_method", "modelopt"}, {"quant_algo", "FP8"}}),
        fixed_parts, static_scheme, "input_scale"},
       {"fp8 tensor", "moe_fp8_tensor_static", section({{"quant_method", "fp8"}, {"activation_scheme", "static"}}),
        fixed_parts, static_scheme, "input_scale"},
       {"quark tensor", "moe_fp8_tensor_static",
        quark({{"dtype", "fp8_e4m3"}, {"qscheme", "per_tensor"}},
              {{"dtype", "fp8_e4m3"}, {"qscheme", "per_tensor"}, {"is_dynamic", false}}),
        fixed_parts, static_scheme, "input_scale"},
       {"compressed-tensors channel", "moe_fp8_channel_token", ct("float-quantized", channel, kFp8Token), channel_parts,
        token_scheme},
       {"modelopt channel", "moe_fp8_channel_token",
        section({{"quant_method", "modelopt"}, {"quant_algo", "FP8_PER_CHANNEL_PER_TOKEN"}}), channel_parts,
        token_scheme},
       {"compressed-tensors block",
        "moe_fp8_block128",
        ct("float-quantized", block, group),
        {codes, {"weight_scale", "weight_scale_inv"}},
        block_scheme},
       {"fp8 block",
        "moe_fp8_block128",
        section({{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}, {"weight_block_size", {128, 128}}}),
        {codes, {"weight_scale_inv", "weight_scale_inv"}},
        block_scheme},
       {"modelopt block",
        "moe_fp8_block128",
        section({{"quant_method", "modelopt"}, {"quant_algo", "FP8_PB_WO"}}),
        {codes, {"weight_scale", "weight_scale_inv"}},
        "W: fp8 block 128x128"}});
}

TEST(FormatCodesGolden, Mxfp4) {
  const Json weights{{"num_bits", 4}, {"type", "float"}, {"strategy", "group"}, {"group_size", 32}};
  Json dynamic = weights;
  dynamic["dynamic"] = true;
  Json quark_dynamic = kQuarkFp4;
  quark_dynamic["is_dynamic"] = true;
  quark_dynamic["scale_calculation_mode"] = "even";
  const std::vector<Part> packed{{"weight_packed", "weight"}, {"weight_scale", "weight_scale"}};
  const std::vector<Part> parts{{"weight", "weight"}, {"weight_scale", "weight_scale"}};
  check_all(
      {{"compressed-tensors", "moe_mxfp4_w4a16", ct("mxfp4-pack-quantized", weights, nullptr), packed, "W: mxfp4"},
       {"compressed-tensors, fp8 tokens", "moe_mxfp4_w4a16", ct("mxfp4-pack-quantized", weights, kFp8Token), packed,
        "W: mxfp4, A: fp8 token dynamic"},
       {"compressed-tensors, both", "moe_mxfp4_w4a4", ct("mxfp4-pack-quantized", weights, dynamic), packed,
        "W: mxfp4, A: mxfp4 dynamic"},
       {"quark", "moe_mxfp4_w4a16", quark(kQuarkFp4, nullptr), parts, "W: mxfp4"},
       {"quark, both", "moe_mxfp4_w4a4", quark(kQuarkFp4, quark_dynamic), parts, "W: mxfp4, A: mxfp4 dynamic"},
       {"quark, static fp8",
        "moe_mxfp4_w4a8_static_fp8",
        quark(kQuarkFp4, {{"dtype", "fp8_e4m3"}, {"qscheme", "per_tensor"}, {"is_dynamic", false}}),
        {{"weight", "weight"}, {"weight_scale", "weight_scale"}, {"input_scale", "input_scale"}},
        "W: mxfp4, A: fp8 tensor static",
        "input_scale"}});
}

TEST(FormatCodesGolden, Nvfp4) {
  const Part codes{"weight", "weight"};
  const Part blocks{"weight_scale", "weight_scale_u8", Dtype::f8_e4m3};
  const std::vector<Part> w4a16{codes, blocks, {"weight_scale_2", "weight_scale_2"}};
  std::vector<Part> w4a4 = w4a16;
  w4a4.push_back({"input_scale", "input_scale"});
  const Json level{{"dtype", "fp4"}, {"qscheme", "per_group"}, {"group_size", 16}};
  const Json scale{{"dtype", "fp8_e4m3"}, {"qscheme", "per_tensor"}, {"is_scale_quant", true}};
  Json dynamic = level;
  dynamic["is_dynamic"] = true;
  check_all({{"modelopt W4A16", "moe_nvfp4_w4a16",
              section({{"quant_method", "modelopt"}, {"quant_algo", "W4A16_NVFP4"}}), w4a16, "W: nvfp4"},
             {"modelopt W4A4", "moe_nvfp4_w4a4", section({{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}}), w4a4,
              "W: nvfp4, A: nvfp4 dynamic", "input_scale", true},
             {"modelopt nested", "moe_nvfp4_w4a4",
              section({{"quant_method", "modelopt"}, {"quantization", {{"quant_algo", "NVFP4"}, {"group_size", 16}}}}),
              w4a4, "W: nvfp4, A: nvfp4 dynamic", "input_scale", true},
             {"quark W4A4",
              "moe_nvfp4_w4a4",
              quark(Json::array({level, scale}), Json::array({dynamic, scale})),
              {codes, blocks, {"weight_scale_2", "weight_scale_2"}, {"input_scale_2", "input_scale"}},
              "W: nvfp4, A: nvfp4 dynamic",
              "input_scale",
              true}});
}

// Both spellings of the same weights: a global scale that multiplies, and its reciprocal that divides.
TEST(FormatCodesGolden, Nvfp4NamesOfBothPublishers) {
  const GoldenFile file("nvfp4");
  const Json weights{{"num_bits", 4}, {"type", "float"}, {"strategy", "tensor_group"}, {"group_size", 16}};
  Json inputs = weights;
  inputs["dynamic"] = "local";
  auto checkpoint = std::make_shared<MemoryCheckpoint>(ct("nvfp4-pack-quantized", weights, inputs));
  for (const char* part : {"weight_packed", "weight_scale", "weight_global_scale", "input_global_scale"}) {
    const TensorView& tensor = file.at(std::string("ct.") + part);
    const bool scale = std::string(part) == "weight_scale";
    checkpoint->add(kModule + "." + part, scale ? Dtype::f8_e4m3 : tensor.dtype, tensor.shape, tensor.bytes);
  }
  const auto format = make_format(*checkpoint);
  ASSERT_TRUE(format.ok()) << format.error().message();
  TensorClaims claims(checkpoint);
  const auto linear =
      test::open_whole(**format, ModuleRef{.path = kModule, .fused = {}, .out = 128, .in = 256}, claims);
  ASSERT_TRUE(linear.ok()) << linear.error().message();
  EXPECT_EQ(to_string(linear->scheme()), "W: nvfp4, A: nvfp4 dynamic");
  EXPECT_EQ(linear->weight->spec().global_scale, 1.0F / file.values<float>("ct.weight_global_scale")[0]);
  EXPECT_EQ(linear->input_scale, file.values<float>("ct.input_global_scale")[0]);
  const auto values = dequantize(*linear->weight);
  ASSERT_TRUE(values.ok()) << values.error().message();
  const auto wanted = file.values<float>("w_dequant_f32");
  ASSERT_EQ(values->size(), wanted.size());
  // The golden weights were scaled by the global scale that multiplies; its reciprocal is one rounding away, and the
  // product another.
  for (std::size_t i = 0; i < wanted.size(); ++i)
    ASSERT_NEAR((*values)[i], wanted[i], 4.0 * std::ldexp(1.0, -24) * std::fabs(wanted[i])) << i;
}

// Experts stacked in blocks, gate and up rows alternating: the gate is every second row.
TEST(FormatCodesGolden, NativeBlocks) {
  const GoldenFile file("moe_mxfp4_w4a16");
  auto checkpoint = std::make_shared<MemoryCheckpoint>(section({{"quant_method", "mxfp4"}}));
  const std::string experts = "model.layers.0.mlp.experts";
  const auto add = [&](const std::string& name, const std::string& golden, std::vector<std::int64_t> shape) {
    checkpoint->add(experts + name, Dtype::u8, std::move(shape), file.at(golden).bytes);
  };
  add(".gate_up_proj_blocks", "w13.weight", {8, 256, 8, 16});
  add(".gate_up_proj_scales", "w13.weight_scale", {8, 256, 8});
  add(".down_proj_blocks", "w2.weight", {8, 256, 4, 16});
  add(".down_proj_scales", "w2.weight_scale", {8, 256, 4});
  checkpoint->add_zeros(experts + ".gate_up_proj_bias", Dtype::bf16, {8, 256});
  checkpoint->add_zeros(experts + ".down_proj_bias", Dtype::bf16, {8, 256});
  const auto format = make_format(*checkpoint);
  ASSERT_TRUE(format.ok()) << format.error().message();
  TensorClaims claims(checkpoint);
  ExpertsRef ref{.name = experts, .layouts = {}, .experts = 8, .hidden = 256, .intermediate = 128};
  ref.layouts.push_back({.gate_up = experts + ".gate_up_proj",
                         .stacked_down = experts + ".down_proj",
                         .interleaved = true,
                         .transposed = true});
  const auto opened = test::open_whole(**format, ref, claims);
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  EXPECT_TRUE(claims.unclaimed().empty());
  EXPECT_TRUE(opened->bias);
  const auto wanted = file.values<float>("check.w13_e0_rows0_31_f32");
  for (const auto& [linear, first] :
       {std::pair{&opened->experts[0].gate, std::size_t{0}}, std::pair{&opened->experts[0].up, std::size_t{1}}}) {
    const auto values = dequantize(*linear->weight);
    ASSERT_TRUE(values.ok()) << values.error().message();
    for (std::size_t r = 0; r < 16; ++r)
      for (std::size_t k = 0; k < 256; ++k)
        ASSERT_EQ((*values)[r * 256 + k], wanted[(2 * r + first) * 256 + k]) << r << " " << k;
  }
  auto down = dequantize(*opened->experts[0].down.weight);
  ASSERT_TRUE(down.ok());
  down->resize(32 * 128);
  EXPECT_TRUE(same_bits(*down, file.values<float>("check.w2_e0_rows0_31_f32")));
}

}  // namespace
}  // namespace moracle
