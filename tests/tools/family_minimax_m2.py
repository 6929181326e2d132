#!/usr/bin/env python3
"""Writes the tiny MiniMax-M2 checkpoints: family_minimax_m2.py"""
from transformers import MiniMaxM2Config

import tiny_checkpoint as tiny

SHARED = tiny.SIZES | dict(head_dim=16, intermediate_size=32)


def published():
    """Names and keys as published: Mixtral's mixtures, the bias beside the router, rotary_dim."""
    config = MiniMaxM2Config(**SHARED, num_local_experts=6, num_experts_per_tok=2,
                             rope_parameters=dict(rope_type="default", rope_theta=5e6, partial_rotary_factor=0.5))
    model = tiny.build(config, seed=21)
    tensors = tiny.take_apart(tiny.stored(model), gate="w1", up="w3", down="w2")
    tensors = {name.replace(".mlp.", ".block_sparse_moe."): tensor for name, tensor in tensors.items()}
    keys = tiny.old_keys(tiny.config_json(model, scoring_func="sigmoid", use_qk_norm=True, qk_norm_type="per_layer",
                                          use_routing_bias=True, rotary_dim=8, attn_type_list=[1, 1]))
    del keys["partial_rotary_factor"]
    tiny.write("minimax_m2", keys, tensors, tiny.reference(model, 22))


def stacked():
    """As transformers holds it."""
    config = MiniMaxM2Config(**SHARED, num_local_experts=8, num_experts_per_tok=3)
    model = tiny.build(config, seed=23)
    tiny.write("minimax_m2-stacked", tiny.config_json(model), tiny.stored(model), tiny.reference(model, 24))


if __name__ == "__main__":
    published()
    stacked()
