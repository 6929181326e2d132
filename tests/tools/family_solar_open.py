#!/usr/bin/env python3
"""Writes the tiny Solar Open checkpoint: family_solar_open.py"""
from transformers import SolarOpenConfig

import tiny_checkpoint as tiny

if __name__ == "__main__":
    # Biases of q, k and v; YaRN, and half of a head that is rotated.
    tiny.write_saved("solar_open", SolarOpenConfig(
        **tiny.SMALL, moe_intermediate_size=32, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1,
        attention_bias=True, routed_scaling_factor=1.5,
        rope_parameters=dict(rope_type="yarn", rope_theta=1e6, factor=2.0, original_max_position_embeddings=32)), 321)
