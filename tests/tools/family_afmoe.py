#!/usr/bin/env python3
"""Writes the tiny AFMoE checkpoint: family_afmoe.py"""
from transformers import AfmoeConfig

import tiny_checkpoint as tiny

if __name__ == "__main__":
    # A dense layer, three windows before the one layer that is not rotated, a scaled embedding.
    tiny.write_saved("afmoe", AfmoeConfig(
        **tiny.SMALL | dict(num_hidden_layers=4), intermediate_size=32, moe_intermediate_size=32, num_experts=4,
        num_experts_per_tok=2, num_shared_experts=1, num_dense_layers=1, route_scale=2.0, sliding_window=20,
        mup_enabled=True), 351)
