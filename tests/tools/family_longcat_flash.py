#!/usr/bin/env python3
"""Writes the tiny LongCat-Flash checkpoints: family_longcat_flash.py"""
import torch
from transformers import LongcatFlashConfig

import tiny_checkpoint as tiny

LAYERS = {key: value for key, value in tiny.SMALL.items() if key not in ("num_hidden_layers", "num_key_value_heads")} | dict(
    num_layers=2, ffn_hidden_size=32, expert_ffn_hidden_size=32, n_routed_experts=5, zero_expert_num=4, moe_topk=3,
    q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=12, head_dim=8)


def build(seed, **keys):
    """Biases of choices as small as what they are added to: softmax scores of some nine experts."""
    model = tiny.build(LongcatFlashConfig(**LAYERS | keys), seed)
    with torch.no_grad():
        for name, bias in model.named_buffers():
            if "correction_bias" in name:
                bias.copy_((bias / 8).bfloat16().float())
    return model


def written(model):
    """As save_pretrained writes it but for rows of gate and up that zero experts have there, and nobody reads."""
    keys, tensors = tiny.saved(model)
    first = keys["n_routed_experts"]
    zero = tuple(f".experts.{e}." for e in range(first, first + keys["zero_expert_num"]))
    return keys, {name: tensor for name, tensor in tensors.items() if not any(each in name for each in zero)}


def published():
    """The publisher's keys, and a draft layer."""
    model = build(701, routed_scaling_factor=1.5)
    keys, tensors = written(model)
    for key in ("head_dim", "hidden_act", "num_key_value_heads", "qk_head_dim"):
        keys.pop(key)
    keys |= dict(attention_method="MLA", mla_scale_q_lora=True, mla_scale_kv_lora=True, router_bias=False,
                 router_dtype="float32", zero_expert_type="identity")
    tensors = {name: tensor.float() if "classifier" in name else tensor for name, tensor in tensors.items()}
    for name in ("embed_tokens.weight", "layers.0.eh_proj.weight", "layers.0.transformer_layer.mlp.down_proj.weight"):
        tensors[f"model.mtp.{name}"] = tensors["model.layers.0.mlps.0.down_proj.weight"][:2].clone()
    tiny.write("longcat_flash", tiny.old_keys(keys), tensors, tiny.reference(model, 702))


def saved():
    """The keys of transformers; biases, yarn."""
    yarn = dict(rope_type="yarn", rope_theta=5000.0, factor=8.0, beta_fast=32, beta_slow=1, mscale=0.7, mscale_all_dim=0.9,
                original_max_position_embeddings=64)
    model = build(703, zero_expert_num=2, num_layers=1, attention_bias=True, rope_parameters=yarn)
    keys, tensors = written(model)
    tiny.write("longcat_flash-saved", keys, tensors, tiny.reference(model, 704))


def without():
    """No zero experts at all."""
    model = build(705, zero_expert_num=0, num_layers=1)
    keys, tensors = written(model)
    tiny.write("longcat_flash-without", keys, tensors, tiny.reference(model, 706))


if __name__ == "__main__":
    published()
    saved()
    without()
