#!/usr/bin/env python3
"""Writes the tiny Granite 4 checkpoints: family_granitemoehybrid.py"""
from transformers import GraniteMoeHybridConfig

import tiny_checkpoint as tiny

SHARED = {key: value for key, value in tiny.SMALL.items() if key != "head_dim"} | dict(
    num_hidden_layers=3, intermediate_size=32, num_experts_per_tok=2, shared_intermediate_size=64,
    embedding_multiplier=3.0, logits_scaling=4.0, residual_multiplier=0.5, attention_multiplier=0.25, mamba_n_heads=8,
    mamba_n_groups=2, mamba_d_state=12, mamba_d_conv=4, mamba_expand=2, tie_word_embeddings=True,
    layer_types=["linear_attention", "full_attention", "linear_attention"])

if __name__ == "__main__":
    tiny.write_saved("granitemoehybrid", GraniteMoeHybridConfig(**SHARED, num_local_experts=4), 451)
    # Without experts, with rotated heads, as the small ones are.
    tiny.write_saved("granitemoehybrid-dense", GraniteMoeHybridConfig(
        **SHARED, num_local_experts=0, position_embedding_type="rope"), 453)
