#!/usr/bin/env python3
"""Writes the tiny Hy3 checkpoints: family_hy_v3.py"""
import torch
from transformers import HYV3Config

import tiny_checkpoint as tiny

SHARED = tiny.SIZES | dict(head_dim=24, intermediate_size=48, moe_intermediate_size=16, num_experts=6,
                           num_experts_per_tok=2)
NAMES = ((".mlp.gate.weight", ".mlp.router.gate.weight"), (".mlp.e_score_correction_bias", ".mlp.expert_bias"),
         (".mlp.shared_experts.", ".mlp.shared_mlp."))


def published():
    """Names as published, one module an expert; no list of the kinds of layers; the tensors of a draft layer."""
    config = HYV3Config(**SHARED, rope_parameters=dict(rope_type="default", rope_theta=1e6))
    model = tiny.build(config, seed=41)
    tensors = tiny.take_apart(tiny.stored(model))
    for name, other in NAMES:
        tensors = {key.replace(name, other): tensor for key, tensor in tensors.items()}
    for part in ("eh_proj.weight", "enorm.weight", "mlp.router.gate.weight"):
        tensors[f"model.layers.2.{part}"] = torch.zeros(2, 2)
    keys = tiny.config_json(model, remove=("mlp_layer_types",), qk_norm=True, route_norm=True,
                            moe_router_use_sigmoid=True, num_nextn_predict_layers=1)
    tiny.write("hy_v3", tiny.old_keys(keys), tensors, tiny.reference(model, 42))


def listed():
    """As transformers holds it: experts stacked, the kinds of layers listed, biases, two shared experts."""
    config = HYV3Config(**SHARED | dict(num_hidden_layers=3), num_shared_experts=2, attention_bias=True,
                        router_scaling_factor=1.5, mlp_layer_types=["sparse", "dense", "sparse"])
    model = tiny.build(config, seed=43)
    tiny.write("hy_v3-listed", tiny.config_json(model), tiny.stored(model), tiny.reference(model, 44))


if __name__ == "__main__":
    published()
    listed()
