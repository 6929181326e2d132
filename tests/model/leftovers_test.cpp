// Tensors that a model leaves over: set aside by the module that they hang on, or refused with the likely cause.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/model_fixture.h"
#include "support/mutable_checkpoint.h"
#include "support/temporary_folder.h"

namespace moracle::test {
namespace {

struct Verdict {
  Error error{};
  std::vector<std::string> warnings{};
};

Verdict plan_of(const std::filesystem::path& original, const std::function<void(MutableCheckpoint&)>& change) {
  MutableCheckpoint copy = MutableCheckpoint::read(original);
  change(copy);
  const TemporaryFolder folder;
  copy.write(folder.path());
  auto checkpoint = Checkpoint::open(folder.path());
  if (!checkpoint.ok()) return {checkpoint.error()};
  const auto plan = LoadPlan::make(*checkpoint, probe_machine(), pinned("ref"));
  if (!plan.ok()) return {plan.error()};
  return {{}, (*plan)->warnings()};
}

const std::filesystem::path kPlain = data_dir() / "field" / "00-base";
const std::filesystem::path kQuantized = data_dir() / "field" / "10-autoround-packing-auto_round";
const std::string kLayer = "model.layers.0.";

TEST(Leftovers, TextNeedsNone) {
  const std::vector<std::pair<std::string, std::string>> rows{
      {"visual.blocks.0.attn.qkv.weight", "visual (1)"},
      {"model.visual.merger.mlp.0.bias", "model.visual (1)"},
      {"vision_tower.encoder.layers.3.self_attn.q_proj.weight", "vision_tower (1)"},
      {"model.vision_tower.norm.weight", "model.vision_tower (1)"},
      {"vision_model.embeddings.patch_embedding.weight", "vision_model (1)"},
      {"mm_projector.proj.0.weight", "mm_projector (1)"},
      {"model.multi_modal_projector.linear_1.weight", "model.multi_modal_projector (1)"},
      {"audio_tower.layers.0.fc1.weight", "audio_tower (1)"},
      {"aligner.layers.0.weight", "aligner (1)"},
      {"talker.model.layers.0.self_attn.q_proj.weight", "talker (1)"},
      {"image_newline", "image_newline (1)"},
      {"model.vision_embed_tokens.weight", "model.vision_embed_tokens (1)"},
      {"pre_mm_projector_norm.weight", "pre_mm_projector_norm (1)"},
      {"model.patch_embedding.bias", "model.patch_embedding (1)"},
      {"model.visual_norm.weight", "model.visual_norm (1)"},
      {"mtp.layers.0.self_attn.q_proj.weight", "mtp (1)"},
      {"model.mtp.fc.weight", "model.mtp (1)"},
      {"eagle.layers.0.mlp.gate_proj.weight", "eagle (1)"},
      {"medusa_head.0.1.weight", "medusa_head (1)"},
      {"score.weight", "score (1)"},
      {"v_head.summary.weight", "v_head (1)"},
      {"model.rotary_emb.inv_freq", "model.rotary_emb (1)"},
      {kLayer + "self_attn.rotary_emb.inv_freq", "inv_freq (1)"},
      {kLayer + "self_attn.rotary_emb.cos_cached", "cos_cached (1)"},
      {kLayer + "self_attn.k_scale", "k_scale (1)"},
      {kLayer + "self_attn.k_proj.k_scale", "k_scale (1)"},
      {kLayer + "self_attn.attn.v_scale", "v_scale (1)"},
      {kLayer + "self_attn.kv_cache.scale", "scale (1)"},
      {kLayer + "self_attn.kv_scale", "kv_scale (1)"},
      {kLayer + "self_attn.kv_cache_scaling_factor", "kv_cache_scaling_factor (1)"},
      {kLayer + "self_attn.key_value_scale", "key_value_scale (1)"},
      {kLayer + "self_attn.q_proj.q_scale", "q_scale (1)"},
      {kLayer + "self_attn.k_cache.scale", "scale (1)"},
      {kLayer + "self_attn.attn.scale", "scale (1)"},
      {kLayer + "self_attn.o_proj.out_scale", "out_scale (1)"},
      {kLayer + "self_attn.k_zero_point", "k_zero_point (1)"},
      {kLayer + "self_attn.prob_output_scale", "prob_output_scale (1)"},
      {kLayer + "self_attn.softmax_scale", "softmax_scale (1)"},
      {kLayer + "self_attn.k_proj.output_scale", "output_scale (1)"},
      {kLayer + "self_attn.v_proj.output_zero_point", "output_zero_point (1)"},
      {kLayer + "self_attn.k_bmm_quantizer._amax", "_amax (1)"},
      {kLayer + "self_attn.q_proj.input_quantizer._amax", "_amax (1)"},
      {kLayer + "mlp.experts.0.up_proj.weight_quantizer._scale", "_scale (1)"},
      {kLayer + "mlp.gate.input_scale", "input_scale (1)"},
      {kLayer + "mlp.gate.act_scale", "act_scale (1)"},
      {kLayer + "self_attn.o_proj.input_global_scale", "input_global_scale (1)"},
      {kLayer + "mlp.experts.3.down_proj.input_scale", "input_scale (1)"},
      {kLayer + "mlp.experts.gate_up_proj_input_scale", "gate_up_proj_input_scale (1)"},
      {kLayer + "mlp.gate.tokens_per_expert", "tokens_per_expert (1)"},
      {kLayer + "self_attn.q_proj._extra_state", "_extra_state (1)"},
      {kLayer + "mlp.experts._extra_state", "_extra_state (1)"},
      {kLayer + "self_attn.masked_bias", "masked_bias (1)"},
      {"lm_head.input_scale", "input_scale (1)"},
      {"lm_head.output_quantizer._amax", "_amax (1)"},
  };
  for (const auto& [name, label] : rows) {
    SCOPED_TRACE(name);
    const Verdict one = plan_of(kPlain, [&](auto& c) { c.add_zeros(name, "F32", {1}); });
    EXPECT_EQ(one.error.code, "") << one.error.message();
    ASSERT_EQ(one.warnings.size(), 1U);
    EXPECT_EQ(one.warnings[0], "1 tensor is left aside, since text needs none of it: " + label);
  }
  const Verdict all = plan_of(kPlain, [&](auto& c) {
    for (const auto& [name, label] : rows) c.add_zeros(name, "F32", {1});
    c.add_zeros(kLayer + "self_attn.bias", "U8", {1, 1, 16, 16});
  });
  EXPECT_EQ(all.error.code, "") << all.error.message();
  ASSERT_EQ(all.warnings.size(), 1U);
  EXPECT_THAT(all.warnings[0], testing::StartsWith(std::to_string(rows.size() + 1) + " tensors are left aside"));
}

TEST(Leftovers, ALayerCouldHaveUsed) {
  const char* other = "config.json does not ask for it";
  const std::vector<std::pair<std::string, std::string>> rows{
      {kLayer + "self_attn.sinks", other},
      {kLayer + "mlp.shared_expert.gate_proj.weight", other},
      {kLayer + "mlp.gate.e_score_correction_bias", other},
      {kLayer + "self_attn.q_a_layernorm.weight", other},
      {kLayer + "input_layernorm.bias", other},
      {"model.embed_positions.weight", other},
      {"model.embedding_norm.weight", other},
      {kLayer + "self_attn.q_proj.weight_scale", "quantization_config is not that of these weights"},
      {kLayer + "self_attn.q_proj.scales", "quantization_config is not that of these weights"},
      {kLayer + "mlp.experts.2.up_proj.weight_scale_inv", "quantization_config is not that of these weights"},
      {kLayer + "self_attn.q_proj.lora_A.weight", "an adapter has to be merged"},
      {"base_model.model." + kLayer + "self_attn.q_proj.lora_A.weight", "an adapter has to be merged"},
      {kLayer + "self_attn.q_proj.pre_quant_scale", "inputs were smoothed"},
      {kLayer + "self_attn.q_proj.prequant_scaling_factor", "inputs were smoothed"},
      {kLayer + "self_attn.q_proj.input_quantizer._pre_quant_scale", "inputs were smoothed"},
      {kLayer + "layer_scalar", other},
      {kLayer + "mlp.per_expert_scale", other},
      {kLayer + "mlp.shared_expert.up_proj.weight_scale", other},
      {"model.layers.1.input_layernorm.weight", "num_hidden_layers = 1, and layer 1 is stored"},
      {"language_model.model.layers.0.input_layernorm.weight", "a second text model"},
      {"layers.0.attention.wq.weight", "a second text model"},
  };
  for (const auto& [name, cause] : rows) {
    SCOPED_TRACE(name);
    const Error error = plan_of(kPlain, [&](auto& c) { c.add_zeros(name, "F32", {1}); }).error;
    EXPECT_EQ(error.code, "tensor.unused");
    EXPECT_EQ(error.where, name);
    EXPECT_THAT(error.advice, testing::HasSubstr(cause));
  }
}

TEST(Leftovers, InputsOfQuantizedModulesAreTheirs) {
  const auto with = [](const std::string& name) {
    return plan_of(kQuantized, [&](auto& c) { c.add_zeros(name, "F32", {1}); });
  };
  for (const char* name : {"mlp.experts.0.up_proj.input_scale", "mlp.experts.1.down_proj.input_zero_point",
                           "mlp.experts.down_proj_input_scale"}) {
    const Error error = with(kLayer + name).error;
    EXPECT_EQ(error.code, "tensor.unused") << name;
    EXPECT_THAT(error.advice, testing::HasSubstr("inputs of this module are not quantized"));
  }
  EXPECT_EQ(with(kLayer + "self_attn.q_proj.input_scale").error.code, "");
  EXPECT_EQ(with(kLayer + "mlp.gate.input_scale").error.code, "");
}

TEST(Leftovers, DraftHeadsBeyondTheLayers) {
  const Verdict drafts = plan_of(kPlain, [](auto& c) {
    c.add_zeros("model.layers.1.eh_proj.weight", "F32", {2, 2});
    c.add_zeros("model.layers.1.self_attn.q_proj.weight", "F32", {2, 2});
  });
  EXPECT_EQ(drafts.error.code, "") << drafts.error.message();
  ASSERT_EQ(drafts.warnings.size(), 1U);
  EXPECT_THAT(drafts.warnings[0], testing::HasSubstr("draft heads in 1 layer from 1 on (2)"));
}

// A text model below a prefix that no one here has met.
TEST(Leftovers, UnknownWrappers) {
  const auto below = [](const std::string& root) {
    return plan_of(kPlain, [&](auto& c) {
      for (const std::string& name : c.names()) {
        c.rename(name, root + (name.starts_with("model.") ? name.substr(6) : name));
      }
    });
  };
  for (const char* root : {"model.language_model.", "language_model.model.", "language_model.", "thinker.model.", ""}) {
    const Verdict verdict = below(root);
    EXPECT_EQ(verdict.error.code, "") << root << ": " << verdict.error.message();
    EXPECT_TRUE(verdict.warnings.empty());
  }
}

}  // namespace
}  // namespace moracle::test
