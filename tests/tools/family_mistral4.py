#!/usr/bin/env python3
"""Writes the tiny Mistral 4 checkpoint: family_mistral4.py"""
from transformers import Mistral4Config, Mistral4ForCausalLM

import tiny_checkpoint as tiny

if __name__ == "__main__":
    # Queries that grow every 32 positions; a dense layer.
    latent = tiny.SMALL | dict(num_key_value_heads=4)
    latent.pop("head_dim")
    tiny.write_saved("mistral4", Mistral4Config(
        **latent, intermediate_size=32, moe_intermediate_size=32, n_routed_experts=4, num_experts_per_tok=2,
        first_k_dense_replace=1, q_lora_rank=32, kv_lora_rank=32, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8,
        routed_scaling_factor=1.5, rope_parameters=dict(
            rope_type="yarn", rope_theta=1e4, factor=16.0, original_max_position_embeddings=32, beta_fast=32.0,
            beta_slow=1.0, mscale_all_dim=1.0, mscale=1.0, llama_4_scaling_beta=0.3)), 431, Mistral4ForCausalLM)
