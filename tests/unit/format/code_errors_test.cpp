// What is refused of codes in bytes, by which rule, and that the message names what a person needs.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "format/format.h"
#include "support/memory_checkpoint.h"
#include "support/open_whole.h"

namespace moracle {
namespace {

using test::MemoryCheckpoint;
using Fake = std::shared_ptr<MemoryCheckpoint>;
using Change = std::function<void(MemoryCheckpoint&)>;

constexpr std::int64_t kOut = 32;
constexpr std::int64_t kIn = 64;
const std::string kModule = "model.layers.0.self_attn.q_proj";
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Fake fake(Json section) {
  return std::make_shared<MemoryCheckpoint>(Json{{"quantization_config", std::move(section)}});
}
void add_floats(MemoryCheckpoint& c, const std::string& part, const std::vector<std::int64_t>& shape,
                float value = 0.5F) {
  std::int64_t count = 1;
  for (const std::int64_t dim : shape) count *= dim;
  c.add(kModule + "." + part, Dtype::f32, shape, std::vector<float>(static_cast<std::size_t>(count), value));
}
void add_bytes(MemoryCheckpoint& c, const std::string& part, Dtype dtype, const std::vector<std::int64_t>& shape,
               std::uint8_t value) {
  std::int64_t count = 1;
  for (const std::int64_t dim : shape) count *= dim;
  c.add(kModule + "." + part, dtype, shape, std::vector<std::uint8_t>(static_cast<std::size_t>(count), value));
}

Fake ct(const std::string& format, const Json& weights, const Json& inputs) {
  return fake({{"quant_method", "compressed-tensors"},
               {"format", format},
               {"config_groups",
                {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}, {"input_activations", inputs}}}}}});
}
Fake ct_int8() {
  auto c = ct("int-quantized", {{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}},
              {{"num_bits", 8}, {"type", "int"}, {"strategy", "token"}, {"dynamic", true}});
  add_bytes(*c, "weight", Dtype::i8, {kOut, kIn}, 3);
  add_floats(*c, "weight_scale", {kOut, 1});
  return c;
}
Fake ct_fp8() {
  auto c = ct("float-quantized", {{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}},
              {{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}});
  add_bytes(*c, "weight", Dtype::f8_e4m3, {kOut, kIn}, 0x38);
  add_floats(*c, "weight_scale", {1});
  add_floats(*c, "input_scale", {1});
  return c;
}
Fake ct_nvfp4() {
  const Json weights{{"num_bits", 4}, {"type", "float"}, {"strategy", "tensor_group"}, {"group_size", 16}};
  Json inputs = weights;
  inputs["dynamic"] = "local";
  auto c = ct("nvfp4-pack-quantized", weights, inputs);
  add_bytes(*c, "weight_packed", Dtype::u8, {kOut, kIn / 2}, 0x21);
  add_bytes(*c, "weight_scale", Dtype::f8_e4m3, {kOut, kIn / 16}, 0x38);
  add_floats(*c, "weight_global_scale", {1});
  add_floats(*c, "input_global_scale", {1});
  return c;
}
Fake ct_mxfp4() {
  auto c = ct("mxfp4-pack-quantized", {{"num_bits", 4}, {"type", "float"}, {"strategy", "group"}, {"group_size", 32}},
              nullptr);
  add_bytes(*c, "weight_packed", Dtype::u8, {kOut, kIn / 2}, 0x21);
  add_bytes(*c, "weight_scale", Dtype::u8, {kOut, kIn / 32}, 127);
  return c;
}
Fake ct_int4_bytes() {
  auto c = ct("int-quantized", {{"num_bits", 4}, {"type", "int"}, {"strategy", "channel"}},
              {{"num_bits", 8}, {"type", "int"}, {"strategy", "token"}, {"dynamic", true}});
  add_bytes(*c, "weight", Dtype::i8, {kOut, kIn}, 0xF8);
  add_floats(*c, "weight_scale", {kOut, 1});
  return c;
}
Fake quark(const Json& weight, const Json& inputs) {
  return fake({{"quant_method", "quark"},
               {"export", {{"pack_method", "reorder"}, {"weight_format", "real_quantized"}}},
               {"global_quant_config", {{"weight", weight}, {"input_tensors", inputs}}}});
}
Fake quark_int8() {
  auto c = quark({{"dtype", "int8"}, {"qscheme", "per_channel"}, {"ch_axis", 0}, {"symmetric", true}},
                 {{"dtype", "int8"}, {"qscheme", "per_channel"}, {"ch_axis", 1}, {"is_dynamic", true}});
  add_bytes(*c, "weight", Dtype::i8, {kOut, kIn}, 0x80);
  add_floats(*c, "weight_scale", {kOut});
  add_bytes(*c, "weight_zero_point", Dtype::i8, {kOut}, 0);
  return c;
}
Fake quark_mxfp4() {
  auto c = quark({{"dtype", "fp4"}, {"qscheme", "per_group"}, {"group_size", 32}, {"scale_format", "e8m0"}},
                 {{"dtype", "fp8_e4m3"}, {"qscheme", "per_tensor"}, {"is_dynamic", false}});
  add_bytes(*c, "weight", Dtype::u8, {kOut, kIn / 2}, 0x21);
  add_bytes(*c, "weight_scale", Dtype::u8, {kOut, kIn / 32}, 127);
  add_floats(*c, "input_scale", {});
  return c;
}
Fake quark_int4() {
  auto c = quark({{"dtype", "int4"}, {"qscheme", "per_group"}, {"group_size", 32}, {"ch_axis", 1}}, nullptr);
  c->add_zeros(kModule + ".weight", Dtype::i32, {kIn, kOut / 8});
  add_floats(*c, "weight_scale", {kIn / 32, kOut});
  c->add_zeros(kModule + ".weight_zero_point", Dtype::i32, {kIn / 32, kOut / 8});
  return c;
}
Fake modelopt() {
  auto c = fake({{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}, {"group_size", 16}});
  add_bytes(*c, "weight", Dtype::u8, {kOut, kIn / 2}, 0x21);
  add_bytes(*c, "weight_scale", Dtype::f8_e4m3, {kOut, kIn / 16}, 0x38);
  add_floats(*c, "weight_scale_2", {});
  add_floats(*c, "input_scale", {});
  return c;
}
Fake mixed() {
  auto c = modelopt();
  c->mutable_config()["quantization_config"]["quant_algo"] = "MIXED_PRECISION";
  c->mutable_config()["quantization_config"]["quantized_layers"] = {
      {kModule, {{"quant_algo", "NVFP4"}, {"group_size", 16}}}};
  return c;
}
Fake fp8() {
  auto c = fake({{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}, {"weight_block_size", {24, 40}}});
  add_bytes(*c, "weight", Dtype::f8_e4m3, {kOut, kIn}, 0x38);
  add_floats(*c, "weight_scale_inv", {2, 2});
  return c;
}
Fake fp8_static() {
  auto c = fake({{"quant_method", "fp8"}, {"activation_scheme", "static"}});
  add_bytes(*c, "weight", Dtype::f8_e4m3, {kOut, kIn}, 0x38);
  add_floats(*c, "weight_scale", {});
  add_floats(*c, "input_scale", {});
  return c;
}

