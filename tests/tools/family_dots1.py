#!/usr/bin/env python3
"""Writes the tiny dots.llm1 checkpoint: family_dots1.py"""
from transformers import Dots1Config

import tiny_checkpoint as tiny

if __name__ == "__main__":
    # A dense layer, two groups, a window from the third layer on.
    tiny.write_saved("dots1", Dots1Config(
        **tiny.SMALL | dict(num_hidden_layers=3), intermediate_size=32, moe_intermediate_size=32, n_routed_experts=4,
        num_experts_per_tok=2, n_group=2, topk_group=1, n_shared_experts=1, first_k_dense_replace=1,
        norm_topk_prob=True, routed_scaling_factor=2.5, sliding_window=20, max_window_layers=2), 301)
