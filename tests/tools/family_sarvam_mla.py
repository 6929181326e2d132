#!/usr/bin/env python3
"""Writes the tiny Sarvam-MLA checkpoint: family_sarvam_mla.py"""
from transformers import SarvamMLAConfig

import tiny_checkpoint as tiny

if __name__ == "__main__":
    latent = tiny.SMALL | dict(
        num_key_value_heads=4, intermediate_size=32, moe_intermediate_size=32, n_routed_experts=4,
        num_experts_per_tok=2, n_shared_experts=1, first_k_dense_replace=1, kv_lora_rank=32, qk_nope_head_dim=8,
        qk_rope_head_dim=8, v_head_dim=8,
        rope_parameters=dict(rope_type="yarn", rope_theta=1e4, factor=4.0, mscale=1.0, mscale_all_dim=1.0,
                             original_max_position_embeddings=64))
    latent.pop("head_dim")
    model = tiny.build(SarvamMLAConfig(**latent), 495)
    keys, tensors = tiny.saved(model)
    # As its publisher writes it.
    rope = keys.pop("rope_parameters")
    keys["rope_theta"] = rope.pop("rope_theta")
    keys["rope_scaling"] = {key: value for key, value in rope.items() if key != "rope_type"} | dict(
        type="deepseek_yarn")
    keys["num_experts"] = keys.pop("n_routed_experts")
    keys["num_shared_experts"] = keys.pop("n_shared_experts")
    keys["head_dim"] = 40
    tiny.write("sarvam_mla", keys, tensors, tiny.reference(model, 496))