Change set(const std::string& key, Json value) {
  return [key, value](MemoryCheckpoint& c) { c.mutable_config()["quantization_config"][key] = value; };
}
// Sets one value below the section, by JSON pointer.
Change at(const std::string& pointer, Json value) {
  return [=](MemoryCheckpoint& c) { c.mutable_config()[Json::json_pointer("/quantization_config" + pointer)] = value; };
}
Change weights(const std::string& key, Json value) {
  return at("/config_groups/group_0/weights/" + key, std::move(value));
}
Change inputs(const std::string& key, Json value) {
  return at("/config_groups/group_0/input_activations/" + key, std::move(value));
}
Change layer(const std::string& key, Json value) {
  return at("/global_quant_config/" + key, std::move(value));
}
Change drop(const std::string& part) {
  return [part](MemoryCheckpoint& c) { c.remove(kModule + "." + part); };
}
Change floats(const std::string& part, std::vector<std::int64_t> shape, float value = 0.5F) {
  return [=](MemoryCheckpoint& c) { add_floats(c, part, shape, value); };
}
Change bytes(const std::string& part, Dtype dtype, std::vector<std::int64_t> shape, std::uint8_t value) {
  return [=](MemoryCheckpoint& c) { add_bytes(c, part, dtype, shape, value); };
}
template <class T>
Change poke(const std::string& part, std::size_t index, T value) {
  return [=](MemoryCheckpoint& c) { c.poke(kModule + "." + part, index, value); };
}
Change plain() {
  return [](MemoryCheckpoint& c) { c.add_zeros(kModule + ".weight", Dtype::bf16, {kOut, kIn}); };
}

