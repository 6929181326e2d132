// What is refused, by which rule, and that the message names what a person needs.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "format/format.h"
#include "support/memory_checkpoint.h"
#include "support/open_whole.h"

namespace moracle {
namespace {

using test::MemoryCheckpoint;
using Change = std::function<void(MemoryCheckpoint&)>;

constexpr std::int64_t kOut = 32;
constexpr std::int64_t kIn = 64;
const std::string kModule = "model.layers.0.self_attn.q_proj";

Change set(const std::string& key, Json value) {
  return [key, value](MemoryCheckpoint& c) { c.mutable_config()["quantization_config"][key] = value; };
}
Change drop_key(const std::string& key) {
  return [key](MemoryCheckpoint& c) { c.mutable_config()["quantization_config"].erase(key); };
}
Change drop(const std::string& part) {
  return [part](MemoryCheckpoint& c) { c.remove(kModule + "." + part); };
}
Change replace(const std::string& part, Dtype dtype, std::vector<std::int64_t> shape) {
  return [=](MemoryCheckpoint& c) { c.add_zeros(kModule + "." + part, dtype, shape); };
}
template <class T>
Change poke(const std::string& part, std::size_t index, T value) {
  return [=](MemoryCheckpoint& c) { c.poke(kModule + "." + part, index, value); };
}
Change both(const Change& a, const Change& b) {
  return [=](MemoryCheckpoint& c) {
    a(c);
    b(c);
  };
}

std::vector<std::uint16_t> ones_f16(std::int64_t count) {
  return std::vector<std::uint16_t>(static_cast<std::size_t>(count), 0x3C00);
}

std::shared_ptr<MemoryCheckpoint> gptq() {
  auto c = std::make_shared<MemoryCheckpoint>(
      Json{{"quantization_config",
            {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}, {"sym", false}, {"desc_act", true}}}});
  c->add_zeros(kModule + ".qweight", Dtype::i32, {kIn / 8, kOut});
  c->add(kModule + ".scales", Dtype::f16, {kIn / 32, kOut}, ones_f16(kIn / 32 * kOut));
  c->add_zeros(kModule + ".qzeros", Dtype::i32, {kIn / 32, kOut / 8});
  std::vector<std::int32_t> g_idx;
  for (std::int32_t k = 0; k < kIn; ++k) g_idx.push_back(k % 2);
  c->add(kModule + ".g_idx", Dtype::i32, {kIn}, g_idx);
  return c;
}

std::shared_ptr<MemoryCheckpoint> awq() {
  auto c = std::make_shared<MemoryCheckpoint>(
      Json{{"quantization_config",
            {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}, {"zero_point", true}, {"version", "gemm"}}}});
  c->add_zeros(kModule + ".qweight", Dtype::i32, {kIn, kOut / 8});
  c->add(kModule + ".scales", Dtype::f16, {kIn / 32, kOut}, ones_f16(kIn / 32 * kOut));
  c->add_zeros(kModule + ".qzeros", Dtype::i32, {kIn / 32, kOut / 8});
  return c;
}

std::shared_ptr<MemoryCheckpoint> ct() {
  const Json weights{{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 32}, {"symmetric", false}};
  auto c = std::make_shared<MemoryCheckpoint>(
      Json{{"quantization_config",
            {{"quant_method", "compressed-tensors"},
             {"format", "pack-quantized"},
             {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}},
             {"ignore", {"lm_head"}}}}});
  c->add_zeros(kModule + ".weight_packed", Dtype::i32, {kOut, kIn / 8});
  c->add(kModule + ".weight_scale", Dtype::f16, {kOut, kIn / 32}, ones_f16(kIn / 32 * kOut));
  c->add_zeros(kModule + ".weight_zero_point", Dtype::i32, {kOut / 8, kIn / 32});
  c->add(kModule + ".weight_shape", Dtype::i64, {2}, std::vector<std::int64_t>{kOut, kIn});
  return c;
}

