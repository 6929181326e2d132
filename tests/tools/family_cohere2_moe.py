#!/usr/bin/env python3
"""Writes the tiny Command A MoE checkpoints: family_cohere2_moe.py"""
from transformers import Cohere2MoeConfig

import tiny_checkpoint as tiny

if __name__ == "__main__":
    # A dense layer that is rotated without a window, averaged shared experts; then norms of root mean squares, sigmoids.
    shared = tiny.SMALL | dict(num_hidden_layers=4, intermediate_size=32, prefix_dense_intermediate_size=32,
                               num_experts=4, num_experts_per_tok=2, num_shared_experts=1, sliding_window=20,
                               first_k_dense_replace=1)
    tiny.write_saved("cohere2_moe", Cohere2MoeConfig(**shared), 411)
    tiny.write_saved("cohere2_moe-sigmoid", Cohere2MoeConfig(
        **shared, rms_norm_eps=1e-5, expert_selection_fn="sigmoid", shared_expert_combination_strategy="sum",
        tie_word_embeddings=False, logit_scale=1.5, prefix_dense_sliding_window_pattern=2), 413)
