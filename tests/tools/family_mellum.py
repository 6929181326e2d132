#!/usr/bin/env python3
"""Writes the tiny Mellum checkpoint: family_mellum.py"""
from transformers import MellumConfig

import tiny_checkpoint as tiny

if __name__ == "__main__":
    ropes = dict(full_attention=dict(rope_type="yarn", rope_theta=5e5, factor=4.0,
                                     original_max_position_embeddings=128),
                 sliding_attention=dict(rope_type="default", rope_theta=1e4))
    tiny.write_saved("mellum", MellumConfig(
        **tiny.SMALL | dict(num_hidden_layers=3), intermediate_size=32, moe_intermediate_size=32, num_experts=4,
        num_experts_per_tok=2, sliding_window=20, rope_parameters=ropes,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        mlp_layer_types=["dense", "sparse", "sparse"]), 471)
