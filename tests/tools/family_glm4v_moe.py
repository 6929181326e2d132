#!/usr/bin/env python3
"""Writes the tiny GLM-4.5V checkpoint, the text part alone: family_glm4v_moe.py"""
from transformers import Glm4vMoeConfig, Glm4vMoeForConditionalGeneration

import tiny_checkpoint as tiny

if __name__ == "__main__":
    text = tiny.SMALL | dict(
        intermediate_size=32, moe_intermediate_size=32, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1,
        first_k_dense_replace=1, routed_scaling_factor=1.5,
        rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5, mrope_section=[1, 1, 2]))
    vision = dict(depth=1, hidden_size=16, num_heads=2, intermediate_size=16, out_hidden_size=32, image_size=28,
                  patch_size=14)
    config = Glm4vMoeConfig(text_config=text, vision_config=vision)
    tiny.write_saved("glm4v_moe", config, 481, Glm4vMoeForConditionalGeneration)
