#!/usr/bin/env python3
"""Writes the tiny Ling 3 checkpoints: family_bailing_hybrid.py"""
import torch
from transformers import BailingHybridConfig

import kda_hybrid
import tiny_checkpoint as tiny

LATENT = tiny.SMALL | dict(num_hidden_layers=3, num_key_value_heads=4, intermediate_size=32, moe_intermediate_size=32,
                           num_local_experts=4, num_experts_per_tok=2, kv_lora_rank=32, qk_nope_head_dim=8,
                           qk_rope_head_dim=8, v_head_dim=12, n_group=2, topk_group=1, num_mtp_layers=0)
# What transformers derives, and the publisher's config has not.
DERIVED = ("layer_types", "mlp_layer_types", "linear_conv_kernel_dim", "linear_head_dim", "linear_num_heads", "qk_head_dim")


def limited(module, limit, shared):
    """SwiGLU with limits, as vLLM's SwigluStepAndMul has them; transformers and the publisher read none."""
    def clamp(gate, up):
        return torch.nn.functional.silu(gate).clamp(max=limit) * up.clamp(-limit, limit)

    def routed(x, chosen, weights):
        rows = [sum(weight * module.down_proj[e] @ clamp(*(module.gate_up_proj[e] @ token).chunk(2))
                    for e, weight in zip(experts, shares)) for token, experts, shares in zip(x, chosen, weights)]
        return torch.stack(rows)

    module.forward = (lambda x: module.down_proj(clamp(module.gate_proj(x), module.up_proj(x)))) if shared else routed


def published():
    """Bounded decays, layers of two kinds by groups, keys in the publisher's spelling."""
    model = kda_hybrid.build(BailingHybridConfig(**LATENT, layer_group_size=3, first_k_dense_replace=1), 511)
    keys, tensors = tiny.saved(model)
    keys = {key: value for key, value in keys.items() if key not in DERIVED}
    for old, new in (("moe_renormalize", "norm_topk_prob"), ("num_expert_group", "n_group"),
                     ("num_experts_per_token", "num_experts_per_tok"), ("model_max_length", "max_position_embeddings")):
        keys[new] = keys.pop(old)
    keys |= dict(head_dim=16, no_kda_lora=True, gated_attention_proj_granularity_type="head_wise", rotary_dim=8,
                 moe_router_enable_expert_bias=True, moe_shared_expert_intermediate_size=32, partial_rotary_factor=0.5,
                 score_function="sigmoid", use_mla_nope=False, use_qk_norm=True, rope_interleave=True,
                 expert_swiglu_limit_list=None, share_expert_swiglu_limit_list=None)
    tiny.write("bailing_hybrid", keys, tensors, tiny.reference(model, 512))


def limits():
    """Decays without a bound, a rank of queries, limits of both kinds of experts."""
    model = kda_hybrid.build(BailingHybridConfig(**LATENT, layer_group_size=2, first_k_dense_replace=1, kda_safe_gate=False,
                                                 q_lora_rank=16), 513)
    routed, shared = [0, 0.25, None], [0, 0, 0.125]
    for layer, most, own in zip(model.model.layers, routed, shared):
        if most:
            limited(layer.mlp.experts, most, False)
        if own:
            limited(layer.mlp.shared_experts, own, True)
    keys, tensors = tiny.saved(model)
    keys |= dict(expert_swiglu_limit_list=routed, share_expert_swiglu_limit_list=shared)
    tiny.write("bailing_hybrid-limits", keys, tensors, tiny.reference(model, 514))


if __name__ == "__main__":
    published()
    limits()