std::shared_ptr<MemoryCheckpoint> plain() {
  auto c = std::make_shared<MemoryCheckpoint>();
  c->add_zeros(kModule + ".weight", Dtype::bf16, {kOut, kIn});
  c->add_zeros(kModule + ".bias", Dtype::bf16, {kOut});
  return c;
}

// Opens the module and reads all of it: whatever is wrong comes out of one of the three.
Result<> open_and_read(const std::shared_ptr<MemoryCheckpoint>& checkpoint) {
  MORACLE_ASSIGN(const auto format, make_format(*checkpoint));
  TensorClaims claims(checkpoint);
  const ModuleRef module{.path = kModule, .fused = {"model.layers.0.self_attn.qkv_proj"}, .out = kOut, .in = kIn};
  MORACLE_TRY(format->scheme_of(module, claims));
  MORACLE_ASSIGN(const CanonicalLinear linear, test::open_whole(*format, module, claims));
  MatrixPanel panel;
  return linear.weight->read(0, kOut, panel);
}

struct Case {
  const char* name;
  std::shared_ptr<MemoryCheckpoint> (*make)();
  Change change;
  const char* code;
  std::vector<std::string> texts;  // all in the message
};

Change ct_weights(const std::string& key, const Json& value) {
  return [=](MemoryCheckpoint& c) {
    c.mutable_config()["quantization_config"]["config_groups"]["group_0"]["weights"][key] = value;
  };
}
Change ct_group(const std::string& key, const Json& value) {
  return
      [=](MemoryCheckpoint& c) { c.mutable_config()["quantization_config"]["config_groups"]["group_0"][key] = value; };
}

std::vector<Case> config_cases() {
  return {
      {"unknown method",
       gptq,
       set("quant_method", "hqq"),
       "config.unsupported",
       {"/quantization_config/quant_method", "gptq, awq, auto-round, compressed-tensors", "hqq"}},
      {"another method", gptq, set("quant_method", "bitsandbytes"), "config.unsupported", {"one of gptq", "quark"}},
      {"no method, no hint",
       gptq,
       both(drop_key("quant_method"), drop_key("bits")),
       "config.unsupported",
       {"quant_method"}},
      {"method of a wrong type", gptq, set("quant_method", 3), "config.type", {"quant_method"}},
      {"section of a wrong type",
       gptq,
       [](MemoryCheckpoint& c) { c.mutable_config()["quantization_config"] = "gptq"; },
       "config.type",
       {"/quantization_config", "an object"}},
      {"gptq bits missing", gptq, drop_key("bits"), "config.missing", {"/quantization_config/bits"}},
      {"gptq group missing", gptq, drop_key("group_size"), "config.missing", {"group_size"}},
      {"gptq 3 bit", gptq, set("bits", 3), "quant.unsupported", {"4 or 8", "3", "no expert kernel"}},
      {"gptq 2 bit", gptq, set("bits", 2), "quant.unsupported", {"4 or 8"}},
      {"gptq bits as text", gptq, set("bits", "4"), "config.type", {"bits"}},
      {"gptq group 0", gptq, set("group_size", 0), "config.range", {"group_size", "-1 or a positive number"}},
      {"gptq group -2", gptq, set("group_size", -2), "config.range", {"group_size"}},
      {"gptq marlin repacked",
       gptq,
       set("checkpoint_format", "marlin"),
       "quant.unsupported",
       {"gptq or gptq_v2", "marlin"}},
      {"gptq other word size", gptq, set("pack_dtype", "int64"), "quant.unsupported", {"pack_dtype", "int32"}},
      {"gptq dynamic broken regex", gptq, set("dynamic", Json{{"-:(x", Json::object()}}), "config.pattern", {"(x"}},
      {"gptq dynamic not an object", gptq, set("dynamic", Json::array({1})), "config.type", {"dynamic"}},
      {"gptq dynamic rule of 2 bit",
       gptq,
       set("dynamic", Json{{".*q_proj", {{"bits", 2}}}}),
       "quant.unsupported",
       {"/dynamic/.*q_proj/bits"}},
      {"awq gemv", awq, set("version", "gemv"), "quant.unsupported", {"gemm", "gemv", "version"}},
      {"awq 8 bit", awq, set("bits", 8), "quant.unsupported", {"bits", "8"}},
      {"awq group missing", awq, drop_key("group_size"), "config.missing", {"group_size"}},
      {"awq list of wrong type",
       awq,
       set("modules_to_not_convert", "gate"),
       "config.type",
       {"modules_to_not_convert", "a list of strings"}},
      {"ct no groups", ct, drop_key("config_groups"), "config.missing", {"config_groups"}},
      {"ct no targets", ct, ct_group("targets", Json::array()), "config.missing", {"targets"}},
      {"ct no weights", ct, ct_group("weights", nullptr), "config.missing", {"config_groups/group_0/weights"}},
      {"ct other format",
       ct,
       set("format", "marlin-24"),
       "quant.unsupported",
       {"pack-quantized", "marlin-24: weights int4 group 32"}},
      {"ct 3 bit", ct, ct_weights("num_bits", 3), "quant.unsupported", {"int3 group 32"}},
      {"ct dynamic order", ct, ct_weights("actorder", "dynamic"), "quant.unsupported", {"actorder dynamic"}},
      {"ct sparse",
       ct,
       set("sparsity_config", Json{{"format", "sparse-bitmask"}}),
       "quant.unsupported",
       {"sparsity_config", "sparse-bitmask"}},
      {"ct transform",
       ct,
       set("transform_config", Json{{"config_groups", {{"u", {{"type", "hadamard"}}}}}}),
       "quant.unsupported",
       {"transform_config"}},
      {"ct output activations",
       ct,
       ct_group("output_activations", Json{{"num_bits", 8}}),
       "quant.unsupported",
       {"output_activations"}},
      {"ct broken ignore", ct, set("ignore", Json{"re:*x"}), "config.pattern", {"*x"}},
      {"ct ignore of wrong type", ct, set("ignore", Json{{"a", 1}}), "config.type", {"ignore"}},
  };
}

