#!/usr/bin/env python3
"""Writes the tiny GLM-4-MoE-Lite checkpoints: family_glm4_moe_lite.py"""
import torch
from transformers import Glm4MoeLiteConfig

import tiny_checkpoint as tiny

# The norms inside attention do not follow rms_norm_eps.
SHARED = tiny.SIZES | dict(num_key_value_heads=4, intermediate_size=48, moe_intermediate_size=16, n_routed_experts=8,
                           num_experts_per_tok=3, kv_lora_rank=32, q_lora_rank=24, qk_nope_head_dim=24,
                           qk_rope_head_dim=8, v_head_dim=20, rms_norm_eps=1e-4)


def published():
    """One module an expert, the number of dense layers in place of their list, and the tensors of a draft layer."""
    config = Glm4MoeLiteConfig(**SHARED, rope_parameters=dict(rope_type="default", rope_theta=1e6))
    model = tiny.build(config, seed=31)
    tensors = tiny.take_apart(tiny.stored(model))
    for part in ("eh_proj.weight", "enorm.weight", "mlp.gate.weight", "self_attn.kv_b_proj.weight"):
        tensors[f"model.layers.2.{part}"] = torch.zeros(2, 2)
    keys = tiny.config_json(model, remove=("head_dim", "qk_head_dim", "mlp_layer_types"), first_k_dense_replace=1,
                            topk_method="noaux_tc", num_nextn_predict_layers=1)
    tiny.write("glm4_moe_lite", tiny.old_keys(keys), tensors, tiny.reference(model, 32))


def listed():
    """As transformers writes it: experts stacked, the kinds of layers listed, queries without a rank, two groups."""
    config = Glm4MoeLiteConfig(**SHARED | dict(q_lora_rank=None, num_hidden_layers=3, n_group=2, topk_group=1,
                                               n_shared_experts=2, attention_bias=True, norm_topk_prob=False),
                               mlp_layer_types=["sparse", "dense", "sparse"])
    model = tiny.build(config, seed=33)
    tiny.write("glm4_moe_lite-listed", tiny.config_json(model), tiny.stored(model), tiny.reference(model, 34))


if __name__ == "__main__":
    published()
    listed()
