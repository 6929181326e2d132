#!/usr/bin/env python3
"""Writes the tiny OLMoE checkpoints: family_olmoe.py"""
from transformers import OlmoeConfig

import tiny_checkpoint as tiny


def published():
    """As published: every head has its key head, weights are not renormalized, one module an expert."""
    sizes = tiny.SIZES | dict(num_key_value_heads=None, pad_token_id=1)
    config = OlmoeConfig(**sizes, intermediate_size=32, num_experts=8, num_experts_per_tok=3)
    model = tiny.build(config, seed=1)
    tiny.write("olmoe", tiny.old_keys(tiny.config_json(model)), tiny.take_apart(tiny.stored(model)),
               tiny.reference(model, 2))


def clipped():
    """q, k and v clamped where it is felt; grouped heads, biases, renormalized weights, stacked experts."""
    config = OlmoeConfig(**tiny.SIZES, intermediate_size=32, num_experts=6, num_experts_per_tok=2, norm_topk_prob=True,
                         attention_bias=True, clip_qkv=0.75)
    model = tiny.build(config, seed=3)
    tiny.write("olmoe-clip", tiny.config_json(model), tiny.stored(model), tiny.reference(model, 4))


if __name__ == "__main__":
    published()
    clipped()
