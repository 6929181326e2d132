#!/usr/bin/env python3
"""Writes the tiny Nemotron-H checkpoints: family_nemotron_h.py"""
from transformers import NemotronHConfig

import tiny_checkpoint as tiny

SHARED = {key: value for key, value in tiny.SMALL.items() if key != "num_hidden_layers"} | dict(
    intermediate_size=48, ssm_state_size=12, mamba_num_heads=8, mamba_head_dim=8, n_groups=2, conv_kernel=4,
    time_step_min=0.3, n_routed_experts=8, moe_intermediate_size=24, moe_shared_expert_intermediate_size=40,
    num_experts_per_tok=3, routed_scaling_factor=2.5)
LETTERS = {"linear_attention": "M", "full_attention": "*", "moe": "E", "mlp": "-"}


def write(name, seed, kinds, as_pattern=False, **keys):
    model = tiny.build(NemotronHConfig(**SHARED, **keys, layers_block_type=kinds), seed)
    config, tensors = tiny.saved(model)
    if as_pattern:  # as published
        for key in ("layers_block_type", "layer_types"):
            config.pop(key, None)
        config |= dict(hybrid_override_pattern="".join(LETTERS[kind] for kind in kinds), num_hidden_layers=len(kinds))
    tiny.write(name, config, tensors, tiny.reference(model, seed + 1))


if __name__ == "__main__":
    # Parts of a layer in any order, two of a kind behind each other.
    write("nemotron_h", 571, ["linear_attention", "moe", "full_attention", "moe", "mlp", "linear_attention"],
          as_pattern=True)
    # Experts of a latent, in groups, and projections with biases.
    write("nemotron_h-latent", 573, ["full_attention", "linear_attention", "moe"], moe_latent_size=16, n_group=4,
          topk_group=2, use_bias=True, norm_topk_prob=False)
