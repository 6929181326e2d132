#!/usr/bin/env python3
"""Writes the tiny Qwen3.5-MoE checkpoints: family_qwen3_5_moe.py"""
import torch
from transformers import Qwen3_5MoeTextConfig

import qwen_hybrid
import tiny_checkpoint as tiny

SHARED = tiny.SIZES | dict(num_hidden_layers=4, head_dim=32, moe_intermediate_size=16, num_experts_per_tok=2,
                           shared_expert_intermediate_size=24, linear_num_key_heads=2, linear_key_head_dim=16,
                           linear_value_head_dim=16)
ROPE = dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25, mrope_interleaved=True,
            mrope_section=[2, 1, 1])


def multimodal():
    """As published: the text model inside an image model, experts stacked, with a vision tower and a draft head."""
    config = Qwen3_5MoeTextConfig(**SHARED, num_experts=6, linear_num_value_heads=4, rope_parameters=ROPE)
    model = qwen_hybrid.build(config, seed=1)
    tensors = {name.replace("model.", "model.language_model.", 1): tensor
               for name, tensor in tiny.stored(model).items()}
    for name in ("model.visual.patch_embed.proj.weight", "mtp.fc.weight", "mtp.layers.0.mlp.gate.weight"):
        tensors[name] = torch.zeros(2, 2)
    keys = {"model_type": "qwen3_5_moe", "text_config": tiny.config_json(model), "vision_config": {"depth": 1}}
    tiny.write("qwen3_5_moe", keys, tensors, tiny.reference(model, 2))


def text():
    """As transformers writes the text model alone: fp32; one module an expert, as quantizers leave them."""
    config = Qwen3_5MoeTextConfig(**SHARED, num_experts=4, linear_num_value_heads=2, rope_parameters=ROPE,
                                  layer_types=["linear_attention"] * 3 + ["full_attention"])
    model = qwen_hybrid.build(config, seed=3)
    tensors = tiny.take_apart(tiny.stored(model, torch.float32))
    tiny.write("qwen3_5_moe-text", tiny.config_json(model, dtype="float32"), tensors, tiny.reference(model, 4))


if __name__ == "__main__":
    multimodal()
    text()
