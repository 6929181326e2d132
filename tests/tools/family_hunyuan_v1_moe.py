#!/usr/bin/env python3
"""Writes the tiny Hunyuan V1 checkpoint: family_hunyuan_v1_moe.py"""
from transformers import HunYuanMoEV1Config

import tiny_checkpoint as tiny

if __name__ == "__main__":
    # As published: a rope whose theta "alpha" makes larger, lists of equal numbers.
    tiny.write_saved("hunyuan_v1_moe", HunYuanMoEV1Config(
        **tiny.SMALL, intermediate_size=32, num_experts=4, moe_topk=[2, 2], attention_bias=False,
        rope_parameters=dict(rope_type="dynamic", rope_theta=1e4, alpha=1000.0, factor=1.0)), 341)
