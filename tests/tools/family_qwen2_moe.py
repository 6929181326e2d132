#!/usr/bin/env python3
"""Writes the tiny Qwen2-MoE checkpoints: family_qwen2_moe.py"""
from transformers import Qwen2MoeConfig

import tiny_checkpoint as tiny

SHARED = tiny.SIZES | dict(intermediate_size=48, moe_intermediate_size=16, shared_expert_intermediate_size=24,
                           num_experts=6, num_experts_per_tok=2)


def published():
    """One module an expert, keys of old, no windows, weights that are not renormalized."""
    config = Qwen2MoeConfig(**SHARED, rope_parameters=dict(rope_type="default", rope_theta=1e6))
    model = tiny.build(config, seed=51)
    keys = tiny.config_json(model, remove=("layer_types", "qkv_bias"), sliding_window=20)
    tiny.write("qwen2_moe", tiny.old_keys(keys), tiny.take_apart(tiny.stored(model)), tiny.reference(model, 52))


def windows():
    """As transformers holds it: experts stacked; windows in the first and third of four layers, the second dense."""
    config = Qwen2MoeConfig(**SHARED | dict(num_hidden_layers=4), use_sliding_window=True, sliding_window=20,
                            max_window_layers=3, mlp_only_layers=[1], norm_topk_prob=True, qkv_bias=False)
    model = tiny.build(config, seed=53)
    tiny.write("qwen2_moe-windows", tiny.config_json(model, remove=("layer_types",)), tiny.stored(model),
               tiny.reference(model, 54))


if __name__ == "__main__":
    published()
    windows()