struct Case {
  const char* name;
  Fake (*make)();
  Change change;
  const char* code;
  std::vector<std::string> texts;  // all in the message
};

Result<> open_and_read(const Fake& checkpoint) {
  MORACLE_ASSIGN(const auto format, make_format(*checkpoint));
  TensorClaims claims(checkpoint);
  const ModuleRef module{.path = kModule, .fused = {"model.layers.0.self_attn.qkv_proj"}, .out = kOut, .in = kIn};
  MORACLE_TRY(format->scheme_of(module, claims));
  MORACLE_ASSIGN(const CanonicalLinear linear, test::open_whole(*format, module, claims));
  MatrixPanel panel;
  return linear.weight->read(0, kOut, panel);
}

void check(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const auto untouched = open_and_read(c.make());
    ASSERT_TRUE(untouched.ok()) << untouched.error().message();
    const auto checkpoint = c.make();
    c.change(*checkpoint);
    const auto result = open_and_read(checkpoint);
    if (result.ok()) {
      ADD_FAILURE() << "accepted";
      continue;
    }
    EXPECT_EQ(result.error().code, c.code) << result.error().message();
    for (const std::string& text : c.texts)
      EXPECT_NE(result.error().message().find(text), std::string::npos)
          << result.error().message() << "\nlacks " << text;
  }
}

TEST(CodeErrors, CompressedTensorsConfigs) {
  const char* refused = "quant.unsupported";
  check({
      {"int8 as 2 bits", ct_int8, weights("num_bits", 2), refused, {"int-quantized", "int2 channel"}},
      {"int8 by blocks", ct_int8, weights("strategy", "block"), refused, {"int8 block"}},
      {"int8 asymmetric activations", ct_int8, inputs("symmetric", false), refused, {"token dynamic asymmetric"}},
      {"int8 activations of a batch", ct_int8, inputs("strategy", "tensor"), refused, {"int8 tensor dynamic"}},
      {"int8 activations of 4 bits", ct_int8, inputs("num_bits", 4), refused, {"int4 token"}},
      {"int8 activations of no type", ct_int8, inputs("type", "complex"), refused, {"complex8"}},
      {"int8 dynamic weights", ct_int8, weights("dynamic", true), refused, {"channel dynamic"}},
      {"int8 an unknown key", ct_int8, weights("rotation", "hadamard"), refused, {"weights/rotation", "hadamard"}},
      {"int8 as float", ct_int8, weights("type", "float"), refused, {"float8 channel"}},
      {"fp8 asymmetric", ct_fp8, weights("symmetric", false), refused, {"float8 tensor asymmetric"}},
      {"fp8 blocks of one number",
       ct_fp8,
       weights("block_structure", Json::array({128})),
       "config.type",
       {"weights/block_structure", "two positive numbers"}},
      {"fp8 blocks of zero rows",
       ct_fp8,
       weights("block_structure", Json::array({0, 128})),
       "config.type",
       {"block_structure"}},
      {"fp8 int8 activations", ct_fp8, inputs("type", "int"), refused, {"activations int8 tensor"}},
      {"fp8 group without a size", ct_fp8, weights("strategy", "group"), refused, {"float8 group"}},
      {"nvfp4 groups of 32", ct_nvfp4, weights("group_size", 32), refused, {"float4 tensor_group 32"}},
      {"nvfp4 static activations", ct_nvfp4, inputs("dynamic", false), refused, {"nvfp4"}},
      {"nvfp4 fp8 activations", ct_nvfp4, inputs("num_bits", 8), refused, {"nvfp4"}},
      {"mxfp4 groups of 16", ct_mxfp4, weights("group_size", 16), refused, {"float4 group 16"}},
      {"mxfp4 of integers", ct_mxfp4, weights("type", "int"), refused, {"int4 group 32"}},
  });
}

