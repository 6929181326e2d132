// Which modules are quantized, how, and what is only worth a warning.
#include <gtest/gtest.h>

#include "format/format.h"
#include "support/memory_checkpoint.h"
#include "support/open_whole.h"
#include "support/temporary_folder.h"

namespace moracle {
namespace {

using test::MemoryCheckpoint;
using test::TemporaryFolder;
using Fake = std::shared_ptr<MemoryCheckpoint>;

constexpr std::int64_t kOut = 32;
constexpr std::int64_t kIn = 64;

ModuleRef module_of(const std::string& path, std::vector<std::string> fused = {}) {
  return ModuleRef{.path = path, .fused = std::move(fused), .out = kOut, .in = kIn};
}

std::vector<std::uint16_t> ones(std::int64_t count) {
  return std::vector<std::uint16_t>(static_cast<std::size_t>(count), 0x3C00);
}

void add_gptq(MemoryCheckpoint& c, const std::string& path, std::int64_t group, std::int64_t bits = 4,
              std::int64_t out = kOut, std::int64_t in = kIn) {
  const std::int64_t groups = (in + group - 1) / group;
  c.add_zeros(path + ".qweight", Dtype::i32, {in * bits / 32, out});
  c.add(path + ".scales", Dtype::f16, {groups, out}, ones(groups * out));
}
void add_plain(MemoryCheckpoint& c, const std::string& path, std::int64_t out = kOut, std::int64_t in = kIn) {
  c.add_zeros(path + ".weight", Dtype::bf16, {out, in});
}
void add_ct(MemoryCheckpoint& c, const std::string& path, std::int64_t groups = 2) {
  c.add_zeros(path + ".weight_packed", Dtype::i32, {kOut, kIn / 8});
  c.add(path + ".weight_scale", Dtype::bf16, {kOut, groups}, ones(groups * kOut));
}

Json gptq_section() {
  return {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}, {"sym", true}, {"desc_act", false}};
}
Json ct_section() {
  const Json weights{{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 32}};
  return {{"quant_method", "compressed-tensors"},
          {"format", "pack-quantized"},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}
Fake fake(const Json& section) {
  return std::make_shared<MemoryCheckpoint>(Json{{"quantization_config", section}});
}

// The scheme of a module as text, with the rule that excludes it; or the error code.
std::string verdict(const Fake& c, const ModuleRef& module) {
  const auto format = make_format(*c);
  if (!format.ok()) return format.error().message();
  TensorClaims claims(c);
  const auto scheme = (*format)->scheme_of(module, claims);
  if (!scheme.ok()) return scheme.error().code;
  const auto opened = (*format)->open(module, claims);
  if (opened.ok()) {
    EXPECT_EQ(opened->excluded_by, scheme->excluded_by);
  }
  return to_string(scheme->scheme) + (scheme->excluded_by.empty() ? "" : " <- " + scheme->excluded_by);
}

TEST(FormatRules, NoSectionIsPlain) {
  auto c = std::make_shared<MemoryCheckpoint>();
  add_plain(*c, "a");
  EXPECT_EQ(verdict(c, module_of("a")), "W: bf16");
  EXPECT_EQ((*make_format(*c))->name(), "none");
}

TEST(FormatRules, SectionsOfBothSpellingsAndNestings) {
  for (const auto& config : {Json{{"quantization_config", gptq_section()}},
                             Json{{"text_config", {{"quantization_config", gptq_section()}}}}}) {
    const MemoryCheckpoint c(config);
    const auto format = make_format(c);
    ASSERT_TRUE(format.ok());
    EXPECT_EQ((*format)->name(), "gptq");
  }
  Json old = ct_section();
  old.erase("quant_method");
  const auto format = make_format(MemoryCheckpoint(Json{{"compression_config", old}}));
  ASSERT_TRUE(format.ok());
  EXPECT_EQ((*format)->name(), "compressed-tensors");
  EXPECT_EQ((*make_format(MemoryCheckpoint(Json{{"quantization_config", nullptr}})))->name(), "none");
}

TEST(FormatRules, SideFilesCompleteTheConfig) {
  const TemporaryFolder folder;
  folder.write("quantize_config.json", R"({"bits": 8, "group_size": 32, "sym": true, "desc_act": false})");
  auto c = std::make_shared<MemoryCheckpoint>(Json{{"quantization_config", {{"quant_method", "gptq"}, {"bits", 4}}}},
                                              folder.path());
  add_gptq(*c, "a", 32);
  EXPECT_EQ(verdict(c, module_of("a")), "W: int4 g32 sym");  // config.json first
  auto alone = std::make_shared<MemoryCheckpoint>(Json::object(), folder.path());
  add_gptq(*alone, "a", 32, 8);
  EXPECT_EQ(verdict(alone, module_of("a")), "W: int8 g32 sym");
}

TEST(FormatRules, AwqFromItsOldSideFile) {
  const TemporaryFolder folder;
  folder.write("quant_config.json", R"({"zero_point": true, "q_group_size": 32, "w_bit": 4, "version": "GEMM"})");
  const auto format = make_format(MemoryCheckpoint(Json::object(), folder.path()));
  ASSERT_TRUE(format.ok()) << format.error().message();
  EXPECT_EQ((*format)->name(), "awq");
}

// The rules are in the order of the file, which is not the order of the alphabet.
TEST(FormatRules, TheFirstDynamicRuleWins) {
  const std::string text = R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32,
    "sym": true, "desc_act": false, "dynamic": {
      "-:.*layers\\.0\\.": {},
      "+:.*q_proj": {"bits": 8, "group_size": 64},
      ".*": {"group_size": 16}}}})";
  const TemporaryFolder folder;
  folder.write("config.json", text);
  auto c = std::make_shared<MemoryCheckpoint>(Json::parse(text), folder.path());
  add_plain(*c, "model.layers.0.q_proj");
  add_gptq(*c, "model.layers.1.q_proj", 64, 8);
  add_gptq(*c, "model.layers.1.k_proj", 16);
  EXPECT_EQ(verdict(c, module_of("model.layers.0.q_proj")), "W: bf16 <- -:.*layers\\.0\\.");
  EXPECT_EQ(verdict(c, module_of("model.layers.1.q_proj")), "W: int8 g64 sym");
  EXPECT_EQ(verdict(c, module_of("model.layers.1.k_proj")), "W: int4 g16 sym");
}

