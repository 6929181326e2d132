#!/usr/bin/env python3
"""Writes the tiny Mixtral checkpoint: family_mixtral.py"""
from transformers import MixtralConfig

import tiny_checkpoint as tiny

if __name__ == "__main__":
    # As transformers holds it: experts stacked; a window within a block of the state.
    config = MixtralConfig(**tiny.SIZES, head_dim=24, intermediate_size=32, num_local_experts=6, num_experts_per_tok=2,
                           sliding_window=20)
    model = tiny.build(config, seed=1)
    tiny.write("mixtral-stacked", tiny.config_json(model), tiny.stored(model), tiny.reference(model, 2))