TEST(CodeErrors, CompressedTensorsTensors) {
  check({
      {"int8 no scale", ct_int8, drop("weight_scale"), "quant.incomplete", {kModule + ".weight_scale"}},
      {"int8 stored plainly", ct_int8, plain(), "quant.incomplete", {".weight", "group_0", "ignore list"}},
      {"int8 ignored but stored", ct_int8, set("ignore", Json{kModule}), "config.contradiction", {"I8"}},
      {"int8 transposed", ct_int8, bytes("weight", Dtype::i8, {kIn, kOut}, 1), "tensor.shape", {"[32, 64]"}},
      {"int8 as U8", ct_int8, bytes("weight", Dtype::u8, {kOut, kIn}, 1), "tensor.dtype", {"I8", "U8"}},
      {"int8 short scale", ct_int8, floats("weight_scale", {kOut - 1, 1}), "tensor.shape", {"[32, 1]", "[31, 1]"}},
      {"int8 integer scale",
       ct_int8,
       bytes("weight_scale", Dtype::u8, {kOut, 1}, 1),
       "tensor.dtype",
       {"BF16 or F16 or F32"}},
      {"int8 NaN scale", ct_int8, poke("weight_scale", 7, kNaN), "value.nan", {"element 7", "NaN"}},
      {"int8 infinite scale", ct_int8, poke("weight_scale", 31, kInfinity), "value.nan", {"element 31", "infinity"}},
      {"int8 zero scales", ct_int8, floats("weight_scale", {kOut, 1}, 0.0F), "value.zero_scales", {"never written"}},
      {"int8 zero points unasked",
       ct_int8,
       bytes("weight_zero_point", Dtype::i8, {kOut, 1}, 2),
       "config.contradiction",
       {"symmetric", "2 for row 0"}},
      {"int8 zero points absent", ct_int8, weights("symmetric", false), "quant.incomplete", {"weight_zero_point"}},
      {"int4 out of range", ct_int4_bytes, poke<std::int8_t>("weight", 65, 8), "value.range", {"row 1, column 1", "8"}},
      {"int4 below range", ct_int4_bytes, poke<std::int8_t>("weight", 0, -9), "value.range", {"-8 to 7", "-9"}},
      {"fp8 NaN code", ct_fp8, poke<std::uint8_t>("weight", 130, 0xFF), "value.nan", {"row 2, column 2", "NaN"}},
      {"fp8 zero scale", ct_fp8, floats("weight_scale", {1}, 0.0F), "value.zero_scales", {"weight_scale"}},
      {"fp8 channels said, tensor stored",
       ct_fp8,
       weights("strategy", "channel"),
       "tensor.shape",
       {"weight_scale", "[32, 1]"}},
      {"fp8 no input scale", ct_fp8, drop("input_scale"), "quant.incomplete", {"input_scale"}},
      {"fp8 NaN input scale", ct_fp8, floats("input_scale", {1}, kNaN), "value.nan", {"input_scale"}},
      {"fp8 zero input scale", ct_fp8, floats("input_scale", {1}, 0.0F), "value.zero_scales", {"positive"}},
      {"fp8 negative input scale", ct_fp8, floats("input_scale", {1}, -1.0F), "value.range", {"-1"}},
      {"fp8 two input scales", ct_fp8, floats("input_scale", {2}), "tensor.shape", {"input_scale", "[2]"}},
      {"fp8 input zero point",
       ct_fp8,
       bytes("input_zero_point", Dtype::i8, {1}, 1),
       "quant.unsupported",
       {"input_zero_point", "symmetric"}},
      {"nvfp4 no global scale", ct_nvfp4, drop("weight_global_scale"), "quant.incomplete", {"weight_global_scale"}},
      {"nvfp4 zero global scale",
       ct_nvfp4,
       floats("weight_global_scale", {1}, 0.0F),
       "value.zero_scales",
       {"weight_global_scale"}},
      {"nvfp4 global scale without reciprocal",
       ct_nvfp4,
       floats("weight_global_scale", {1}, 1e-39F),
       "value.range",
       {"weight_global_scale"}},
      {"nvfp4 infinite global scale",
       ct_nvfp4,
       floats("weight_global_scale", {1}, kInfinity),
       "value.nan",
       {"infinity"}},
      {"nvfp4 no input scale", ct_nvfp4, drop("input_global_scale"), "quant.incomplete", {"input_global_scale"}},
      {"nvfp4 NaN block scale", ct_nvfp4, poke<std::uint8_t>("weight_scale", 9, 0x7F), "value.nan", {"element 9"}},
      {"nvfp4 zero block scales",
       ct_nvfp4,
       bytes("weight_scale", Dtype::f8_e4m3, {kOut, kIn / 16}, 0),
       "value.zero_scales",
       {"weight_scale"}},
      {"nvfp4 scales of 32",
       ct_nvfp4,
       bytes("weight_scale", Dtype::f8_e4m3, {kOut, kIn / 32}, 0x38),
       "quant.group",
       {"4 groups of 16 over 64 inputs", "2 groups"}},
      {"nvfp4 scales as bytes",
       ct_nvfp4,
       bytes("weight_scale", Dtype::u8, {kOut, kIn / 16}, 0x38),
       "tensor.dtype",
       {"F8_E4M3", "U8"}},
      {"nvfp4 plain beside codes", ct_nvfp4, plain(), "quant.ambiguous", {"weight_packed"}},
      {"mxfp4 NaN scale", ct_mxfp4, poke<std::uint8_t>("weight_scale", 5, 255), "value.nan", {"element 5"}},
      {"mxfp4 unpacked", ct_mxfp4, bytes("weight_packed", Dtype::u8, {kOut, kIn}, 1), "tensor.shape", {"[32, 32]"}},
      {"mxfp4 no scale", ct_mxfp4, drop("weight_scale"), "quant.incomplete", {"weight_scale"}},
      {"mxfp4 scale no power of two",
       ct_mxfp4,
       floats("weight_scale", {kOut, kIn / 32}, 0.75F),
       "value.range",
       {"power of two", "0.75"}},
  });
}

