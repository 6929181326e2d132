#!/usr/bin/env python3
"""Writes the tiny DeepSeek-V3.2 and GLM-5 checkpoints: family_deepseek_v32.py"""
from transformers import DeepseekV32Config, GlmMoeDsaConfig

import tiny_checkpoint as tiny

if __name__ == "__main__":
    # Indexers choose fewer positions than the longer prompt has, by heads enough that no scores are equal; in GLM-5
    # layers share a choice.
    latent = tiny.SMALL | dict(
        num_key_value_heads=4, intermediate_size=32, moe_intermediate_size=32, n_routed_experts=4,
        num_experts_per_tok=2, first_k_dense_replace=1, q_lora_rank=32, kv_lora_rank=32, qk_nope_head_dim=8,
        qk_rope_head_dim=8, v_head_dim=8, index_topk=24, index_head_dim=16, index_n_heads=16)
    latent.pop("head_dim")
    tiny.write_saved("deepseek_v32", DeepseekV32Config(**latent, n_group=2, topk_group=1), 381)
    tiny.write_saved("glm_moe_dsa", GlmMoeDsaConfig(
        **latent | dict(num_hidden_layers=3), n_group=1, topk_group=1, indexer_types=["full", "shared", "full"]), 383)
