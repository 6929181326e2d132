#!/usr/bin/env python3
"""Writes the tiny Granite MoE checkpoints: family_granitemoe.py"""
from transformers import GraniteMoeConfig, GraniteMoeSharedConfig, GraniteMoeSWAConfig

import tiny_checkpoint as tiny

SHARED = {key: value for key, value in tiny.SMALL.items() if key != "head_dim"} | dict(
    intermediate_size=32, num_local_experts=4, num_experts_per_tok=2, embedding_multiplier=3.0, logits_scaling=4.0,
    residual_multiplier=0.5, attention_multiplier=0.25)

if __name__ == "__main__":
    tiny.write_saved("granitemoe", GraniteMoeConfig(**SHARED, attention_bias=True, tie_word_embeddings=True), 371)
    tiny.write_saved("granitemoeshared", GraniteMoeSharedConfig(**SHARED, shared_intermediate_size=64), 373)
    # Windows in two layers, one of which has no positions.
    tiny.write_saved("granitemoe_swa", GraniteMoeSWAConfig(
        **SHARED | dict(num_hidden_layers=3), sliding_window=20, shared_intermediate_size=32,
        layer_types=["full_attention", "sliding_attention", "sliding_attention"], layer_rope_theta=[5e5, 1e4, 0]), 375)
