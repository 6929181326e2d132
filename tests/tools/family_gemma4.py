#!/usr/bin/env python3
"""Writes the tiny Gemma 4 checkpoint: family_gemma4.py"""
import torch
from transformers import Gemma4TextConfig

import tiny_checkpoint as tiny

if __name__ == "__main__":
    # A window, then a layer whose values are its keys, with larger heads of which a quarter is rotated; capped logits.
    config = Gemma4TextConfig(
        **tiny.SMALL, intermediate_size=32, moe_intermediate_size=32, num_experts=4, top_k_experts=2,
        enable_moe_block=True, hidden_size_per_layer_input=0, attention_k_eq_v=True, global_head_dim=32,
        num_global_key_value_heads=1, sliding_window=20, final_logit_softcapping=5.0,
        layer_types=["sliding_attention", "full_attention"], rope_parameters=dict(
            sliding_attention=dict(rope_type="default", rope_theta=1e4),
            full_attention=dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.25)))
    model = tiny.build(config, 441)
    with torch.no_grad():
        for index, layer in enumerate(model.model.layers):
            layer.layer_scalar.fill_(0.5 + index)
    keys, tensors = tiny.saved(model)
    tiny.write("gemma4", keys, tensors, tiny.reference(model, 442))
