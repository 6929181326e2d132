#!/usr/bin/env python3
"""Writes the tiny Phi-3.5-MoE checkpoint: family_phimoe.py"""
from transformers import PhimoeConfig

import tiny_checkpoint as tiny

if __name__ == "__main__":
    # Short factors up to 128 positions; a window, biases everywhere; noise so large that the mixer leaves few logits out.
    tiny.write_saved("phimoe", PhimoeConfig(
        **{key: value for key, value in tiny.SMALL.items() if key != "head_dim"}, intermediate_size=32,
        num_local_experts=4, attention_bias=True, lm_head_bias=True, router_jitter_noise=0.3, sliding_window=40,
        rope_parameters=dict(rope_type="longrope", rope_theta=1e4, original_max_position_embeddings=128,
                             short_factor=[1.0, 1.5, 2.0, 3.0], long_factor=[1.0, 2.0, 4.0, 8.0], short_mscale=1.2,
                             long_mscale=1.3)), 401)
