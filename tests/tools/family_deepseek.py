#!/usr/bin/env python3
"""Writes the tiny DeepSeek checkpoints, V3 and V2: family_deepseek.py"""
import torch
from transformers import DeepseekV2Config, DeepseekV3Config

import tiny_checkpoint as tiny

# The norms inside attention do not follow rms_norm_eps.
SHARED = tiny.SIZES | dict(num_key_value_heads=4, intermediate_size=48, moe_intermediate_size=16, n_routed_experts=8,
                           num_experts_per_tok=3, first_k_dense_replace=1, kv_lora_rank=32, q_lora_rank=24,
                           qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12, rms_norm_eps=1e-4)
YARN = dict(rope_type="yarn", rope_theta=5000.0, factor=8.0, beta_fast=32, beta_slow=1,
            original_max_position_embeddings=64)


def direct():
    """Keys of old; queries without a rank, biases, yarn with both of its factors for magnitudes, groups, two shared
    experts, one module an expert, and the tensors of a draft layer."""
    config = DeepseekV3Config(**SHARED | dict(q_lora_rank=None, attention_bias=True, n_group=4,
                                              topk_group=2, n_shared_experts=2),
                              rope_parameters=YARN | dict(mscale=0.7, mscale_all_dim=1.0))
    model = tiny.build(config, seed=11)
    tensors = tiny.take_apart(tiny.stored(model))
    for part in ("eh_proj.weight", "enorm.weight", "mlp.gate.weight", "self_attn.kv_b_proj.weight"):
        tensors[f"model.layers.2.{part}"] = torch.zeros(2, 2)
    # As published: the sizes that transformers derives are not there.
    keys = tiny.config_json(model, remove=("head_dim", "qk_head_dim", "rope_interleave"), scoring_func="sigmoid",
                            topk_method="noaux_tc", moe_layer_freq=1, num_nextn_predict_layers=1)
    tiny.write("deepseek_v3-direct", tiny.old_keys(keys), tensors, tiny.reference(model, 12))


def halves():
    """As transformers writes it, experts stacked; one group, weights not renormalized, rotated pairs half a head
    apart."""
    config = DeepseekV3Config(**SHARED, n_group=1, topk_group=1, norm_topk_prob=False, rope_interleave=False,
                              routed_scaling_factor=1.5, num_mtp_layers=0)
    model = tiny.build(config, seed=13)
    tiny.write("deepseek_v3-halves", tiny.config_json(model), tiny.stored(model), tiny.reference(model, 14))


def v2_groups():
    """Softmax scores, groups by their best expert, yarn with the factor for scores alone."""
    config = DeepseekV2Config(**SHARED, head_dim=8, topk_method="group_limited_greedy", n_group=4, topk_group=2,
                              n_shared_experts=2, routed_scaling_factor=16.0,
                              rope_parameters=YARN | dict(mscale=0.707, mscale_all_dim=0.707))
    model = tiny.build(config, seed=15)
    keys = tiny.config_json(model, remove=("head_dim",), scoring_func="softmax")
    tiny.write("deepseek_v2-groups", tiny.old_keys(keys), tiny.take_apart(tiny.stored(model)), tiny.reference(model, 16))


def v2_greedy():
    config = DeepseekV2Config(**SHARED | dict(q_lora_rank=None), head_dim=8, n_shared_experts=1)
    model = tiny.build(config, seed=17)
    tiny.write("deepseek_v2-greedy", tiny.config_json(model), tiny.take_apart(tiny.stored(model)),
               tiny.reference(model, 18))


if __name__ == "__main__":
    direct()
    halves()
    v2_groups()
    v2_greedy()