TEST(CodeErrors, Quark) {
  const char* refused = "quant.unsupported";
  const Json fp8{{"dtype", "fp8_e4m3"}, {"qscheme", "per_tensor"}};
  check({
      {"no export", quark_int8, set("export", nullptr), "config.missing", {"/quantization_config/export"}},
      {"fake quantized", quark_int8, at("/export/weight_format", "fake_quantized"), refused, {"real_quantized"}},
      {"no global config", quark_int8, set("global_quant_config", nullptr), "config.missing", {"global_quant_config"}},
      {"rotation", quark_int8, set("algo_config", Json::array({{{"name", "rotation"}}})), refused, {"rotation"}},
      {"softmax", quark_int8, set("softmax_quant_spec", fp8), refused, {"softmax"}},
      {"outputs", quark_int8, layer("output_tensors", fp8), refused, {"output_tensors", "fp8_e4m3 per_tensor"}},
      {"bias", quark_int8, layer("bias", fp8), refused, {"global_quant_config/bias"}},
      {"2 bits", quark_int8, layer("weight/dtype", "int2"), refused, {"weight", "int2 per_channel"}},
      {"3 bits", quark_int8, layer("weight/dtype", "int3"), refused, {"int3"}},
      {"dtype of a wrong type",
       quark_int8,
       layer("weight/dtype", 8),
       "config.type",
       {"global_quant_config/weight/dtype"}},
      {"input channels", quark_int8, layer("weight/ch_axis", 1), refused, {"weight"}},
      {"asymmetric activations", quark_int8, layer("input_tensors/symmetric", false), refused, {"asymmetric"}},
      {"static channels", quark_int8, layer("input_tensors/is_dynamic", false), refused, {"int8 per_channel"}},
      {"an unknown key", quark_int8, layer("weight/rotate", 7), refused, {"weight/rotate"}},
      {"three levels", quark_int8, layer("weight", Json::array({fp8, fp8, fp8})), refused, {"one or two levels", "3"}},
      {"fp8 under int4",
       quark_int8,
       layer("weight", Json::array({fp8, {{"dtype", "int4"}, {"qscheme", "per_channel"}}})),
       refused,
       {"input_tensors", "fp8_e4m3 with int4 under fp8_e4m3", "int8 per_channel"}},
      {"fp8 channels under int4",
       quark_int8,
       layer("weight", Json::array({{{"dtype", "fp8_e4m3"}, {"qscheme", "per_channel"}},
                                    {{"dtype", "int4"}, {"qscheme", "per_channel"}}})),
       refused,
       {"int4 per channel under fp8_e4m3 per tensor", "fp8_e4m3 per_channel under int4 per_channel"}},
      {"no weights", quark_int8, layer("weight", nullptr), refused, {"none, with quantized inputs"}},
      {"not zero", quark_int8, poke<std::int8_t>("weight_zero_point", 3, -1), "config.contradiction", {"-1 for row 3"}},
      {"zero points of wrong shape",
       quark_int8,
       bytes("weight_zero_point", Dtype::i8, {kOut + 1}, 0),
       "tensor.shape",
       {"weight_zero_point"}},
      {"float zero points", quark_int8, floats("weight_zero_point", {kOut}, 0.0F), "tensor.dtype", {"I8 or I32"}},
      {"no scale", quark_int8, drop("weight_scale"), "quant.incomplete", {"weight_scale"}},
      {"stored plainly", quark_int8, plain(), "quant.incomplete", {"global_quant_config", "must exclude"}},
      {"excluded but stored", quark_int8, set("exclude", Json{kModule}), "config.contradiction", {"I8"}},
      {"broken exclude", quark_int8, set("exclude", Json{"re:("}), "config.pattern", {"\"(\""}},
      {"layer config of a wrong type",
       quark_int8,
       set("layer_quant_config", Json{{"*q_proj", 3}}),
       "config.type",
       {"layer_quant_config/*q_proj"}},
      {"layer config of 2 bits",
       quark_int8,
       set("layer_quant_config", Json{{"*k_proj", {{"weight", {{"dtype", "uint2"}, {"qscheme", "per_group"}}}}}}),
       refused,
       {"layer_quant_config/*k_proj/weight", "uint2"}},
      {"mxfp4 scales of floats",
       quark_mxfp4,
       layer("weight/scale_format", "float"),
       refused,
       {"fp4 per_group 32 float"}},
      {"mxfp4 floor rule",
       quark_mxfp4,
       layer("input_tensors", Json{{"dtype", "fp4"},
                                   {"qscheme", "per_group"},
                                   {"group_size", 32},
                                   {"scale_format", "e8m0"},
                                   {"is_dynamic", true},
                                   {"scale_calculation_mode", "floor"}}),
       refused,
       {"even rule"}},
      {"mxfp4 no input scale", quark_mxfp4, drop("input_scale"), "quant.incomplete", {"input_scale"}},
      {"mxfp4 zero input scale", quark_mxfp4, floats("input_scale", {}, 0.0F), "value.zero_scales", {"input_scale"}},
      {"mxfp4 NaN scale", quark_mxfp4, poke<std::uint8_t>("weight_scale", 63, 255), "value.nan", {"element 63"}},
      {"int4 channels", quark_int4, layer("weight/qscheme", "per_channel"), refused, {"int4 per_channel"}},
      {"int4 with inputs", quark_int4, layer("input_tensors", fp8), refused, {"input_tensors"}},
      {"int4 other packing", quark_int4, at("/export/pack_method", "rows"), refused, {"reorder or order", "rows"}},
      {"int4 along the input",
       quark_int4,
       [](MemoryCheckpoint& c) { c.add_zeros(kModule + ".weight", Dtype::i32, {kOut, kIn / 8}); },
       "tensor.shape",
       {"[64, 4]"}},
      {"int4 zero point",
       quark_int4,
       poke<std::uint32_t>("weight_zero_point", 0, 0x10U),
       "config.contradiction",
       {"weight_zero_point", "zero points of 8"}},
      {"int4 group", quark_int4, layer("weight/group_size", 64), "quant.group", {"1 groups of 64", "2 groups"}},
      {"int4 asymmetric without zeros",
       quark_int4,
       [](MemoryCheckpoint& c) {
         layer("weight/symmetric", false)(c);
         drop("weight_zero_point")(c);
       },
       "quant.incomplete",
       {"weight_zero_point"}},
  });
}

