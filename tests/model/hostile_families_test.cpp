// Configs of single families that must be refused, and tensors that they must not do without.
#include <gtest/gtest.h>

#include <fstream>

#include "support/model_fixture.h"
#include "support/tiny_model.h"

namespace moracle::test {
namespace {

// A tiny checkpoint of the family, to be damaged.
class Copy {
 public:
  // Below tests/data/families, or anywhere when absolute.
  explicit Copy(const std::filesystem::path& folder) {
    auto opened = Checkpoint::open(data_dir() / "families" / folder);
    EXPECT_TRUE(opened.ok());
    original_ = *opened;
    config = original_->config();
    for (const auto& [tensor, view] : original_->tensors()) tensors.insert(tensor);
  }

  // What the plan says of the copy; warnings where it is accepted.
  struct Verdict {
    Error error{};
    std::vector<std::string> warnings{};
  };
  [[nodiscard]] Verdict plan() const {
    const TemporaryFolder folder;
    std::ofstream(folder.path() / "config.json") << config.dump();
    write(folder.path() / "model.safetensors");
    auto checkpoint = Checkpoint::open(folder.path());
    if (!checkpoint.ok()) return {checkpoint.error()};
    auto plan = LoadPlan::make(*checkpoint, probe_machine(), pinned("ref"));
    if (!plan.ok()) return {plan.error()};
    return {{}, (*plan)->warnings()};
  }

  Json config;
  std::set<std::string> tensors;

 private:
  void write(const std::filesystem::path& path) const {
    std::vector<TensorSpec> specs;
    for (const std::string& name : tensors) {
      const TensorView* view = original_->find(name);
      specs.push_back({name, view->dtype, view->shape});
    }
    auto writer = SafetensorsWriter::create(path, specs);
    ASSERT_TRUE(writer.ok());
    for (const std::string& name : tensors) ASSERT_TRUE(writer->write(name, original_->find(name)->bytes).ok());
    ASSERT_TRUE(writer->finish().ok());
  }

