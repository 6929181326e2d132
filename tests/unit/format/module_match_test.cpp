#include "format/rules/module_match.h"

#include <gtest/gtest.h>

#include "support/memory_checkpoint.h"

namespace moracle {
namespace {

bool matches(Pattern::Kind kind, const std::string& pattern, const std::string& name) {
  const auto compiled = Pattern::compile(kind, pattern);
  EXPECT_TRUE(compiled.ok()) << pattern;
  const auto match = compiled->matches(name);
  EXPECT_TRUE(match.ok()) << pattern;
  return match.ok() && *match;
}

TEST(Pattern, ExactIsTheWholeName) {
  EXPECT_TRUE(matches(Pattern::Kind::exact, "lm_head", "lm_head"));
  EXPECT_FALSE(matches(Pattern::Kind::exact, "lm_head", "model.lm_head"));
  EXPECT_FALSE(matches(Pattern::Kind::exact, "lm_hea", "lm_head"));
}

TEST(Pattern, RegexIsAnchoredAtTheStartOnly) {
  EXPECT_TRUE(matches(Pattern::Kind::regex, "model.layers.1", "model.layers.10.mlp"));
  EXPECT_TRUE(matches(Pattern::Kind::regex, ".*mlp\\.gate$", "model.layers.0.mlp.gate"));
  EXPECT_FALSE(matches(Pattern::Kind::regex, ".*mlp\\.gate$", "model.layers.0.mlp.gate_proj"));
  EXPECT_FALSE(matches(Pattern::Kind::regex, "layers", "model.layers.0"));
  EXPECT_TRUE(matches(Pattern::Kind::regex, ".*\\.(?!experts)[a-z]+\\.down_proj", "model.mlp.down_proj"));
}

TEST(Pattern, ComponentIsASubstringAtBoundaries) {
  EXPECT_TRUE(matches(Pattern::Kind::component, "gate", "model.layers.0.mlp.gate"));
  EXPECT_FALSE(matches(Pattern::Kind::component, "gate", "model.layers.0.mlp.gate_proj"));
  EXPECT_FALSE(matches(Pattern::Kind::component, "gate", "model.layers.0.mlp.shared_expert_gate"));
  EXPECT_TRUE(matches(Pattern::Kind::component, "mlp.gate", "model.layers.0.mlp.gate"));
  EXPECT_TRUE(matches(Pattern::Kind::component, "layers.1", "model.layers.1.mlp"));
  EXPECT_FALSE(matches(Pattern::Kind::component, "layers.1", "model.layers.10.mlp"));
  EXPECT_TRUE(matches(Pattern::Kind::component, "layers.1.", "model.layers.1.mlp"));
  EXPECT_TRUE(matches(Pattern::Kind::component, "gate", "gate_proj.gate"));
  EXPECT_FALSE(matches(Pattern::Kind::component, "", "model"));
}

TEST(Pattern, WildcardRunsOverDots) {
  EXPECT_TRUE(matches(Pattern::Kind::wildcard, "*self_attn*", "model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(matches(Pattern::Kind::wildcard, "model.layers.?.mlp", "model.layers.3.mlp"));
  EXPECT_FALSE(matches(Pattern::Kind::wildcard, "model.layers.?.mlp", "model.layers.13.mlp"));
  EXPECT_FALSE(matches(Pattern::Kind::wildcard, "self_attn*", "model.self_attn"));
  EXPECT_TRUE(matches(Pattern::Kind::wildcard, "*a*b*c", "xaxbxbxc"));
  EXPECT_FALSE(matches(Pattern::Kind::wildcard, "*a*b*c", "xaxbxbx"));
  EXPECT_TRUE(matches(Pattern::Kind::wildcard, "*", ""));
}

TEST(Pattern, RefusesBrokenAndRunawayRegexes) {
  const auto broken = Pattern::compile(Pattern::Kind::regex, "model.(layers");
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().code, "config.pattern");
  EXPECT_FALSE(Pattern::compile(Pattern::Kind::regex, std::string(5000, 'a')).ok());
  const auto runaway = Pattern::compile(Pattern::Kind::regex, "(a+)+$");
  ASSERT_TRUE(runaway.ok());
  const auto match = runaway->matches(std::string(60, 'a') + "b");
  ASSERT_FALSE(match.ok());
  EXPECT_EQ(match.error().code, "config.pattern");
}

TEST(PatternList, TheFirstPatternWinsWhateverItsKind) {
  PatternList list;
  ASSERT_TRUE(list.add(Pattern::Kind::regex, ".*b").ok());
  ASSERT_TRUE(list.add(Pattern::Kind::exact, "a.b").ok());
  ASSERT_TRUE(list.add(Pattern::Kind::exact, "c").ok());
  ASSERT_TRUE(list.add(Pattern::Kind::regex, "c").ok());
  EXPECT_EQ(*list.first_index({"a.b"}), 0);
  EXPECT_EQ(*list.first_index({"c"}), 2);
  EXPECT_EQ(*list.first_index({"d", "cc"}), 3);
  EXPECT_EQ(*list.first_index({"d"}), -1);
}

TEST(PatternList, FusedNamesWorkBothWays) {
  ModuleRef q{.path = "model.layers.0.self_attn.q_proj", .fused = {"model.layers.0.self_attn.qkv_proj"}};
  ModuleRef k{.path = "model.layers.0.self_attn.k_proj", .fused = {"model.layers.0.self_attn.qkv_proj"}};
  PatternList fused;
  ASSERT_TRUE(fused.add(Pattern::Kind::exact, "model.layers.0.self_attn.qkv_proj").ok());
  EXPECT_EQ(*fused.first_index(names_of(q)), 0);
  EXPECT_EQ(*fused.first_index(names_of(k)), 0);
  PatternList shard;
  ASSERT_TRUE(shard.add(Pattern::Kind::exact, "model.layers.0.self_attn.q_proj").ok());
  EXPECT_EQ(*shard.first_index(names_of(q)), 0);
  EXPECT_EQ(*shard.first_index(names_of(k)), -1);
}

TEST(PatternList, LanguageModelInfixIsNoDifference) {
  ModuleRef module{.path = "model.language_model.layers.0.mlp.gate", .fused = {}};
  PatternList list;
  ASSERT_TRUE(list.add(Pattern::Kind::exact, "model.layers.0.mlp.gate").ok());
  EXPECT_EQ(*list.first_index(names_of(module)), 0);
}

TEST(PatternList, TellsWhatMatchedNothing) {
  test::MemoryCheckpoint checkpoint;
  checkpoint.add_zeros("visual.patch.weight", Dtype::f32, {1});
  checkpoint.add_zeros("model.layers.0.mlp.gate.weight", Dtype::f32, {1});
  PatternList list;
  for (const char* text : {"visual", "model.layers.0.mlp.gate", "model.layers.7.mlp.gate"})
    ASSERT_TRUE(list.add(Pattern::Kind::exact, text).ok());
  for (const char* text : {".*gate$", ".*qate$", "fused"}) ASSERT_TRUE(list.add(Pattern::Kind::regex, text).ok());
  EXPECT_EQ(*list.first_index({"fused.name"}), 5);
  EXPECT_EQ(list.unmatched(checkpoint), (std::vector<std::string>{"model.layers.7.mlp.gate", ".*qate$"}));
}

TEST(PatternList, BoundsTheNumberOfRegexes) {
  PatternList list;
  Result<> last = Ok{};
  for (int i = 0; i < 1025 && last.ok(); ++i) last = list.add(Pattern::Kind::regex, "a");
  ASSERT_FALSE(last.ok());
  EXPECT_EQ(last.error().code, "config.range");
}

}  // namespace
}  // namespace moracle