TEST(CodeErrors, ModelOpt) {
  const char* refused = "quant.unsupported";
  check({
      {"no algorithm", modelopt, set("quant_algo", nullptr), "config.missing", {"quant_algo", "W4A16_NVFP4"}},
      {"unknown algorithm", modelopt, set("quant_algo", "INT4_AWQ"), refused, {"MIXED_PRECISION", "INT4_AWQ"}},
      {"groups of 32", modelopt, set("group_size", 32), refused, {"group_size", "16", "32"}},
      {"nested of a wrong type", modelopt, set("quantization", 3), "config.type", {"quantization"}},
      {"no second level", modelopt, drop("weight_scale_2"), "quant.incomplete", {"weight_scale_2"}},
      {"zero second level", modelopt, floats("weight_scale_2", {}, 0.0F), "value.zero_scales", {"weight_scale_2"}},
      {"NaN second level", modelopt, floats("weight_scale_2", {}, kNaN), "value.nan", {"weight_scale_2"}},
      {"no input scale", modelopt, drop("input_scale"), "quant.incomplete", {"input_scale"}},
      {"infinite input scale", modelopt, floats("input_scale", {}, kInfinity), "value.nan", {"input_scale"}},
      {"NaN block scale", modelopt, poke<std::uint8_t>("weight_scale", 3, 0xFF), "value.nan", {"element 3"}},
      {"scales of 32",
       modelopt,
       bytes("weight_scale", Dtype::f8_e4m3, {kOut, kIn / 32}, 0x38),
       "quant.group",
       {"4 groups of 16"}},
      {"stored plainly", modelopt, plain(), "quant.incomplete", {"quant_algo", "must exclude"}},
      {"excluded but stored",
       modelopt,
       set("exclude_modules", Json{"model.layers.0.self_attn*"}),
       "config.contradiction",
       {"U8"}},
      {"excludes of a wrong type", modelopt, set("ignore", Json{{"a", "b"}}), "config.type", {"ignore"}},
      {"mixed without layers", mixed, set("quantized_layers", nullptr), "config.missing", {"quantized_layers"}},
      {"mixed, not listed but stored",
       mixed,
       set("quantized_layers", Json{{"lm_head", {{"quant_algo", "FP8"}}}}),
       "config.contradiction",
       {"U8"}},
      {"mixed, unknown algorithm",
       mixed,
       set("quantized_layers", Json{{kModule, {{"quant_algo", "W2A2"}}}}),
       refused,
       {"quantized_layers", "W2A2"}},
      {"mixed, another algorithm",
       mixed,
       set("quantized_layers", Json{{kModule, {{"quant_algo", "FP8"}}}}),
       "tensor.dtype",
       {"F8_E4M3", "U8"}},
  });
}

