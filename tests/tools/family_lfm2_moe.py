#!/usr/bin/env python3
"""Writes the tiny LFM2-MoE checkpoint: family_lfm2_moe.py"""
import torch
from transformers import Lfm2MoeConfig

import tiny_checkpoint as tiny

if __name__ == "__main__":
    sizes = {key: value for key, value in tiny.SMALL.items() if key != "head_dim"}
    model = tiny.build(Lfm2MoeConfig(
        **sizes | dict(num_hidden_layers=4), intermediate_size=64, moe_intermediate_size=32, num_experts=4,
        num_experts_per_tok=2, num_dense_layers=1, conv_bias=True, routed_scaling_factor=1.5,
        layer_types=["conv", "conv", "full_attention", "conv"]), 441)
    generator = torch.Generator().manual_seed(442)
    for name, bias in model.named_buffers():
        if "expert_bias" in name:
            bias.copy_(0.3 * torch.randn(bias.shape, generator=generator))
    tiny.write("lfm2_moe", *tiny.saved(model), tiny.reference(model, 443))
