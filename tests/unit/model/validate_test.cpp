#include "model/spec/validate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "support/memory_checkpoint.h"

namespace moracle {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

AttentionSpec attention() {
  AttentionSpec spec;
  spec.shape.heads = 4;
  spec.shape.kv_heads = 2;
  spec.shape.head_dim = 16;
  spec.rope = 0;
  return spec;
}

MoeSpec moe() {
  MoeSpec spec;
  spec.routing = {.experts = 8, .top_k = 4, .groups = 4, .top_groups = 2};
  spec.experts.experts = 8;
  spec.experts.hidden = 64;
  spec.experts.intermediate = 32;
  return spec;
}

ModelSpec good() {
  ModelSpec spec;
  spec.info.layers = 3;
  spec.info.hidden_size = 64;
  spec.info.vocab_size = 100;
  spec.info.max_context = 512;
  spec.ropes.push_back({.rotary_dims = 8, .inv_freq = {1, 0.5, 0.25, 0.125}, .max_positions = 512});
  LatentAttentionSpec latent;
  latent.shape.heads = 4;
  latent.shape.qk_nope_head_dim = 8;
  latent.shape.qk_rope_head_dim = 8;
  latent.shape.v_head_dim = 8;
  latent.shape.kv_lora_rank = 16;
  latent.rope = 0;
  DeltaNetSpec delta;
  delta.shape.key_heads = 2;
  delta.shape.value_heads = 4;
  delta.shape.key_dim = 8;
  delta.shape.value_dim = 8;
  delta.shape.kernel = 4;
  spec.layers.resize(3);
  spec.layers[0].mixer = attention();
  spec.layers[1].mixer = latent;
  spec.layers[2].mixer = delta;
  spec.layers[0].feed_forward = moe();
  DenseSpec dense;
  dense.gate.out = 128;
  spec.layers[1].feed_forward = dense;
  spec.layers[2].feed_forward = dense;
  return spec;
}

template <class T>
T& mixer(ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers) {
    if (auto* const found = std::get_if<T>(&layer.mixer)) return *found;
  }
  std::abort();
}
RoutingSpec& routing(ModelSpec& spec) {
  return std::get<MoeSpec>(spec.layers[0].feed_forward).routing;
}

Error refusal(const ModelSpec& spec, Json config) {
  config["model_type"] = "tiny";
  const test::MemoryCheckpoint checkpoint(std::move(config));
  const auto read = ModelConfig::of(checkpoint);
  EXPECT_TRUE(read.ok());
  const auto result = validate(spec, *read);
  return result.ok() ? Error{} : result.error();
}

struct Row {
  const char* key;  // that the member is read from
  std::function<void(ModelSpec&)> change;
};

TEST(Validate, AcceptsWhatCanBeBuilt) {
  EXPECT_EQ(refusal(good(), {}).code, "");
}