TEST(FormatRules, DynamicRulesKnowFusedNames) {
  Json section = gptq_section();
  section["dynamic"] = {{"-:.*qkv_proj", Json::object()}};
  auto c = fake(section);
  add_plain(*c, "l.q_proj");
  EXPECT_EQ(verdict(c, module_of("l.q_proj", {"l.qkv_proj"})), "W: bf16 <- -:.*qkv_proj");
}

TEST(FormatRules, GptqLmHead) {
  for (const bool quantized : {false, true}) {
    Json section = gptq_section();
    section["lm_head"] = quantized;
    auto c = fake(section);
    add_gptq(*c, "lm_head", 32);
    EXPECT_EQ(verdict(c, module_of("lm_head")), quantized ? "W: int4 g32 sym" : "config.contradiction");
    auto stored = fake(section);
    add_plain(*stored, "lm_head");
    EXPECT_EQ(verdict(stored, module_of("lm_head")),
              quantized ? "W: bf16 <- stored unquantized" : "W: bf16 <- lm_head: false");
  }
}

TEST(FormatRules, GptqBlocksAndStoredTensors) {
  Json section = gptq_section();
  section["modules_in_block_to_quantize"] = {{"self_attn.q_proj"}, {"mlp.experts"}};
  auto c = fake(section);
  add_gptq(*c, "model.layers.0.self_attn.q_proj", 32);
  add_plain(*c, "model.layers.0.mlp.gate");
  EXPECT_EQ(verdict(c, module_of("model.layers.0.self_attn.q_proj")), "W: int4 g32 sym");
  EXPECT_EQ(verdict(c, module_of("model.layers.0.mlp.gate")), "W: bf16 <- modules_in_block_to_quantize");
}

