#!/usr/bin/env python3
"""Writes the tiny GLM-4-MoE checkpoints: family_glm4_moe.py"""
import torch
from transformers import Glm4MoeConfig

import tiny_checkpoint as tiny

SHARED = tiny.SIZES | dict(head_dim=16, intermediate_size=48, moe_intermediate_size=32, num_experts_per_tok=3,
                           first_k_dense_replace=1)


def grouped():
    """As published: one module an expert, keys of old; two groups, two shared experts, no norms on q and k, and the
    tensors of a draft layer."""
    config = Glm4MoeConfig(**SHARED, n_routed_experts=8, n_group=2, topk_group=1, n_shared_experts=2,
                           routed_scaling_factor=2.5, attention_bias=True, use_qk_norm=False,
                           rope_parameters=dict(rope_type="default", rope_theta=1e6, partial_rotary_factor=0.5))
    model = tiny.build(config, seed=1)
    tensors = tiny.take_apart(tiny.stored(model))
    for part in ("eh_proj.weight", "enorm.weight", "mlp.experts.0.gate_proj.weight", "shared_head.norm.weight"):
        tensors[f"model.layers.2.{part}"] = torch.zeros(2, 2)
    tiny.write("glm4_moe-grouped", tiny.old_keys(tiny.config_json(model)), tensors, tiny.reference(model, 2))


def stacked():
    """As transformers holds it: experts stacked; one group, norms on q and k, weights not renormalized."""
    config = Glm4MoeConfig(**SHARED, n_routed_experts=6, n_shared_experts=1, norm_topk_prob=False, use_qk_norm=True,
                           attention_bias=False)
    model = tiny.build(config, seed=3)
    tiny.write("glm4_moe-stacked", tiny.config_json(model), tiny.stored(model), tiny.reference(model, 4))


if __name__ == "__main__":
    grouped()
    stacked()
