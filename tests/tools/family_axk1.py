#!/usr/bin/env python3
"""Writes the tiny A.X-K1 checkpoint: family_axk1.py"""
from transformers import AXK1Config

import tiny_checkpoint as tiny

if __name__ == "__main__":
    latent = tiny.SMALL | dict(
        num_key_value_heads=4, intermediate_size=32, moe_intermediate_size=32, n_routed_experts=4,
        num_experts_per_tok=2, n_shared_experts=1, n_group=2, topk_group=1, q_lora_rank=32, kv_lora_rank=32,
        qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8, mlp_layer_types=["dense", "sparse"])
    latent.pop("head_dim")
    tiny.write_saved("axk1", AXK1Config(**latent), 491)