std::vector<Case> tensor_cases() {
  return {
      {"gptq no codes", gptq, drop("qweight"), "quant.incomplete", {kModule + ".qweight"}},
      {"gptq no scales", gptq, drop("scales"), "quant.incomplete", {kModule + ".scales", "no such tensor"}},
      {"gptq no zeros", gptq, drop("qzeros"), "quant.incomplete", {kModule + ".qzeros"}},
      {"gptq no order", gptq, drop("g_idx"), "quant.incomplete", {kModule + ".g_idx"}},
      {"gptq plain beside codes",
       gptq,
       replace("weight", Dtype::f16, {kOut, kIn}),
       "quant.ambiguous",
       {"q_proj.weight"}},
      {"gptq excluded but stored",
       gptq,
       set("dynamic", Json{{"-:.*q_proj", Json::object()}}),
       "config.contradiction",
       {"-:.*q_proj", "quantized codes"}},
      {"gptq not in the list but stored",
       gptq,
       set("modules_in_block_to_quantize", Json{{"self_attn.k_proj"}}),
       "config.contradiction",
       {"modules_in_block_to_quantize"}},
      {"gptq 8 bit said, 4 stored",
       gptq,
       set("bits", 8),
       "config.contradiction",
       {"8-bit codes", "4-bit codes [8, 32]"}},
      {"gptq codes of wrong shape",
       gptq,
       replace("qweight", Dtype::i32, {kIn / 8, kOut + 1}),
       "tensor.shape",
       {"[8, 32]", "[8, 33]"}},
      {"gptq codes of wrong dtype",
       gptq,
       replace("qweight", Dtype::f32, {kIn / 8, kOut}),
       "tensor.dtype",
       {"I32", "F32"}},
      {"gptq group of other size",
       gptq,
       set("group_size", 48),
       "quant.group",
       {"divides 64 inputs", "48, with 2 groups"}},
      {"gptq scales of other groups",
       gptq,
       replace("scales", Dtype::f16, {4, kOut}),
       "quant.group",
       {"2 groups of 32 over 64 inputs", "4 groups"}},
      {"gptq scales of wrong shape",
       gptq,
       replace("scales", Dtype::f16, {2, 31}),
       "tensor.shape",
       {"[2, 32]", "[2, 31]"}},
      {"gptq scales of wrong dtype",
       gptq,
       replace("scales", Dtype::i32, {2, kOut}),
       "tensor.dtype",
       {"BF16 or F16 or F32"}},
      {"gptq zeros of wrong shape",
       gptq,
       replace("qzeros", Dtype::i32, {2, kOut}),
       "tensor.shape",
       {"[2, 4]", "[2, 32]"}},
      {"gptq order of wrong length", gptq, replace("g_idx", Dtype::i32, {kIn - 1}), "tensor.shape", {"[64]", "[63]"}},
      {"gptq order out of range",
       gptq,
       poke<std::int32_t>("g_idx", 5, 2),
       "quant.act_order",
       {"[0, 2)", "2 at element 5"}},
      {"gptq order negative", gptq, poke<std::int32_t>("g_idx", 0, -1), "quant.act_order", {"-1 at element 0"}},
      {"gptq order no partition",
       gptq,
       poke<std::int32_t>("g_idx", 5, 0),
       "quant.act_order",
       {"32 columns in group 0", "33"}},
      {"gptq NaN scale",
       gptq,
       poke<std::uint16_t>("scales", 37, 0x7E00),
       "value.nan",
       {"element 37", "NaN", ".scales"}},
      {"gptq infinite scale", gptq, poke<std::uint16_t>("scales", 3, 0xFC00), "value.nan", {"element 3", "infinity"}},
      {"gptq zero scales", gptq, replace("scales", Dtype::f16, {2, kOut}), "value.zero_scales", {"never written"}},
      {"gptq zero point 16", gptq, poke<std::uint32_t>("qzeros", 0, 0xFU), "value.zero_point", {"at most 15", "16"}},
      {"gptq sym with other zeros",
       gptq,
       both(set("sym", true), poke<std::uint32_t>("qzeros", 0, 0x5U)),
       "config.contradiction",
       {"zero points of 8", "5 for row 0, group 0"}},
      {"gptq bias of wrong length", gptq, replace("bias", Dtype::f16, {kOut + 1}), "tensor.shape", {".bias", "[32]"}},
      {"awq no zeros", awq, drop("qzeros"), "quant.incomplete", {".qzeros"}},
      {"awq no scales", awq, drop("scales"), "quant.incomplete", {".scales"}},
      {"awq words of no layout",
       awq,
       replace("qweight", Dtype::i32, {kIn + 1, kOut / 8}),
       "tensor.shape",
       {"[64, 4]", "[65, 4]"}},
      {"awq plain beside codes", awq, replace("weight", Dtype::f16, {kOut, kIn}), "quant.ambiguous", {"qweight"}},
      {"awq group", awq, set("group_size", 64), "quant.group", {"1 groups of 64 over 64 inputs", "2 groups"}},
      {"ct no scale", ct, drop("weight_scale"), "quant.incomplete", {".weight_scale"}},
      {"ct no zero point", ct, drop("weight_zero_point"), "quant.incomplete", {".weight_zero_point"}},
      {"ct plain though targeted",
       ct,
       both(drop("weight_packed"), replace("weight", Dtype::bf16, {kOut, kIn})),
       "quant.incomplete",
       {".weight_packed", "group_0", "ignore list"}},
      {"ct nothing stored",
       ct,
       [](MemoryCheckpoint& c) {
         for (const char* part : {"weight_packed", "weight_scale", "weight_zero_point", "weight_shape"})
           c.remove(kModule + "." + part);
       },
       "tensor.missing",
       {kModule}},
      {"ct ignored but stored", ct, set("ignore", Json{kModule}), "config.contradiction", {"quantized codes"}},
      {"ct ignored by fused name but stored",
       ct,
       set("ignore", Json{"model.layers.0.self_attn.qkv_proj"}),
       "config.contradiction",
       {"qkv_proj"}},
      {"ct weight_shape lies",
       ct,
       poke<std::int64_t>("weight_shape", 1, 128),
       "tensor.shape",
       {"[32, 64]", "[32, 128]"}},
      {"ct weight_shape huge",
       ct,
       poke<std::int64_t>("weight_shape", 1, std::int64_t{1} << 40),
       "number.range",
       {"weight_shape"}},
      {"ct group", ct, ct_weights("group_size", 64), "quant.group", {"1 groups of 64", "2 groups"}},
      {"ct order group without index", ct, ct_weights("actorder", "group"), "quant.incomplete", {"weight_g_idx"}},
      {"plain int8",
       plain,
       replace("weight", Dtype::i8, {kOut, kIn}),
       "config.contradiction",
       {"I8", "BF16, F16 or F32"}},
      {"plain transposed",
       plain,
       replace("weight", Dtype::bf16, {kIn, kOut}),
       "tensor.shape",
       {"[32, 64]", "[64, 32]"}},
      {"plain missing", plain, drop("weight"), "tensor.missing", {kModule + ".weight"}},
      {"plain NaN", plain, poke<std::uint16_t>("weight", 70, 0x7FC0), "value.nan", {"element 70", "NaN"}},
      {"plain NaN in bias", plain, poke<std::uint16_t>("bias", 7, 0xFF80), "value.nan", {".bias", "element 7"}},
      {"plain bias as integers", plain, replace("bias", Dtype::i32, {kOut}), "tensor.dtype", {".bias"}},
  };
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

TEST(FormatErrors, Configs) {
  check(config_cases());
}
TEST(FormatErrors, Tensors) {
  check(tensor_cases());
}

TEST(FormatErrors, AFakeFileWithFewerBytesThanItsShape) {
  auto c = gptq();
  c->add(kModule + ".qweight", Dtype::i32, {kIn / 8, kOut}, std::vector<std::byte>(100));
  const auto result = open_and_read(c);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, "tensor.size");
}

