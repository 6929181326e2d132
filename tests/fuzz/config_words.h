// Words that the readers of config.json and of quantization sections compare with, for the mutator.
#pragma once

#include <string_view>

namespace moracle::fuzz {

inline constexpr std::string_view kConfigKeys =
    "activation_scheme act_bits actorder algo_config attention_bias attention_factor attention_other_setting "
    "attn_output_gate beta_fast beta_slow bits block_size block_structure ch_axis checkpoint_format clip_qkv "
    "config_groups data_type decoder_sparse_step desc_act dtype dynamic exclude exclude_modules experts_per_token "
    "export extra_config factor first_k_dense_replace fmt format full_attention_interval global_quant_config "
    "group_size head_dim hidden_act hidden_size high_freq_factor ignore ignored_layers input_activations "
    "input_tensors intermediate_size is_dynamic is_scale_quant kv_cache_quant_algo kv_cache_scheme kv_lora_rank "
    "layer_quant_config layer_type_quant_config layer_types linear_conv_kernel_dim linear_key_head_dim "
    "linear_num_key_heads linear_num_value_heads linear_value_head_dim lm_head low_freq_factor "
    "max_position_embeddings max_seq_len mlp_bias mlp_layer_types mlp_only_layers model_type "
    "modules_in_block_to_quantize modules_to_not_convert moe_intermediate_size moe_layer_freq moe_layers_enum "
    "moe_num_experts moe_quant_algo moe_router_activation moe_router_scaling_factor moe_top_k mrope_section "
    "mscale mscale_all_dim n_group n_routed_experts n_shared_experts norm_expert_weight norm_topk_prob "
    "num_attention_groups num_attention_heads num_bits num_experts num_experts_per_tok num_hidden_layers "
    "num_key_value_heads num_local_experts num_sliding_attention_heads original_max_position_embeddings "
    "output_activations output_tensors pack_dtype pack_method packing_format partial_rotary_factor "
    "partial_rotary_factors q_group_size q_lora_rank qk_nope_head_dim qk_rope_head_dim qscheme quant_algo "
    "quant_method quantization quantization_config quantized_layers query_pre_attn_scalar rms_norm_eps "
    "rope_interleave rope_parameters rope_scaling rope_theta rope_type rotation round_method "
    "routed_scaling_factor scale_dtype scale_fmt scale_format scale_type scoring_func share_expert_dim "
    "share_expert_dims shared_expert_intermediate_size sliding_window softmax_quant_spec sparsity_config "
    "static_groups strategy swiglu_alpha swiglu_limit swiglu_limits swiglu_limits_shared sym symmetric targets "
    "text_config tie_word_embeddings topk_group topk_method torch_dtype transform_config truncate type "
    "use_bidirectional_attention use_head_wise_attn_gate use_moe_router_bias use_qk_norm use_rope_layers "
    "use_sliding_window v_head_dim version vocab_size w_bit weight weight_block_size weight_format weights "
    "yarn_only_types zero_point zero_point_type experts config.json quantize_config.json hf_quant_config.json "
    "quant_config.json every model.embed_tokens.weight model.norm.weight lm_head.weight "
    "model.layers.0.mlp.gate.weight model.layers.0.mlp.experts.#.gate_proj.weight "
    "model.layers.0.mlp.experts.#.down_proj.scales model.layers.0.mlp.experts.0.gate_proj.qweight "
    "model.layers.0.self_attn.q_proj.bias model.layers.0.self_attn.q_proj.g_idx "
    "model.layers.0.mlp.experts.gate_up_proj model.layers.1.mlp.shared_expert.up_proj.weight model.visual.x "
    "model.layers.2.mtp.weight";

inline constexpr std::string_view kConfigStrings =
    "auto-round auto_awq auto_gptq awq bfloat16 block channel clip_qkv compressed-tensors deepseek_v2 deepseek_v3 "
    "deepseek_v4 default dense dynamic e4m3 e8m0 even float float-quantized float16 float32 float8_e4m3fn fp4 fp8 "
    "fp8_e4m3 full_attention gemm glm4_moe gpt_oss gptq gptq_v2 greedy group group_limited_greedy int "
    "int-quantized int32 int4 int8 kimi_k2 linear linear_attention llama3 local mixtral modelopt modelopt_fp4 "
    "modelopt_mixed modelopt_mxfp8 mrope mxfp4 mxfp4-pack-quantized mxfp8 mxfp8-quantized naive-quantized "
    "noaux_tc none nvfp4-pack-quantized NVFP4 FP8 W4A16_NVFP4 MXFP4 MXFP8 W4A8_AWQ olmoe order pack-quantized "
    "per_block per_channel per_group per_tensor per_token quark qwen3_5_moe qwen3_5_moe_text qwen3_moe qwen3_next "
    "real_quantized reorder sigmoid silu sliding_attention softmax sparse static step3p5 swish tensor "
    "tensor_group token torch.bfloat16 torch.float16 ue8m0 uint4 uint8 weight yarn F32 F16 BF16 I32 I64 I8 U8 "
    "F8_E4M3 F8_E5M2 F8_E8M0 F4 F64 BOOL lm_head re:.*mlp.* re:(a+)+$ *experts* model.layers.0.self_attn.q_proj "
    "model.layers.0.mlp.experts model.layers.*.mlp.* Linear 0-3,7 1,2 all";

}  // namespace moracle::fuzz
