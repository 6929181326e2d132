#!/usr/bin/env python3
"""Writes the tiny ERNIE 4.5 checkpoint: family_ernie4_5_moe.py"""
from transformers import Ernie4_5_MoeConfig

import tiny_checkpoint as tiny

if __name__ == "__main__":
    # A dense layer before the mixtures and one behind them, biases, the embedding as head.
    tiny.write_saved("ernie4_5_moe", Ernie4_5_MoeConfig(
        **tiny.SMALL | dict(num_hidden_layers=4), intermediate_size=32, moe_intermediate_size=32, moe_num_experts=4,
        moe_k=2, moe_num_shared_experts=1, moe_layer_end_index=2, tie_word_embeddings=True), 331)