TEST(FormatRules, AwqStoredTensorsDecide) {
  auto c = fake({{"quant_method", "awq"},
                 {"bits", 4},
                 {"group_size", 32},
                 {"zero_point", true},
                 {"version", "gemm"},
                 {"modules_to_not_convert", {"gate", "k_proj", "nothing"}}});
  for (const char* path : {"m.gate_proj", "m.k_proj"}) {
    c->add_zeros(std::string(path) + ".qweight", Dtype::i32, {kIn, kOut / 8});
    c->add(std::string(path) + ".scales", Dtype::f16, {2, kOut}, ones(2 * kOut));
    c->add_zeros(std::string(path) + ".qzeros", Dtype::i32, {2, kOut / 8});
  }
  add_plain(*c, "m.gate");
  add_plain(*c, "m.v_proj");
  EXPECT_EQ(verdict(c, module_of("m.gate")), "W: bf16 <- gate");
  EXPECT_EQ(verdict(c, module_of("m.v_proj")), "W: bf16 <- stored unquantized");
  EXPECT_EQ(verdict(c, module_of("m.gate_proj")), "W: int4 g32 asym");
  const auto format = make_format(*c);
  TensorClaims claims(c);
  for (const char* path : {"m.gate", "m.v_proj", "m.gate_proj", "m.k_proj"})
    EXPECT_TRUE(test::open_whole(**format, module_of(path), claims).ok()) << path;
  const auto warnings = (*format)->warnings();
  ASSERT_EQ(warnings.size(), 2U);
  EXPECT_NE(warnings[0].find("\"k_proj\" excludes modules that are stored quantized"), std::string::npos);
  EXPECT_NE(warnings[1].find("\"nothing\" matches no module"), std::string::npos);
}

