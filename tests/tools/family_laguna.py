#!/usr/bin/env python3
"""Writes the tiny Laguna checkpoints: family_laguna.py"""
from transformers import LagunaConfig

import tiny_checkpoint as tiny

if __name__ == "__main__":
    # Gates of heads; more heads in the layers with a window, which have a rope of their own. Then gates of elements.
    shared = tiny.SMALL | dict(num_hidden_layers=3, intermediate_size=32, moe_intermediate_size=32, num_experts=4,
                               num_experts_per_tok=2, shared_expert_intermediate_size=32, sliding_window=20,
                               moe_routed_scaling_factor=2.0)
    ropes = dict(full_attention=dict(rope_type="yarn", rope_theta=5e5, factor=4.0, partial_rotary_factor=0.5,
                                     original_max_position_embeddings=128),
                 sliding_attention=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=1.0))
    kinds = ["full_attention", "sliding_attention", "sliding_attention"]
    tiny.write_saved("laguna", LagunaConfig(**shared, num_attention_heads_per_layer=[4, 6, 6], layer_types=kinds,
                                            rope_parameters=ropes), 391)
    # Names as transformers has them.
    model = tiny.build(LagunaConfig(**shared, gating="per-element", layer_types=kinds, rope_parameters=ropes), 393)
    keys, tensors = tiny.saved(model)
    tensors = {name.replace(".experts.e_score", ".gate.e_score").replace(".shared_expert.", ".shared_experts."): tensor
               for name, tensor in tensors.items()}
    tiny.write("laguna-elements", keys, tensors, tiny.reference(model, 394))
