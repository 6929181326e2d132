#!/usr/bin/env python3
"""Writes the tiny Qwen3-Next checkpoints: family_qwen3_next.py"""
import torch
from transformers import Qwen3NextConfig

import qwen_hybrid
import tiny_checkpoint as tiny

SHARED = tiny.SIZES | dict(num_hidden_layers=4, head_dim=32, intermediate_size=48, moe_intermediate_size=16,
                           shared_expert_intermediate_size=24, linear_conv_kernel_dim=4)


def published():
    """As published: one module an expert, keys of old, attention in every fourth layer by its interval, a draft head."""
    config = Qwen3NextConfig(**SHARED, num_experts=6, num_experts_per_tok=3, linear_num_key_heads=2,
                             linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16)
    model = qwen_hybrid.build(config, seed=1)
    tensors = tiny.take_apart(tiny.stored(model))
    for part in ("fc.weight", "layers.0.mlp.experts.0.gate_proj.weight", "norm.weight"):
        tensors[f"mtp.{part}"] = torch.zeros(2, 2)
    keys = tiny.config_json(model, remove=["layer_types"], full_attention_interval=4)
    tiny.write("qwen3_next", tiny.old_keys(keys), tensors, tiny.reference(model, 2))


def mixed():
    """Attention first, dense layers by both keys, biases, weights not renormalized, other sizes of keys than of values,
    a shorter convolution, stacked experts."""
    config = Qwen3NextConfig(**(SHARED | dict(linear_conv_kernel_dim=3)), num_experts=4, num_experts_per_tok=2, norm_topk_prob=False, attention_bias=True,
                             linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=12,
                             linear_value_head_dim=20, decoder_sparse_step=2, mlp_only_layers=[3],
                             layer_types=["full_attention", "linear_attention", "full_attention", "linear_attention"])
    model = qwen_hybrid.build(config, seed=3)
    tiny.write("qwen3_next-mixed", tiny.config_json(model), tiny.stored(model), tiny.reference(model, 4))


if __name__ == "__main__":
    published()
    mixed()
