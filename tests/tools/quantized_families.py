#!/usr/bin/env python3
"""Quantizes tiny checkpoints by the tools of others: quantized_families.py [NAME...]

Needs nvidia-modelopt 0.47, llmcompressor 0.14 and compressed-tensors 0.20 beside what tiny_checkpoint.py needs. Files are
as the tools write them; logits are those of transformers with the numbers that a tool makes of its own codes.
"""
import json
import pathlib
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (AutoModelForCausalLM, GraniteMoeHybridConfig, GraniteMoeSharedConfig, Lfm2MoeConfig,
                          NemotronHConfig, PreTrainedTokenizerFast)

import family_granitemoehybrid
import tiny_checkpoint as tiny

NEMOTRON = {key: value for key, value in tiny.SMALL.items() if key != "num_hidden_layers"} | dict(
    intermediate_size=48, ssm_state_size=16, mamba_num_heads=8, mamba_head_dim=8, n_groups=2, conv_kernel=4,
    n_routed_experts=4, moe_intermediate_size=32, moe_shared_expert_intermediate_size=48, num_experts_per_tok=2,
    routed_scaling_factor=2.5, layers_block_type=["linear_attention", "moe", "full_attention", "moe"])


def narrowed(tensors):
    """What is not quantized, as wide as it was before it was widened for the tool."""
    keep = ("scale", "_bias", "zero_point")
    return {name: tensor.to(torch.bfloat16) if tensor.dtype == torch.float32 and not any(k in name for k in keep)
            else tensor for name, tensor in tensors.items()}


def exported(folder):
    folder = pathlib.Path(folder)
    tensors = {name: tensor.contiguous() for file in folder.glob("*.safetensors")
               for name, tensor in load_file(file).items()}
    config = json.loads((folder / "config.json").read_text())
    return {key: value for key, value in config.items() if key not in tiny.IRRELEVANT} | {"dtype": "bfloat16"}, tensors


def meaning(tensors):
    """ModelOpt's own numbers for its NVFP4 codes, and what is not quantized as it is."""
    from modelopt.torch.quantization.qtensor import NVFP4QTensor
    plain = {}
    for name, tensor in tensors.items():
        if tensor.dtype != torch.uint8:
            if "_scale" not in name:
                plain[name] = tensor
            continue
        shape = (tensor.shape[0], 2 * tensor.shape[1])
        plain[name] = NVFP4QTensor(shape, torch.float32, tensor).dequantize(
            scale=tensors[name + "_scale"], double_scale=tensors[name + "_scale_2"], block_sizes={-1: 16})
    return plain


def reference_of(keys, tensors, seed):
    """What transformers computes with these numbers."""
    with tempfile.TemporaryDirectory() as folder:
        plain = {key: value for key, value in keys.items() if key != "quantization_config"}
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(plain | {"dtype": "float32"}))
        save_file(tensors, pathlib.Path(folder) / "model.safetensors", metadata={"format": "pt"})
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    return tiny.reference(model, seed)


def modelopt(name, config, seed, recipe):
    """Weights alone: an export unites scales of linears that read the same, so what its stand-ins gave before is not it."""
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint
    model = tiny.build(config, seed)
    model.config.architectures = [type(model).__name__]  # which the export asks for
    mtq.quantize(model, getattr(mtq, recipe), lambda of: [of(ids[None], use_cache=False) for ids in tiny.prompts(seed)])
    with tempfile.TemporaryDirectory() as folder:
        export_hf_checkpoint(model, export_dir=folder)
        keys, tensors = exported(folder)
    tiny.write(name, keys, narrowed(tensors), reference_of(keys, meaning(tensors), seed + 1))


def llm_compressor(name, config, seed, ignore=(), **weights):
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from llmcompressor import oneshot
    from llmcompressor.modeling.moe.linearize import load_quantizable_moe
    from llmcompressor.modifiers.quantization import QuantizationModifier
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights))
    unused = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"a": 0})))  # one is asked for
    with tempfile.TemporaryDirectory() as folder:
        tiny.build(config, seed).save_pretrained(folder)
        with load_quantizable_moe():
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        oneshot(model=model, processor=unused,
                recipe=QuantizationModifier(config_groups={"group_0": scheme}, ignore=["lm_head", *ignore]))
        expected = tiny.reference(model, seed + 1)
        with tempfile.TemporaryDirectory() as compressed:
            model.save_pretrained(compressed, save_compressed=True)
            keys, tensors = exported(compressed)
    tiny.write(name, keys, narrowed(tensors), expected)


INT4 = dict(num_bits=4, type="int", symmetric=True, strategy="group", group_size=16)
FP8 = dict(num_bits=8, type="float", symmetric=True, strategy="channel")
GRANITE = family_granitemoehybrid.SHARED

ALL = {
    "nemotron_h-modelopt-nvfp4": lambda name: modelopt(name, NemotronHConfig(**NEMOTRON), 601, "W4A16_NVFP4_CFG"),
    "nemotron_h-ct-int4": lambda name: llm_compressor(
        name, NemotronHConfig(**NEMOTRON, moe_latent_size=16), 605, ["re:.*mixer.gate$"], **INT4),
    "lfm2_moe-ct-int4": lambda name: llm_compressor(name, Lfm2MoeConfig(
        **{key: value for key, value in tiny.SMALL.items() if key != "head_dim"}, intermediate_size=48, moe_intermediate_size=32, num_experts=4, num_experts_per_tok=2,
        num_dense_layers=1, conv_L_cache=3, layer_types=["conv", "full_attention"]), 607, ["re:.*gate$"], **INT4),
    "granitemoehybrid-ct-fp8": lambda name: llm_compressor(
        name, GraniteMoeHybridConfig(**GRANITE, num_local_experts=4), 609, ["re:.*router.*"], **FP8),
    "granitemoeshared-ct-int4": lambda name: llm_compressor(name, GraniteMoeSharedConfig(
        **{key: value for key, value in tiny.SMALL.items() if key != "head_dim"}, intermediate_size=32,
        num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=48, embedding_multiplier=3.0,
        logits_scaling=4.0, residual_multiplier=0.5, attention_multiplier=0.25), 611, ["re:.*router.*"], **INT4),
}

if __name__ == "__main__":
    for wanted in sys.argv[1:] or ALL:
        ALL[wanted](wanted)
