// Every key that a family reads is felt by the logits that its tiny checkpoints are held against: with another value of
// it they are off by far more than the tests of families allow.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "support/model_fixture.h"
#include "support/tiny_model.h"

namespace moracle::test {
namespace {

struct Row {
  const char* folder;
  const char* pointer;
  Json value;
};

// Largest relative error of a token under the changed config.
double error_with(const Row& row) {
  const auto original = data_dir() / "families" / row.folder;
  const TemporaryFolder folder;
  std::filesystem::create_symlink(original / "model.safetensors", folder.path() / "model.safetensors");
  auto config = read_json(original / "config.json");
  EXPECT_TRUE(config.ok());
  (*config)[Json::json_pointer(row.pointer)] = row.value;
  std::ofstream(folder.path() / "config.json") << config->dump();
  const Loaded loaded = load(folder.path(), pinned("ref"));
  if (loaded.model == nullptr) return 0.0;
  const Reference want = references(original).at(1);
  const auto state = new_state(*loaded.model);
  const auto width = static_cast<std::size_t>(loaded.model->info().vocab_size);
  const auto errors = relative_errors(run(*loaded.model, *state, want.ids), want.logits, width);
  return errors.empty() ? 0.0 : *std::max_element(errors.begin(), errors.end());
}

TEST(ConfigKeys, AreFeltByTheReferences) {
  const std::vector<Row> rows{
      {"bailing_hybrid", "/kda_lower_bound", -4.0},
      {"bailing_hybrid", "/kda_safe_gate", false},
      {"bailing_hybrid", "/norm_topk_prob", false},
      {"bailing_hybrid", "/routed_scaling_factor", 1.0},
      {"bailing_hybrid", "/rope_parameters/rope_theta", 1e4},
      {"bailing_hybrid-limits", "/expert_swiglu_limit_list", nullptr},
      {"bailing_hybrid-limits", "/share_expert_swiglu_limit_list", nullptr},
      {"kimi_linear", "/moe_renormalize", false},
      {"kimi_linear", "/routed_scaling_factor", 1.0},
      {"kimi_linear", "/rms_norm_eps", 1e-2},
      {"kimi_linear-saved", "/num_expert_group", 1},
      {"longcat_flash", "/routed_scaling_factor", 2.0},
      {"longcat_flash", "/moe_topk", 2},
      {"longcat_flash", "/rms_norm_eps", 1e-2},
      {"longcat_flash-saved", "/rope_parameters/rope_theta", 6000.0},
      {"longcat_flash-saved", "/rope_parameters/mscale_all_dim", 0.8},
      {"deepseek_v3-direct", "/rms_norm_eps", 1e-2},
      {"deepseek_v3-direct", "/rope_theta", 6000.0},
      {"deepseek_v3-direct", "/rope_scaling/factor", 7.0},
      {"deepseek_v3-direct", "/rope_scaling/mscale", 1.0},
      {"deepseek_v3-direct", "/rope_scaling/mscale_all_dim", 0.9},
      {"deepseek_v3-direct", "/rope_scaling/original_max_position_embeddings", 32},
      {"deepseek_v3-direct", "/rope_interleave", false},
      {"deepseek_v3-direct", "/topk_group", 3},
      {"deepseek_v3-direct", "/n_group", 2},
      {"deepseek_v3-direct", "/routed_scaling_factor", 2.0},
      {"deepseek_v3-direct", "/norm_topk_prob", false},
      {"deepseek_v3-direct", "/num_experts_per_tok", 2},
      {"deepseek_v3-halves", "/norm_topk_prob", true},
      {"deepseek_v3-halves", "/rope_interleave", true},
      {"deepseek_v2-groups", "/topk_method", "greedy"},
      {"deepseek_v2-groups", "/topk_group", 4},
      {"deepseek_v2-groups", "/routed_scaling_factor", 1.0},
      {"deepseek_v2-groups", "/rope_scaling/mscale_all_dim", 0.6},
      {"deepseek_v32", "/index_topk", 23},
      {"glm_moe_dsa", "/index_topk", 23},
      {"glm4_moe_lite", "/routed_scaling_factor", 1.0},
      {"glm4_moe_lite", "/norm_topk_prob", false},
      {"glm4_moe_lite-listed", "/n_group", 1},
      {"granitemoe_swa", "/layer_rope_theta/1", 2e4},
      {"granitemoe_swa", "/sliding_window", 21},
      {"granitemoehybrid", "/time_step_limit", {0.3, 0.4}},
      {"granitemoehybrid", "/position_embedding_type", "rope"},
      {"granitemoehybrid-dense", "/position_embedding_type", nullptr},
      {"hy_v3", "/router_scaling_factor", 1.0},
      {"hy_v3", "/rope_theta", 1e4},
      {"lfm2_moe", "/routed_scaling_factor", 1.0},
      {"lfm2_moe", "/norm_topk_prob", false},
      {"lfm2_moe", "/norm_eps", 1e-2},
      {"mellum", "/sliding_window", 21},
      {"mimo_v2_flash", "/attention_value_scale", nullptr},
      {"mimo_v2_flash", "/sliding_window", 21},
      {"minimax_m2", "/rotary_dim", 16},
      {"minimax_m2", "/rope_theta", 1e4},
      {"nemotron_h", "/time_step_min", 0.001},
      {"nemotron_h", "/layer_norm_epsilon", 1e-2},
      {"nemotron_h", "/routed_scaling_factor", 1.0},
      {"nemotron_h", "/norm_topk_prob", false},
      {"nemotron_h-latent", "/topk_group", 3},
      {"qwen2_moe", "/norm_topk_prob", true},
      {"qwen2_moe-windows", "/sliding_window", 21},
      {"qwen2_moe-windows", "/max_window_layers", 1},
      {"qwen2_moe-windows", "/use_sliding_window", false},
      {"qwen3_vl_moe", "/text_config/rope_theta", 1e4},
      {"qwen3_vl_moe", "/text_config/num_experts_per_tok", 1},
      {"step3p5-lists", "/rms_norm_eps", 1e-2},
      {"step3p5-lists", "/sliding_window", 21},
      {"step3p5-lists", "/rope_theta/0", 10000.0},
      {"step3p5-lists", "/partial_rotary_factors/3", 1.0},
      {"step3p5-lists", "/yarn_only_types", Json::array()},
      {"step3p5-lists", "/rope_scaling/factor", 3.0},
      {"step3p5-lists", "/swiglu_limits/2", 0.0},
      {"step3p5-lists", "/swiglu_limits/3", 0.4},
      {"step3p5-lists", "/swiglu_limits_shared/0", 0.0},
      {"step3p5-lists", "/swiglu_limits_shared/3", 0.0},
      {"step3p5-lists", "/norm_expert_weight", false},
      {"step3p5-lists", "/moe_router_scaling_factor", 2.0},
      {"step3p5-lists", "/moe_top_k", 2},
      {"step3p5-switches", "/use_rope_layers/1", 1},
      {"step3p5-switches", "/use_rope_layers/3", true},
      {"step3p5-parameters", "/text_config/rope_parameters/full_attention/factor", 3.0},
      {"step3p5-parameters", "/text_config/rope_parameters/full_attention/partial_rotary_factor", 1.0},
      {"step3p5-parameters", "/text_config/rope_parameters/sliding_attention/rope_theta", 50000.0},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(std::string(row.folder) + " " + row.pointer + " = " + row.value.dump());
    EXPECT_GT(error_with(row), 1e-3);
  }
}

}  // namespace
}  // namespace moracle::test
