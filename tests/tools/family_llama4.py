#!/usr/bin/env python3
"""Writes the tiny Llama 4 checkpoint: family_llama4.py"""
from transformers import Llama4TextConfig

import tiny_checkpoint as tiny

if __name__ == "__main__":
    # Chunks of 20 in rotated layers; a layer that is not rotated, whose queries grow every 16 positions; a dense layer.
    tiny.write_saved("llama4", Llama4TextConfig(
        **tiny.SMALL | dict(num_hidden_layers=4), intermediate_size=32, intermediate_size_mlp=32, num_local_experts=4,
        interleave_moe_layer_step=2, attention_chunk_size=20, floor_scale=16, attn_scale=0.5), 421)
