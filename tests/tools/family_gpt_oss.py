#!/usr/bin/env python3
"""Writes the tiny gpt-oss checkpoints: family_gpt_oss.py"""
import torch
from transformers import GptOssConfig

import tiny_checkpoint as tiny

SHARED = tiny.SIZES | dict(max_position_embeddings=128, head_dim=16, intermediate_size=32, num_local_experts=5, num_experts_per_tok=2)


def columns(name, tensor):
    """Stacked experts are transposed here."""
    return tensor.shape[1] if tensor.ndim == 3 else tensor.shape[-1]


def yarn(**change):
    return dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32,
                beta_fast=32.0, beta_slow=1.0) | change


def take_apart(tensors):
    """As quantizers store them: rows of gate and up apart, [out, in], with their biases."""
    apart = {}
    for name, tensor in tensors.items():
        path, _, part = name.rpartition(".")
        if part not in ("gate_up_proj", "gate_up_proj_bias", "down_proj", "down_proj_bias"):
            apart[name] = tensor
            continue
        leaf = "bias" if part.endswith("_bias") else "weight"
        for e, one in enumerate(tensor):
            rows = one.T if one.ndim == 2 else one
            halves = dict(gate=rows[::2], up=rows[1::2]) if part.startswith("gate_up") else dict(down=rows)
            for half, values in halves.items():
                apart[f"{path}.{e}.{half}_proj.{leaf}"] = values.contiguous()
    return apart


def stacked():
    """As transformers holds it; layers of its own order of kinds, a ramp with rounded ends, a limit that is reached."""
    config = GptOssConfig(**SHARED | dict(num_hidden_layers=3), sliding_window=20, swiglu_limit=1.5,
                          layer_types=["full_attention", "sliding_attention", "sliding_attention"],
                          rope_parameters=yarn(truncate=True))
    model = tiny.build(config, seed=1, columns=columns)
    tiny.write("gpt_oss-stacked", tiny.config_json(model), tiny.stored(model), tiny.reference(model, 2))


def apart():
    """Experts taken apart, keys of old; kinds of layers by default, a ramp between dimensions, a window beyond 64."""
    config = GptOssConfig(**SHARED, sliding_window=66, swiglu_alpha=1.3, rope_parameters=yarn(truncate=False))
    model = tiny.build(config, seed=3, columns=columns)
    keys = tiny.old_keys(tiny.config_json(model, remove=("layer_types",)))
    tiny.write("gpt_oss-apart", keys, take_apart(tiny.stored(model)), tiny.reference(model, 4))


E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def nvfp4(weight):
    """Stacked [E, in, out], groups of 16 along the inputs: codes two an input pair, E4M3 scales, one f32 scale; and what
    they mean."""
    experts, columns, rows = weight.shape
    groups = weight.reshape(experts, columns // 16, 16, rows)
    scale_2 = weight.abs().amax() / (448.0 * 6.0)
    scale = (groups.abs().amax(2) / 6.0 / scale_2).to(torch.float8_e4m3fn)
    step = (scale.float() * scale_2)[:, :, None]
    magnitude = ((groups / step).abs()[..., None] - E2M1).abs().argmin(-1)
    codes = (magnitude + 8 * (groups < 0)).reshape(experts, columns, rows)
    meaning = (E2M1[magnitude] * torch.where(groups < 0, -1.0, 1.0) * step).reshape(weight.shape)
    return (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8), scale, scale_2, meaning


def modelopt():
    """As ModelOpt packs the experts: still stacked, two inputs a byte, no input scale."""
    config = GptOssConfig(**SHARED, sliding_window=20, rope_parameters=yarn(truncate=False))
    model = tiny.build(config, seed=5, columns=columns)
    packed = {}
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 3:
                packed[name], packed[name + "_weight_scale"], packed[name + "_weight_scale_2"], meaning = nvfp4(weight)
                weight.copy_(meaning)
    group = {"input_activations": None, "weights": {"num_bits": 4, "type": "float", "group_size": 16},
             "targets": ["Linear"]}
    keys = tiny.config_json(model, quantization_config={
        "quant_method": "modelopt", "quant_algo": "NVFP4", "config_groups": {"group_0": group},
        "ignore": ["lm_head", "model.layers.*.self_attn*", "model.layers.*.mlp.router"]})
    tiny.write("gpt_oss-modelopt", keys, tiny.stored(model) | packed, tiny.reference(model, 6))


def words(codes):
    """Eight codes of four bits along the first dimension in a word, the lowest bits first."""
    groups = codes.reshape(codes.shape[0] // 8, 8, codes.shape[1]).long()
    word = sum(groups[:, i] << 4 * i for i in range(8))
    return torch.where(word >= 2**31, word - 2**32, word).int()


def gptq(weight, group=16):
    """[in, out]: codes, zero points and scales as GPTQ stores them, symmetric, version 1; and what they mean."""
    inputs, rows = weight.shape
    groups = weight.reshape(inputs // group, group, rows)
    scale = (groups.abs().amax(1) / 7.0).half()
    codes = (groups / scale[:, None].float()).round().clamp(-8, 7) + 8
    meaning = ((codes - 8) * scale[:, None].float()).reshape(inputs, rows)
    zeros = torch.full((inputs // group, rows // 8), 0x77777777, dtype=torch.int32)
    return {"qweight": words(codes.reshape(inputs, rows)), "qzeros": zeros, "scales": scale}, meaning


def counted():
    """As GPTQModel takes the experts apart: gate and up together, rows alternating, the number last."""
    config = GptOssConfig(**SHARED, sliding_window=20, rope_parameters=yarn(truncate=False))
    model = tiny.build(config, seed=7, columns=columns)
    tensors = tiny.stored(model)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim != 3:
                continue
            tensors.pop(name)
            biases = tensors.pop(name + "_bias")
            for e in range(weight.shape[0]):
                parts, meaning = gptq(weight[e])
                weight[e] = meaning
                for part, values in (parts | {"bias": biases[e]}).items():
                    tensors[f"{name.removesuffix('_proj')}.{e}.{part}"] = values.contiguous()
    keys = tiny.config_json(model, quantization_config={
        "quant_method": "gptq", "bits": 4, "group_size": 16, "sym": True, "desc_act": False, "lm_head": False})
    tiny.write("gpt_oss-counted", keys, tensors, tiny.reference(model, 8))


if __name__ == "__main__":
    stacked()
    apart()
    modelopt()
    counted()