  std::shared_ptr<const Checkpoint> original_;
};

struct Row {
  const char* folder;
  const char* key;
  Json value;
  const char* code;
  const char* where = nullptr;  // default: the key
};

TEST(HostileFamilies, Configs) {
  const Json kinds = Json::array({"full_attention", "sliding_attention", "chunked_attention"});
  const Json mscale{{"type", "yarn"}, {"factor", 8}, {"mscale", 1.0}, {"mscale_all_dim", -1e4}};
  const Json other_heads{{"attention_type", "sliding_attention"}, {"num_attention_heads", 5}};
  const std::vector<Row> rows{
      {"glm4_moe-grouped", "n_group", 3, "config.range"},
      {"glm4_moe-grouped", "n_group", 0, "config.range"},
      {"glm4_moe-grouped", "topk_group", 3, "config.range"},
      {"glm4_moe-grouped", "num_experts_per_tok", 5, "config.range"},  // the chosen group has 4
      {"glm4_moe-grouped", "num_local_experts", 7, "config.range", "/n_group"},
      {"glm4_moe-grouped", "scoring_func", "softmax", "config.unsupported"},
      {"glm4_moe-grouped", "topk_method", "greedy", "config.unsupported"},
      {"glm4_moe-grouped", "routed_scaling_factor", 0, "config.range"},
      {"glm4_moe-grouped", "routed_scaling_factor", "2", "config.type"},
      {"glm4_moe-grouped", "first_k_dense_replace", 2, "tensor.missing", "model.layers.1.mlp.gate_proj.weight"},
      {"glm4_moe-grouped", "n_shared_experts", 1, "tensor.shape", "model.layers.1.mlp.shared_experts.gate_proj.weight"},
      {"glm4_moe-grouped", "n_shared_experts", 0, "tensor.unused",
       "model.layers.1.mlp.shared_experts.down_proj.weight"},
      {"glm4_moe-grouped", "use_qk_norm", true, "tensor.missing", "model.layers.0.self_attn.q_norm.weight"},
      {"glm4_moe-stacked", "use_qk_norm", false, "tensor.unused", "model.layers.0.self_attn.k_norm.weight"},
      {"glm4_moe-stacked", "attention_bias", true, "tensor.missing", "model.layers.0.self_attn.q_proj.bias"},
      {"gpt_oss-stacked", "layer_types", Json::array({"full_attention"}), "config.range"},
      {"gpt_oss-stacked", "layer_types", kinds, "config.unsupported"},
      {"gpt_oss-stacked", "layer_types", Json::array({1, 2, 3}), "config.type"},
      {"gpt_oss-stacked", "layer_types", "full_attention", "config.type"},
      {"gpt_oss-stacked", "hidden_act", "gelu", "config.unsupported"},
      {"gpt_oss-stacked", "swiglu_limit", 0, "config.range"},
      {"gpt_oss-stacked", "swiglu_alpha", -1.702, "config.range"},
      {"gpt_oss-stacked", "sliding_window", 0, "config.range"},
      {"olmoe-clip", "clip_qkv", -8.0, "config.range"},
      {"olmoe-clip", "clip_qkv", "8", "config.type"},
      {"olmoe-clip", "num_key_value_heads", nullptr, "tensor.shape", "model.layers.0.self_attn.k_proj.weight"},
      {"qwen3_next", "linear_num_value_heads", 3, "config.range"},  // 2 key heads
      {"qwen3_next", "linear_num_value_heads", std::int64_t{1} << 40, "config.range"},
      {"qwen3_next", "linear_num_key_heads", 0, "config.range"},
      {"qwen3_next", "linear_key_head_dim", 0, "config.range"},
      {"qwen3_next", "linear_value_head_dim", "16", "config.type"},
      {"qwen3_next", "linear_conv_kernel_dim", 65, "config.range"},
      {"qwen3_next", "linear_conv_kernel_dim", 3, "tensor.shape", "model.layers.0.linear_attn.conv1d.weight"},
      {"qwen3_next", "full_attention_interval", 0, "config.range"},
      {"qwen3_next", "full_attention_interval", 2, "tensor.missing", "model.layers.1.self_attn.q_proj.weight"},
      {"qwen3_next", "attn_output_gate", false, "tensor.shape", "model.layers.3.self_attn.q_proj.weight"},
      {"qwen3_next", "partial_rotary_factor", 0.01, "config.range"},
      {"qwen3_next", "model_type", "qwen3_5_moe", "tensor.missing", "model.layers.0.linear_attn.in_proj_qkv.weight"},
      {"qwen3_next-mixed", "layer_types", kinds, "config.range"},
      {"qwen3_next-mixed", "layer_types", Json::array({"full_attention", "mamba", "mamba", "mamba"}),
       "config.unsupported"},
      {"qwen3_next-mixed", "mlp_only_layers", Json::array({4}), "config.range"},
      {"qwen3_next-mixed", "decoder_sparse_step", 0, "config.range"},
      {"qwen3_5_moe-text", "num_experts", 0, "config.range"},
      {"qwen3_5_moe-text", "num_experts_per_tok", 5, "config.range"},
      {"qwen3_5_moe-text", "shared_expert_intermediate_size", 16, "tensor.shape",
       "model.layers.0.mlp.shared_expert.gate_proj.weight"},
      {"deepseek_v3-direct", "scoring_func", "softmax", "config.unsupported"},
      {"minimax_m2", "use_routing_bias", false, "config.unsupported"},
      {"deepseek_v3-direct", "topk_group", 1, "config.range", "/num_experts_per_tok"},
      {"deepseek_v3-direct", "num_key_value_heads", 2, "config.unsupported"},
      {"deepseek_v3-direct", "q_lora_rank", 24, "tensor.missing", "model.layers.0.self_attn.q_a_proj.weight"},
      {"deepseek_v3-halves", "q_lora_rank", nullptr, "tensor.missing", "model.layers.0.self_attn.q_proj.weight"},
      {"deepseek_v3-halves", "q_lora_rank", 0, "config.range"},
      {"deepseek_v3-halves", "qk_rope_head_dim", 7, "config.range", "/partial_rotary_factor"},
      {"deepseek_v3-halves", "qk_nope_head_dim", 15, "tensor.shape", "model.layers.0.self_attn.q_b_proj.weight"},
      {"deepseek_v3-halves", "v_head_dim", 13, "tensor.shape", "model.layers.0.self_attn.kv_b_proj.weight"},
      {"deepseek_v3-halves", "kv_lora_rank", 1LL << 40, "config.range"},
      {"deepseek_v3-halves", "kv_lora_rank", 31, "tensor.shape", "model.layers.0.self_attn.kv_a_proj_with_mqa.weight"},
      {"deepseek_v3-halves", "attention_bias", true, "tensor.missing", "model.layers.0.self_attn.q_a_proj.bias"},
      {"deepseek_v3-direct", "attention_bias", "no", "config.type"},
      {"deepseek_v3-halves", "moe_layer_freq", 2, "tensor.missing", "model.layers.1.mlp.gate_proj.weight"},
      {"deepseek_v3-halves", "rope_interleave", 1, "config.type"},
      {"deepseek_v3-direct", "rope_scaling", mscale, "config.range", "/rope_scaling/mscale"},
      {"nemotron_h", "mlp_hidden_act", "silu", "config.unsupported"},
      {"nemotron_h", "mlp_bias", true, "config.unsupported"},
      {"nemotron_h", "time_step_limit", Json::array({0.0, 0.1}), "config.unsupported"},
      {"nemotron_h", "hybrid_override_pattern", "ME*E-X", "config.unsupported"},
      {"nemotron_h", "hybrid_override_pattern", "", "config.range"},
      {"nemotron_h", "hybrid_override_pattern", "ME*E-E", "tensor.missing", "backbone.layers.5.mixer.gate.weight"},
      {"nemotron_h", "hybrid_override_pattern", "ME*E-", "tensor.unused", "backbone.layers.5.mixer.A_log"},
      {"nemotron_h", "use_bias", true, "tensor.missing", "backbone.layers.0.mixer.in_proj.bias"},
      {"nemotron_h", "moe_latent_size", 16, "tensor.missing", "backbone.layers.1.mixer.fc1_latent_proj.weight"},
      {"nemotron_h-latent", "layers_block_type", Json::array({"moe", 1}), "config.unsupported"},
      {"nemotron_h-latent", "moe_latent_size", 17, "tensor.shape", "backbone.layers.2.mixer.fc1_latent_proj.weight"},
      {"deepseek_v2-groups", "norm_topk_prob", true, "config.unsupported"},
      {"deepseek_v2-groups", "topk_method", "noaux_tc", "config.unsupported"},
      {"deepseek_v2-groups", "n_group", nullptr, "config.missing"},
      {"deepseek_v2-groups", "n_group", 3, "config.range"},
      {"deepseek_v2-groups", "mlp_bias", true, "config.unsupported"},
      {"deepseek_v2-greedy", "num_experts_per_tok", nullptr, "config.missing"},
      {"step3p5-lists", "layer_types", Json::array({"full_attention"}), "config.range"},
      {"step3p5-lists", "zero_centered", false, "config.unsupported"},
      {"step3p5-lists", "moe_router_activation", "softmax", "config.unsupported"},
      {"step3p5-lists", "moe_layers_enum", "1,x", "config.range"},
      {"step3p5-lists", "moe_layers_enum", "99999999999999999999", "config.range"},
      {"step3p5-lists", "moe_layers_enum", 3, "config.type"},
      {"step3p5-lists", "moe_layers_enum", "1,2", "tensor.missing", "model.layers.3.mlp.gate_proj.weight"},
      {"step3p5-lists", "mlp_layer_types", Json::array({"dense", "moe", "moe", "moe"}), "config.unsupported"},
      {"step3p5-lists", "moe_num_experts", 9, "tensor.shape", "model.layers.1.moe.gate.weight"},
      {"step3p5-lists", "rope_theta", Json::array({1e4}), "config.range"},
      {"step3p5-lists", "rope_theta", 0, "config.range"},
      {"step3p5-lists", "rope_theta", "1e4", "config.type"},
      {"step3p5-lists", "partial_rotary_factors", 0.2, "config.range", "/rope_scaling/partial_rotary_factor"},
      {"step3p5-lists", "partial_rotary_factors", Json::array({2, 1, 1, 1}), "config.range"},
      {"step3p5-lists", "rope_scaling", "llama3", "config.type"},
      {"step3p5-lists", "yarn_only_types", "full_attention", "config.type"},
      {"step3p5-lists", "swiglu_limits", Json::array({0, 0, "7", 0}), "config.type"},
      {"step3p5-lists", "swiglu_limits_shared", Json::array({0, 0, -7, 0}), "config.range"},
      {"step3p5-lists", "sliding_window", nullptr, "config.missing"},
      {"step3p5-lists", "attention_other_setting", 6, "config.type"},
      {"step3p5-lists", "attention_other_setting", other_heads, "config.range", "/num_attention_groups"},
      {"step3p5-lists", "num_sliding_attention_heads", 4, "tensor.shape", "model.layers.1.self_attn.q_proj.weight"},
      {"step3p5-lists", "use_head_wise_attn_gate", false, "tensor.unused", "model.layers.0.self_attn.g_proj.weight"},
      {"step3p5-lists", "use_moe_router_bias", false, "tensor.unused", "model.layers.1.moe.router_bias"},
      {"step3p5-lists", "use_qk_norm", false, "tensor.unused", "model.layers.0.self_attn.k_norm.weight"},
      {"step3p5-lists", "share_expert_dim", 25, "tensor.shape", "model.layers.1.share_expert.gate_proj.weight"},
      {"step3p5-lists", "query_pre_attn_scalar", 64, "config.unsupported"},
      {"longcat_flash", "num_layers", 3, "tensor.missing", "model.layers.2.input_layernorm.0.weight"},
      {"longcat_flash", "num_layers", 1, "tensor.unused", "model.layers.1.input_layernorm.0.weight"},
      {"longcat_flash", "num_layers", 0, "config.range"},
      {"longcat_flash", "num_layers", nullptr, "tensor.missing", "model.layers.2.input_layernorm.0.weight"},
      {"longcat_flash", "moe_topk", 6, "config.range"},
      {"longcat_flash", "zero_expert_num", 3, "tensor.shape", "model.layers.0.mlp.router.classifier.weight"},
      {"longcat_flash", "zero_expert_num", nullptr, "tensor.shape", "model.layers.0.mlp.router.classifier.weight"},
      {"longcat_flash", "zero_expert_num", -1, "config.range"},
      {"longcat_flash", "zero_expert_type", "copy", "config.unsupported"},
      {"longcat_flash", "mla_scale_kv_lora", false, "config.unsupported"},
      {"longcat_flash", "norm_topk_prob", true, "config.unsupported"},
      {"longcat_flash", "router_bias", true, "config.unsupported"},
      {"longcat_flash", "ngram_vocab_size_ratio", 78, "config.unsupported"},
      {"longcat_flash", "q_lora_rank", nullptr, "config.unsupported"},
      {"longcat_flash-saved", "qk_head_dim", 17, "config.unsupported"},
      {"kimi_linear", "mla_use_nope", false, "config.unsupported"},
      {"kimi_linear", "mla_use_output_gate", true, "config.unsupported"},
      {"kimi_linear", "linear_attn_config", Json::array(), "config.type"},
      {"kimi_linear", "linear_attn_config", Json{{"kda_layers", {1, 2}}, {"full_attn_layers", {2}}}, "config.range"},
      {"kimi_linear", "linear_attn_config", Json{{"kda_layers", {1, 2}}, {"full_attn_layers", {4}}}, "config.range",
       "/linear_attn_config/full_attn_layers"},
      {"bailing_hybrid", "kda_lower_bound", 0.0, "config.range"},
      {"bailing_hybrid", "no_kda_lora", false, "config.unsupported"},
      {"bailing_hybrid", "gated_attention_proj_granularity_type", "element_wise", "config.unsupported"},
      {"bailing_hybrid", "expert_swiglu_limit_list", Json::array({0, -1, 0}), "config.range"},
      {"bailing_hybrid", "share_expert_swiglu_limit_list", 7, "config.type"},
      {"bailing_hybrid", "layer_group_size", 2, "tensor.missing", "model.layers.1.attention.kv_a_proj_with_mqa.weight"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(std::string(row.folder) + " " + row.key + " = " + row.value.dump());
    Copy copy(row.folder);
    copy.config[row.key] = row.value;
    const Error error = copy.plan().error;
    EXPECT_EQ(error.code, row.code) << error.message();
    EXPECT_EQ(error.where, row.where != nullptr ? std::string(row.where) : "/" + std::string(row.key));
  }
}

// Ling 2.5 has the model_type of Ling 3, and layers of lightning attention.
TEST(HostileFamilies, LightningAttentionIsRefused) {
  Copy copy("bailing_hybrid");
  ASSERT_EQ(copy.tensors.erase("model.layers.0.attention.q_conv1d.weight"), 1U);
  const Error error = copy.plan().error;
  EXPECT_EQ(error.code, "config.unsupported") << error.message();
  EXPECT_EQ(error.where, "/model_type");
}

TEST(HostileFamilies, BiasesThatTheModelHasAreStored) {
  const std::string layer = "model.layers.1.";
  for (const char* name : {"self_attn.q_proj.bias", "self_attn.o_proj.bias", "self_attn.sinks", "mlp.router.bias"}) {
    Copy copy("gpt_oss-stacked");
    ASSERT_EQ(copy.tensors.erase(layer + name), 1U);
    const Error error = copy.plan().error;
    EXPECT_EQ(error.code, "tensor.missing") << error.message();
    EXPECT_EQ(error.where, layer + name);
  }
  Copy half("gpt_oss-stacked");
  ASSERT_EQ(half.tensors.erase(layer + "mlp.experts.down_proj_bias"), 1U);
  EXPECT_EQ(half.plan().error.code, "experts.scheme");
  ASSERT_EQ(half.tensors.erase(layer + "mlp.experts.gate_up_proj_bias"), 1U);
  const Error error = half.plan().error;
  EXPECT_EQ(error.code, "tensor.missing") << error.message();
  EXPECT_EQ(error.where, layer + "mlp.experts");
}

TEST(HostileFamilies, CorrectionBiasIsStored) {
  Copy copy("glm4_moe-grouped");
  ASSERT_EQ(copy.tensors.erase("model.layers.1.mlp.gate.e_score_correction_bias"), 1U);
  EXPECT_EQ(copy.plan().error.code, "tensor.missing");
}

// What a config leaves unquantized of the shared experts, it may call by the projections' names or by the fused one's.
TEST(HostileFamilies, SharedExpertsAreExcludedUnderEitherName) {
  if (!shared_dir()) GTEST_SKIP() << "glm4moe-ct-w4a16-g128 is only in the shared collection";
  const Copy published(*shared_dir() / "checkpoints" / "glm4moe-ct-w4a16-g128");
  EXPECT_EQ(published.plan().error.code, "");
  Copy fused = published;
  Copy forgotten = published;
  Json& fused_list = fused.config["quantization_config"]["ignore"];
  Json& forgotten_list = forgotten.config["quantization_config"]["ignore"];
  fused_list = forgotten_list = Json::array();
  for (const Json& name : published.config.at("quantization_config").at("ignore")) {
    std::string text = name.get<std::string>();
    if (!text.ends_with("shared_experts.up_proj")) forgotten_list.push_back(text);
    if (text.ends_with("shared_experts.up_proj")) continue;
    if (text.ends_with("gate_proj")) text.replace(text.size() - 9, 9, "gate_up_proj");
    fused_list.push_back(text);
  }
  EXPECT_EQ(fused.plan().error.code, "") << fused.plan().error.message();
  EXPECT_EQ(forgotten.plan().error.where, "model.layers.1.mlp.shared_experts.up_proj.weight_packed")
      << forgotten.plan().error.message();
}

// A layer is two halves, which transformers counts as num_hidden_layers.
TEST(HostileFamilies, HalvesAreCountedByEitherKey) {
  Copy copy("longcat_flash-saved");
  copy.config["num_hidden_layers"] = 7;
  const Copy::Verdict both = copy.plan();
  EXPECT_EQ(both.error.code, "") << both.error.message();
  ASSERT_EQ(both.warnings.size(), 1U);
  EXPECT_NE(both.warnings[0].find("/num_hidden_layers = 7 is not read"), std::string::npos) << both.warnings[0];
  copy.config.erase("num_layers");
  EXPECT_EQ(copy.plan().error.where, "/num_hidden_layers");
  copy.config["num_hidden_layers"] = 2;
  EXPECT_EQ(copy.plan().error.code, "");
}

// Draft heads are left out, but not in silence: a wrong number of layers looks the same.
TEST(HostileFamilies, DraftHeadsAreNamed) {
  Copy copy("glm4_moe-grouped");
  const Copy::Verdict verdict = copy.plan();
  EXPECT_EQ(verdict.error.code, "") << verdict.error.message();
  ASSERT_EQ(verdict.warnings.size(), 1U);
  EXPECT_NE(verdict.warnings[0].find("1 layer from 2 on"), std::string::npos) << verdict.warnings[0];
}

}  // namespace
}  // namespace moracle::test