TEST(CodeErrors, Fp8) {
  const char* refused = "quant.unsupported";
  check({
      {"unknown scheme", fp8, set("activation_scheme", "mixed"), refused, {"static or dynamic", "mixed"}},
      {"e5m2", fp8, set("fmt", "e5m2"), refused, {"fmt", "e5m2"}},
      {"unknown scales", fp8, set("scale_fmt", "int8"), refused, {"scale_fmt"}},
      {"another algorithm for experts", fp8, set("moe_quant_algo", "MXFP4"), refused, {"moe_quant_algo"}},
      {"static blocks", fp8, set("activation_scheme", "static"), "config.contradiction", {"blocks"}},
      {"blocks of one number", fp8, set("weight_block_size", Json::array({128})), "config.range", {"[128]"}},
      {"blocks of text", fp8, set("weight_block_size", "128"), "config.range", {"weight_block_size"}},
      {"negative blocks", fp8, set("weight_block_size", Json::array({-1, 128})), "config.range", {"-1"}},
      {"blocks of another size",
       fp8,
       set("weight_block_size", Json::array({24, 16})),
       "quant.group",
       {"4 groups of 16 over 64 inputs", "2 groups"}},
      {"too few block rows", fp8, floats("weight_scale_inv", {1, 2}), "tensor.shape", {"[2, 2]", "[1, 2]"}},
      {"NaN block", fp8, poke("weight_scale_inv", 3, kNaN), "value.nan", {"element 3"}},
      {"no scales", fp8, drop("weight_scale_inv"), "quant.incomplete", {"weight_scale_inv"}},
      {"NaN code", fp8, poke<std::uint8_t>("weight", 64, 0x7F), "value.nan", {"row 1, column 0"}},
      {"ignored and without scales",
       fp8,
       [](MemoryCheckpoint& c) {
         set("ignored_layers", Json{kModule})(c);
         drop("weight_scale_inv")(c);
       },
       "config.contradiction",
       {"F8_E4M3"}},
      {"list of a wrong type", fp8, set("ignored_layers", "x"), "config.type", {"ignored_layers"}},
      {"static without scale", fp8_static, drop("input_scale"), "quant.incomplete", {"input_scale"}},
      {"scale of rows", fp8_static, floats("weight_scale", {3}), "tensor.shape", {"weight_scale", "one a row"}},
      {"zero scale", fp8_static, floats("weight_scale", {}, 0.0F), "value.zero_scales", {"weight_scale"}},
  });
}

}  // namespace
}  // namespace moracle