TEST(FormatRules, AwqWithoutZeroPoints) {
  Json section{{"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}, {"zero_point", false}};
  auto c = fake(section);
  c->add_zeros("a.qweight", Dtype::i32, {kIn, kOut / 8});
  c->add("a.scales", Dtype::f16, {2, kOut}, ones(2 * kOut));
  EXPECT_EQ(verdict(c, module_of("a")), "W: int4 g32 sym");
  c->add_zeros("a.qzeros", Dtype::i32, {2, kOut / 8});
  EXPECT_EQ(verdict(c, module_of("a")), "W: int4 g32 asym");
}

TEST(FormatRules, CtIgnoresShardByShard) {
  Json section = ct_section();
  section["ignore"] = {"l.q_proj", "re:.*\\.gate_up_proj$", "l.mlp.experts", "re:.*absent"};
  auto c = fake(section);
  for (const char* path : {"l.q_proj", "l.mlp.gate_proj", "l.mlp.experts.0.up_proj"}) add_plain(*c, path);
  for (const char* path : {"l.k_proj", "l.mlp.down_proj"}) add_ct(*c, path);
  EXPECT_EQ(verdict(c, module_of("l.q_proj", {"l.qkv_proj"})), "W: bf16 <- l.q_proj");
  EXPECT_EQ(verdict(c, module_of("l.k_proj", {"l.qkv_proj"})), "W: int4 g32 sym");
  EXPECT_EQ(verdict(c, module_of("l.mlp.gate_proj", {"l.mlp.gate_up_proj"})), "W: bf16 <- .*\\.gate_up_proj$");
  EXPECT_EQ(verdict(c, module_of("l.mlp.experts.0.up_proj", {"l.mlp.experts"})), "W: bf16 <- l.mlp.experts");
  const auto format = make_format(*c);
  TensorClaims claims(c);
  EXPECT_TRUE(test::open_whole(**format, module_of("l.mlp.gate_proj", {"l.mlp.gate_up_proj"}), claims).ok());
  EXPECT_EQ((*format)->warnings(), std::vector<std::string>{"ignore: \".*absent\" matches no module"});
}

TEST(FormatRules, CtTargetsByNameBeforeClass) {
  Json section = ct_section();
  Json wide{{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}};
  section["config_groups"]["group_1"] = {{"targets", {"re:.*down_proj"}}, {"weights", wide}};
  const TemporaryFolder folder;
  folder.write("config.json", Json{{"quantization_config", section}}.dump());
  auto c = std::make_shared<MemoryCheckpoint>(Json{{"quantization_config", section}}, folder.path());
  c->add_zeros("a.down_proj.weight_packed", Dtype::i32, {kOut, kIn / 4});
  c->add("a.down_proj.weight_scale", Dtype::f32, {kOut, 1}, std::vector<float>(kOut, 1.0F));
  add_ct(*c, "a.up_proj");
  add_plain(*c, "a.router");
  EXPECT_EQ(verdict(c, module_of("a.down_proj")), "W: int8 channel");
  EXPECT_EQ(verdict(c, module_of("a.up_proj")), "W: int4 g32 sym");
  ModuleRef router = module_of("a.router");
  router.module_class = "TopKRouter";
  EXPECT_EQ(verdict(c, router), "W: bf16 <- no target matches");
}

TEST(FormatRules, CtWarnsOfWhatItDoesNotApply) {
  Json section = ct_section();
  section["kv_cache_scheme"] = {{"num_bits", 8}};
  section["sparsity_config"] = Json::object();
  auto c = fake(section);
  const auto format = make_format(*c);
  ASSERT_TRUE(format.ok());
  ASSERT_EQ((*format)->warnings().size(), 1U);
  EXPECT_NE((*format)->warnings()[0].find("kv_cache_scheme"), std::string::npos);
}

// One scale a row: [N], [N, 1] and [1, N] mean the same.
TEST(FormatRules, ChannelScalesOfAllShapes) {
  for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{{kOut}, {kOut, 1}, {1, kOut}}) {
    Json section = gptq_section();
    section["group_size"] = -1;
    auto c = fake(section);
    add_gptq(*c, "a", kIn);
    c->add("a.scales", Dtype::f16, shape, ones(kOut));
    c->poke<std::uint16_t>("a.scales", 5, 0x4000);
    const auto format = make_format(*c);
    TensorClaims claims(c);
    const auto linear = test::open_whole(**format, module_of("a"), claims);
    ASSERT_TRUE(linear.ok()) << linear.error().message();
    MatrixPanel panel;
    ASSERT_TRUE(linear->weight->read(4, 7, panel).ok());
    EXPECT_EQ(panel.scales, (std::vector<float>{1.0F, 2.0F, 1.0F}));
    EXPECT_EQ(linear->weight->spec().group_cols, kIn);
    linear->weight->release();
    EXPECT_EQ(c->released(), static_cast<std::size_t>(kOut * kIn / 2 + kOut * 2));
  }
}

TEST(FormatRules, ALastGroupMayBeSmallerWhereTheShapeProvesIt) {
  auto c = fake(gptq_section());
  add_gptq(*c, "a", 32, 4, kOut, 88);  // 32 + 32 + 24: no equal groups give three
  const auto format = make_format(*c);
  TensorClaims claims(c);
  ModuleRef module = module_of("a");
  module.in = 88;
  const auto linear = test::open_whole(**format, module, claims);
  ASSERT_TRUE(linear.ok()) << linear.error().message();
  EXPECT_EQ(linear->weight->spec().groups, 3);
  EXPECT_EQ(linear->weight->spec().group_cols, 32);
}

std::vector<std::int32_t> sorted_index() {
  std::vector<std::int32_t> g_idx;
  for (std::int32_t k = 0; k < kIn; ++k) g_idx.push_back(k / 32);
  return g_idx;
}

TEST(FormatRules, TheStoredOrderDecides) {
  auto c = fake(gptq_section());  // desc_act false
  for (const char* path : {"sorted", "swapped"}) add_gptq(*c, path, 32);
  std::vector<std::int32_t> g_idx = sorted_index();
  c->add("sorted.g_idx", Dtype::i32, {kIn}, g_idx);
  std::swap(g_idx[0], g_idx[63]);
  c->add("swapped.g_idx", Dtype::i32, {kIn}, g_idx);
  const auto format = make_format(*c);
  TensorClaims claims(c);
  EXPECT_TRUE(test::open_whole(**format, module_of("sorted"), claims)->weight->spec().g_idx.empty());
  EXPECT_EQ(test::open_whole(**format, module_of("swapped"), claims)->weight->spec().g_idx, g_idx);
}

// The config tells a plan whether columns are out of order; only where it does not, the stored index is asked.
TEST(FormatRules, TheConfigTellsOfTheOrder) {
  struct Told {
    Json desc_act;  // null: not at all
    bool static_groups;
    bool swapped;
    bool act_order;
  };
  for (const Told& told :
       {Told{false, false, true, false}, Told{true, false, false, true}, Told{true, true, false, false},
        Told{true, true, true, true}, Told{nullptr, false, false, false}, Told{nullptr, false, true, true}}) {
    SCOPED_TRACE(told.desc_act.dump() + (told.static_groups ? ", static groups" : "") +
                 (told.swapped ? ", swapped" : ""));
    Json section = gptq_section();
    section.erase("desc_act");
    if (!told.desc_act.is_null()) section["desc_act"] = told.desc_act;
    if (told.static_groups) section["static_groups"] = true;
    auto c = fake(section);
    add_gptq(*c, "a", 32);
    std::vector<std::int32_t> g_idx = sorted_index();
    if (told.swapped) std::swap(g_idx[0], g_idx[63]);
    c->add("a.g_idx", Dtype::i32, {kIn}, g_idx);
    const auto format = make_format(*c);
    TensorClaims claims(c);
    const auto stored = (*format)->open(module_of("a"), claims);
    ASSERT_TRUE(stored.ok()) << stored.error().message();
    EXPECT_EQ(stored->act_order, told.act_order);
    EXPECT_TRUE(stored->spec.g_idx.empty());
    EXPECT_EQ(stored->read()->weight->spec().g_idx.empty(), !told.swapped);
  }
}

TEST(FormatRules, CtGroupOrder) {
  Json section = ct_section();
  section["config_groups"]["group_0"]["weights"]["actorder"] = "group";
  auto c = fake(section);
  add_ct(*c, "a");
  std::vector<std::int32_t> g_idx = sorted_index();
  std::swap(g_idx[0], g_idx[63]);
  c->add("a.weight_g_idx", Dtype::i32, {kIn}, g_idx);
  const auto format = make_format(*c);
  TensorClaims claims(c);
  EXPECT_EQ(test::open_whole(**format, module_of("a"), claims)->weight->spec().g_idx, g_idx);
  EXPECT_TRUE(claims.unclaimed().empty());
  // An unset index of another order says nothing.
  auto unset = fake(ct_section());
  add_ct(*unset, "a");
  unset->add("a.weight_g_idx", Dtype::i32, {kIn}, std::vector<std::int32_t>(kIn, -1));
  TensorClaims other(unset);
  EXPECT_TRUE(test::open_whole(**make_format(*unset), module_of("a"), other)->weight->spec().g_idx.empty());
}

TEST(TensorClaims, EveryTensorOnce) {
  auto c = std::make_shared<MemoryCheckpoint>();
  for (const char* name : {"a.x", "a.y", "ab"}) c->add_zeros(name, Dtype::f32, {1});
  TensorClaims claims(c);
  EXPECT_TRUE(claims.has_module("a"));
  EXPECT_FALSE(claims.has_module("ab"));
  EXPECT_FALSE(claims.has_module("a.x"));
  EXPECT_TRUE(claims.claim("a.x").ok());
  EXPECT_EQ(claims.claim("a.x").error().code, "tensor.twice");
  EXPECT_EQ(claims.claim_shared("a.x").error().code, "tensor.twice");
  EXPECT_TRUE(claims.claim_shared("ab").ok());
  EXPECT_TRUE(claims.claim_shared("ab").ok());
  EXPECT_EQ(claims.claim("ab").error().code, "tensor.twice");
  EXPECT_EQ(claims.claim("b").error().code, "tensor.missing");
  EXPECT_EQ(claims.unclaimed(), std::vector<std::string>{"a.y"});
}

}  // namespace
}  // namespace moracle