TEST(FormatErrors, SomeZeroScalesAreOnlyToldOf) {
  auto c = gptq();
  c->poke<std::uint16_t>(kModule + ".scales", 3, 0);
  c->poke<std::uint32_t>(kModule + ".qweight", 3, 0x55555555U);
  const auto format = make_format(*c);
  ASSERT_TRUE(format.ok());
  TensorClaims claims(c);
  const auto linear =
      test::open_whole(**format, ModuleRef{.path = kModule, .fused = {}, .out = kOut, .in = kIn}, claims);
  ASSERT_TRUE(linear.ok());
  MatrixPanel panel;
  EXPECT_TRUE(linear->weight->read(0, kOut, panel).ok());
  ASSERT_EQ((*format)->warnings().size(), 1U);
  EXPECT_NE((*format)->warnings()[0].find("1 scales of zero"), std::string::npos);
}

TEST(FormatErrors, PanelsOutsideOfTheMatrix) {
  auto c = gptq();
  const auto format = make_format(*c);
  TensorClaims claims(c);
  const auto linear =
      test::open_whole(**format, ModuleRef{.path = kModule, .fused = {}, .out = kOut, .in = kIn}, claims);
  ASSERT_TRUE(linear.ok());
  MatrixPanel panel;
  for (const auto& [begin, end] : {std::pair{-1, 2}, {0, 33}, {5, 4}}) {
    const auto result = linear->weight->read(begin, end, panel);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, "panel.range");
  }
}

}  // namespace
}  // namespace moracle
