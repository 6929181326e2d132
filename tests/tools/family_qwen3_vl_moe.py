#!/usr/bin/env python3
"""Writes the tiny Qwen3-VL-MoE checkpoints: family_qwen3_vl_moe.py"""
import torch
from transformers import Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration

import tiny_checkpoint as tiny

SHARED = tiny.SIZES | dict(head_dim=32, intermediate_size=48, moe_intermediate_size=24, num_experts_per_tok=2)
VISION = dict(depth=1, hidden_size=16, num_heads=2, intermediate_size=16, out_hidden_size=64, patch_size=4,
              num_position_embeddings=16, deepstack_visual_indexes=[0])
ROPE = dict(rope_type="default", rope_theta=5e6, mrope_interleaved=True, mrope_section=[6, 5, 5])


def build(seed, **text):
    """The whole model, in fp32 with plain attention, and the text model's tensors by their stored names."""
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    config = Qwen3VLMoeConfig(text_config=SHARED | dict(rope_parameters=ROPE) | text, vision_config=VISION,
                              tie_word_embeddings=False)
    model = Qwen3VLMoeForConditionalGeneration._from_config(config, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    tiny.fill(model, seed)
    return model, {name: tensor for name, tensor in tiny.stored(model).items() if ".visual." not in name}


def keys_of(model):
    """The text model's part as transformers writes it."""
    whole = tiny.config_json(model)
    text = {key: value for key, value in whole["text_config"].items() if key not in tiny.IRRELEVANT}
    return whole, text | {"dtype": "bfloat16"}


def published():
    """The text model inside an image model, stacks of experts column by column, and a vision tower."""
    model, tensors = build(61, num_experts=6)
    for name, tensor in tensors.items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            tensors[name] = tensor.transpose(1, 2).contiguous()
    tensors["model.visual.patch_embed.proj.weight"] = torch.zeros(2, 2)
    tensors["model.visual.deepstack_merger_list.0.norm.weight"] = torch.zeros(2)
    _, text = keys_of(model)
    keys = {"model_type": "qwen3_vl_moe", "text_config": tiny.old_keys(text | {"dtype": "bfloat16"}),
            "vision_config": {"depth": 1}, "tie_word_embeddings": False}
    tiny.write("qwen3_vl_moe", keys, tensors, tiny.reference(model, 62))


def apart():
    """The text model alone, one module an expert as quantizers leave them, the second layer dense."""
    model, tensors = build(63, num_experts=4, num_hidden_layers=3, mlp_only_layers=[1])
    tensors = {name.replace("model.language_model.", "model."): tensor
               for name, tensor in tiny.take_apart(tensors).items()}
    _, text = keys_of(model)
    tiny.write("qwen3_vl_moe-text", text | {"tie_word_embeddings": False}, tensors, tiny.reference(model, 64))


if __name__ == "__main__":
    published()
    apart()
