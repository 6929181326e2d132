#!/usr/bin/env python3
"""Writes the tiny Qwen3-MoE checkpoint: family_qwen3_moe.py"""
from transformers import Qwen3MoeConfig

import tiny_checkpoint as tiny

if __name__ == "__main__":
    # As transformers holds it: experts stacked; a dense layer, biases, weights not renormalized, the embedding as head.
    config = Qwen3MoeConfig(**tiny.SIZES, head_dim=24, intermediate_size=48, moe_intermediate_size=32, num_experts=6,
                            num_experts_per_tok=3, norm_topk_prob=False, attention_bias=True, mlp_only_layers=[0],
                            tie_word_embeddings=True)
    model = tiny.build(config, seed=1)
    tensors = tiny.stored(model)
    tensors.pop("lm_head.weight")
    tiny.write("qwen3_moe-stacked", tiny.config_json(model), tensors, tiny.reference(model, 2))
