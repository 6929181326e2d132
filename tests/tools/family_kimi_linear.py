#!/usr/bin/env python3
"""Writes the tiny Kimi-Linear checkpoints: family_kimi_linear.py"""
from transformers import KimiLinearConfig

import kda_hybrid
import tiny_checkpoint as tiny

LATENT = tiny.SMALL | dict(num_hidden_layers=3, num_key_value_heads=4, intermediate_size=32, moe_intermediate_size=32,
                           num_local_experts=4, num_experts_per_tok=2, kv_lora_rank=32, qk_nope_head_dim=8,
                           qk_rope_head_dim=8, v_head_dim=12, linear_num_heads=3, linear_head_dim=16)
LATENT.pop("head_dim")

# transformers saves the dense layer under the mixtures' name, the publisher does not.
DENSE = ("model.layers.0.block_sparse_moe.", "model.layers.0.mlp.")


def published():
    """Sizes and kinds of layers in an object, layers counted from 1."""
    model = kda_hybrid.build(KimiLinearConfig(**LATENT, layer_types=["linear_attention", "linear_attention", "full_attention"],
                                              linear_conv_kernel_dim=3), 501)
    keys, tensors = tiny.saved(model)
    for key in ("layer_types", "mlp_layer_types", "linear_conv_kernel_dim", "linear_head_dim", "linear_num_heads"):
        keys.pop(key)
    keys |= dict(first_k_dense_replace=1, head_dim=72, mla_use_nope=True, moe_layer_freq=1, topk_method="noaux_tc",
                 moe_router_activation_func="sigmoid", rope_theta=10000.0, rope_scaling=None, use_grouped_topk=True,
                 linear_attn_config=dict(full_attn_layers=[3], kda_layers=[1, 2], head_dim=16, num_heads=3,
                                         short_conv_kernel_size=3))
    tensors = {name.replace(*DENSE): tensor for name, tensor in tensors.items()}
    tiny.write("kimi_linear", keys, tensors, tiny.reference(model, 502))


def saved():
    """As save_pretrained writes it: experts in groups, a rank of queries, attention in the second layer."""
    model = kda_hybrid.build(KimiLinearConfig(**LATENT, layer_types=["linear_attention", "full_attention", "linear_attention"],
                                              q_lora_rank=16, n_group=2, topk_group=1, norm_topk_prob=False), 503)
    keys, tensors = tiny.saved(model)
    tiny.write("kimi_linear-saved", keys, tensors, tiny.reference(model, 504))


if __name__ == "__main__":
    published()
    saved()
