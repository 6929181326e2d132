#!/usr/bin/env python3
"""Writes the tiny MiMo-V2-Flash checkpoint: family_mimo_v2_flash.py"""
from transformers import MiMoV2FlashConfig

import tiny_checkpoint as tiny

if __name__ == "__main__":
    # Values smaller than keys; windows with sinks and twice the key heads; 8 of 24 dimensions rotated; a dense layer.
    ropes = {kind: dict(rope_type="default", rope_theta=theta, partial_rotary_factor=0.334)
             for kind, theta in (("full_attention", 5e6), ("sliding_attention", 1e4))}
    tiny.write_saved("mimo_v2_flash", MiMoV2FlashConfig(
        **tiny.SMALL | dict(num_hidden_layers=3, head_dim=24), v_head_dim=16, intermediate_size=32,
        moe_intermediate_size=32, n_routed_experts=4, num_experts_per_tok=2, sliding_window=20,
        layer_types=["full_attention", "sliding_attention", "sliding_attention"],
        mlp_layer_types=["dense", "sparse", "sparse"], rope_parameters=ropes), 431)
