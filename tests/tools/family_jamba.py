#!/usr/bin/env python3
"""Writes the tiny Jamba checkpoint: family_jamba.py"""
from transformers import JambaConfig

import tiny_checkpoint as tiny

if __name__ == "__main__":
    sizes = {key: value for key, value in tiny.SMALL.items() if key != "head_dim"}
    tiny.write_saved("jamba", JambaConfig(
        **sizes | dict(num_hidden_layers=4), intermediate_size=32, num_experts=4, num_experts_per_tok=2,
        expert_layer_period=2, expert_layer_offset=1, attn_layer_period=4, attn_layer_offset=2, mamba_d_state=8,
        mamba_d_conv=4, mamba_expand=2, mamba_dt_rank=4), 461)
