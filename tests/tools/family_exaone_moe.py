#!/usr/bin/env python3
"""Writes the tiny K-EXAONE checkpoint: family_exaone_moe.py"""
from transformers import ExaoneMoeConfig

import tiny_checkpoint as tiny

if __name__ == "__main__":
    # A dense layer, three windows before the one layer that is not rotated.
    tiny.write_saved("exaone_moe", ExaoneMoeConfig(
        **tiny.SMALL | dict(num_hidden_layers=4), intermediate_size=32, moe_intermediate_size=32, num_experts=4,
        num_experts_per_tok=2, sliding_window=20), 311)
