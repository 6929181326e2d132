#!/usr/bin/env python3
"""Writes the tiny FlexOlmo checkpoint: family_flex_olmo.py"""
from transformers import FlexOlmoConfig

import tiny_checkpoint as tiny

if __name__ == "__main__":
    tiny.write_saved("flex_olmo", FlexOlmoConfig(
        **{key: value for key, value in tiny.SMALL.items() if key != "head_dim"}, intermediate_size=32, num_experts=4,
        num_experts_per_tok=2), 361)