TEST(Validate, NamesTheKeyOfEveryMember) {
  using Attention = AttentionSpec;
  using Latent = LatentAttentionSpec;
  using Delta = DeltaNetSpec;
  const std::vector<Row> rows{
      {"num_hidden_layers", [](ModelSpec& s) { s.info.layers = 0; }},
      {"num_hidden_layers", [](ModelSpec& s) { s.info.layers = 2; }},
      {"num_hidden_layers", [](ModelSpec& s) { s.info.layers = 1 << 20; }},
      {"hidden_size", [](ModelSpec& s) { s.info.hidden_size = -1; }},
      {"vocab_size", [](ModelSpec& s) { s.info.vocab_size = 0; }},
      {"max_position_embeddings", [](ModelSpec& s) { s.info.max_context = 0; }},
      {"rms_norm_eps", [](ModelSpec& s) { s.final_norm.eps = 0; }},
      {"rms_norm_eps", [](ModelSpec& s) { s.layers[1].post_norm.eps = std::nanf(""); }},
      {"rms_norm_eps", [](ModelSpec& s) { s.layers[2].input_norm.eps = kInfinity; }},
      {"num_attention_heads", [](ModelSpec& s) { mixer<Attention>(s).shape.heads = 0; }},
      {"num_key_value_heads", [](ModelSpec& s) { mixer<Attention>(s).shape.kv_heads = 3; }},
      {"num_key_value_heads", [](ModelSpec& s) { mixer<Attention>(s).shape.kv_heads = 0; }},
      {"num_key_value_heads", [](ModelSpec& s) { mixer<Attention>(s).shape.kv_heads = 8; }},
      {"head_dim", [](ModelSpec& s) { mixer<Attention>(s).shape.head_dim = 0; }},
      {"sliding_window", [](ModelSpec& s) { mixer<Attention>(s).shape.window = -1; }},
      {"clip_qkv", [](ModelSpec& s) { mixer<Attention>(s).shape.clip = kInfinity; }},
      {"partial_rotary_factor", [](ModelSpec& s) { mixer<Attention>(s).shape.head_dim = 4; }},
      {"partial_rotary_factor", [](ModelSpec& s) { mixer<Attention>(s).rope = 7; }},
      {"partial_rotary_factor", [](ModelSpec& s) { s.ropes[0].rotary_dims = 3; }},
      {"rope_theta", [](ModelSpec& s) { s.ropes[0].inv_freq[1] = kInfinity; }},
      {"rope_theta", [](ModelSpec& s) { s.ropes[0].scale = 0; }},
      {"qk_nope_head_dim", [](ModelSpec& s) { mixer<Latent>(s).shape.qk_nope_head_dim = 0; }},
      {"qk_rope_head_dim", [](ModelSpec& s) { mixer<Latent>(s).shape.qk_rope_head_dim = 0; }},
      {"v_head_dim", [](ModelSpec& s) { mixer<Latent>(s).shape.v_head_dim = -8; }},
      {"kv_lora_rank", [](ModelSpec& s) { mixer<Latent>(s).shape.kv_lora_rank = 0; }},
      {"linear_num_key_heads", [](ModelSpec& s) { mixer<Delta>(s).shape.key_heads = 0; }},
      {"linear_num_value_heads", [](ModelSpec& s) { mixer<Delta>(s).shape.value_heads = 3; }},
      {"linear_key_head_dim", [](ModelSpec& s) { mixer<Delta>(s).shape.key_dim = 0; }},
      {"linear_value_head_dim", [](ModelSpec& s) { mixer<Delta>(s).shape.value_dim = 0; }},
      {"linear_conv_kernel_dim", [](ModelSpec& s) { mixer<Delta>(s).shape.kernel = 0; }},
      {"kda_lower_bound", [](ModelSpec& s) { mixer<Delta>(s).shape.least_decay = 1.0F; }},
      {"num_experts", [](ModelSpec& s) { routing(s).experts = 0; }},
      {"num_experts_per_tok", [](ModelSpec& s) { routing(s).top_k = 8; }},
      {"num_experts_per_tok", [](ModelSpec& s) { routing(s).top_k = 0; }},
      {"n_group", [](ModelSpec& s) { routing(s).groups = 3; }},
      {"topk_group", [](ModelSpec& s) { routing(s).top_groups = 5; }},
      {"routed_scaling_factor", [](ModelSpec& s) { routing(s).factor = kInfinity; }},
      {"moe_intermediate_size",
       [](ModelSpec& s) { std::get<MoeSpec>(s.layers[0].feed_forward).experts.intermediate = 0; }},
      {"intermediate_size", [](ModelSpec& s) { std::get<DenseSpec>(s.layers[1].feed_forward).gate.out = 0; }},
      {"swiglu_limit", [](ModelSpec& s) { std::get<MoeSpec>(s.layers[0].feed_forward).activation.limit = -1; }},
  };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(std::string(rows[i].key) + ", row " + std::to_string(i));
    ModelSpec spec = good();
    rows[i].change(spec);
    const Error stated = refusal(spec, {{rows[i].key, 1}});
    EXPECT_EQ(stated.code, "config.range") << stated.message();
    EXPECT_EQ(stated.where, std::string("/") + rows[i].key) << stated.message();
    EXPECT_TRUE(stated.file.ends_with("config.json")) << stated.message();
    // Where no key holds it, the family's default does not fit.
    const Error absent = refusal(spec, {});
    EXPECT_EQ(absent.code, "config.missing") << absent.message();
    EXPECT_EQ(absent.where.front(), '/') << absent.message();
  }
}

TEST(Validate, KnowsEverySpellingOfAKey) {
  ModelSpec spec = good();
  routing(spec).top_k = 9;
  EXPECT_EQ(refusal(spec, {{"moe_top_k", 9}}).where, "/moe_top_k");
  EXPECT_EQ(refusal(spec, {{"experts_per_token", 9}}).where, "/experts_per_token");
  EXPECT_EQ(refusal(spec, {{"text_config", {{"moe_top_k", 9}}}}).where, "/text_config/moe_top_k");
  EXPECT_EQ(refusal(spec, {{"moe_top_k", nullptr}}).code, "config.missing");
  EXPECT_EQ(refusal(spec, {{"moe_top_k", nullptr}}).where, "/num_experts_per_tok");
}

}  // namespace
}  // namespace moracle
