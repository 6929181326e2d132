#!/usr/bin/env python3
"""Writes a checkpoint folder of a published model's real shape whose files hold headers and holes: config.json, the
index, and shards of a few KiB on disk that appear as large as the published ones. What reads headers only is measured
on it; running it would find zeros.

    bench/sparse_checkpoint.py qwen3-30b-a3b /tmp/qwen3
    time moracle explain /tmp/qwen3 --device gfx950

Standard library only.
"""
import argparse
import json
import math
import os
import pathlib
import struct

BYTES = {"BF16": 2, "F32": 4, "U8": 1, "F8_E4M3": 1}
SHARD_BYTES = 4_300_000_000


def fp8(name, rows, columns):
    """A matrix in blocks of 128 x 128, as the `fp8` format has it."""
    yield name + ".weight", "F8_E4M3", [rows, columns]
    yield name + ".weight_scale_inv", "F32", [math.ceil(rows / 128), math.ceil(columns / 128)]


def bf16(name, rows, columns):
    yield name + ".weight", "BF16", [rows, columns]


def vector(name, size, dtype="BF16"):
    yield name, dtype, [size]


def ends(config):
    yield from bf16("model.embed_tokens", config["vocab_size"], config["hidden_size"])
    yield from bf16("lm_head", config["vocab_size"], config["hidden_size"])
    yield from vector("model.norm.weight", config["hidden_size"])


def gated(prefix, hidden, intermediate, matrix):
    yield from matrix(prefix + "gate_proj", intermediate, hidden)
    yield from matrix(prefix + "up_proj", intermediate, hidden)
    yield from matrix(prefix + "down_proj", hidden, intermediate)


def grouped_attention(prefix, config, matrix, biases=False):
    hidden, head = config["hidden_size"], config["head_dim"]
    heads = config["num_attention_heads"] * head
    shared = config["num_key_value_heads"] * head
    for name, rows, columns in (("q", heads, hidden), ("k", shared, hidden), ("v", shared, hidden), ("o", hidden, heads)):
        yield from matrix(prefix + name + "_proj", rows, columns)
        if biases:
            yield from vector(prefix + name + "_proj.bias", rows)


def layer_norms(prefix, hidden):
    yield from vector(prefix + "input_layernorm.weight", hidden)
    yield from vector(prefix + "post_attention_layernorm.weight", hidden)


def qwen3_moe(config):
    matrix = fp8 if "quantization_config" in config else bf16
    hidden = config["hidden_size"]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield from layer_norms(prefix, hidden)
        yield from grouped_attention(prefix + "self_attn.", config, matrix)
        for norm in ("q_norm", "k_norm"):
            yield from vector(prefix + f"self_attn.{norm}.weight", config["head_dim"])
        yield from bf16(prefix + "mlp.gate", config["num_experts"], hidden)
        for expert in range(config["num_experts"]):
            yield from gated(prefix + f"mlp.experts.{expert}.", hidden, config["moe_intermediate_size"], matrix)
    yield from ends(config)


def gpt_oss(config):
    hidden, experts = config["hidden_size"], config["num_local_experts"]
    intermediate = config["intermediate_size"]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield from layer_norms(prefix, hidden)
        yield from grouped_attention(prefix + "self_attn.", config, bf16, biases=True)
        yield from vector(prefix + "self_attn.sinks", config["num_attention_heads"])
        yield from bf16(prefix + "mlp.router", experts, hidden)
        yield from vector(prefix + "mlp.router.bias", experts)
        for name, rows, columns in (("gate_up_proj", 2 * intermediate, hidden), ("down_proj", hidden, intermediate)):
            stem = prefix + "mlp.experts." + name
            yield stem + "_blocks", "U8", [experts, rows, columns // 32, 16]
            yield stem + "_scales", "U8", [experts, rows, columns // 32]
            yield stem + "_bias", "BF16", [experts, rows]
    yield from ends(config)


def deepseek_v3(config):
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    rope, query = config["qk_rope_head_dim"], config["qk_nope_head_dim"] + config["qk_rope_head_dim"]
    latent, low = config["kv_lora_rank"], config["q_lora_rank"]
    keys_and_values = config["qk_nope_head_dim"] + config["v_head_dim"]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        attention = prefix + "self_attn."
        yield from layer_norms(prefix, hidden)
        yield from fp8(attention + "q_a_proj", low, hidden)
        yield from vector(attention + "q_a_layernorm.weight", low)
        yield from fp8(attention + "q_b_proj", heads * query, low)
        yield from fp8(attention + "kv_a_proj_with_mqa", latent + rope, hidden)
        yield from vector(attention + "kv_a_layernorm.weight", latent)
        yield from fp8(attention + "kv_b_proj", heads * keys_and_values, latent)
        yield from fp8(attention + "o_proj", hidden, heads * config["v_head_dim"])
        if layer < config["first_k_dense_replace"]:
            yield from gated(prefix + "mlp.", hidden, config["intermediate_size"], fp8)
            continue
        yield from bf16(prefix + "mlp.gate", config["n_routed_experts"], hidden)
        yield from vector(prefix + "mlp.gate.e_score_correction_bias", config["n_routed_experts"], "F32")
        yield from gated(prefix + "mlp.shared_experts.", hidden, config["moe_intermediate_size"], fp8)
        for expert in range(config["n_routed_experts"]):
            yield from gated(prefix + f"mlp.experts.{expert}.", hidden, config["moe_intermediate_size"], fp8)
    yield from ends(config)


FP8_BLOCKS = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
QWEN3 = dict(model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"], hidden_act="silu", rms_norm_eps=1e-6,
             rope_theta=1000000.0, vocab_size=151936, max_position_embeddings=40960, head_dim=128, num_experts=128,
             num_experts_per_tok=8, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
             tie_word_embeddings=False, attention_bias=False, bos_token_id=151643, eos_token_id=151645,
             torch_dtype="bfloat16", num_key_value_heads=4)
QWEN3_30B = dict(QWEN3, hidden_size=2048, num_hidden_layers=48, num_attention_heads=32, intermediate_size=6144,
                 moe_intermediate_size=768)
QWEN3_235B = dict(QWEN3, hidden_size=4096, num_hidden_layers=94, num_attention_heads=64, intermediate_size=12288,
                  moe_intermediate_size=1536)

# Shapes as their publishers' config.json give them.
MODELS = {
    "qwen3-30b-a3b": (qwen3_moe, QWEN3_30B),
    "qwen3-235b-a22b-fp8": (qwen3_moe, dict(QWEN3_235B, quantization_config=FP8_BLOCKS)),
    "gpt-oss-120b": (gpt_oss, dict(
        model_type="gpt_oss", architectures=["GptOssForCausalLM"], hidden_act="silu", rms_norm_eps=1e-5,
        hidden_size=2880, intermediate_size=2880, num_hidden_layers=36, num_attention_heads=64, num_key_value_heads=8,
        head_dim=64, num_local_experts=128, num_experts_per_tok=4, vocab_size=201088, sliding_window=128,
        layer_types=["sliding_attention", "full_attention"] * 18, attention_bias=True, swiglu_limit=7.0,
        max_position_embeddings=131072, rope_theta=150000.0, tie_word_embeddings=False, torch_dtype="bfloat16",
        eos_token_id=200002, pad_token_id=199999,
        rope_scaling=dict(rope_type="yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                          original_max_position_embeddings=4096),
        quantization_config=dict(quant_method="mxfp4", modules_to_not_convert=[
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]))),
    "deepseek-v3": (deepseek_v3, dict(
        model_type="deepseek_v3", architectures=["DeepseekV3ForCausalLM"], hidden_act="silu", rms_norm_eps=1e-6,
        hidden_size=7168, intermediate_size=18432, moe_intermediate_size=2048, num_hidden_layers=61,
        num_attention_heads=128, num_key_value_heads=128, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128,
        qk_rope_head_dim=64, v_head_dim=128, first_k_dense_replace=3, moe_layer_freq=1, n_routed_experts=256,
        n_shared_experts=1, num_experts_per_tok=8, n_group=8, topk_group=4, topk_method="noaux_tc",
        scoring_func="sigmoid", norm_topk_prob=True, routed_scaling_factor=2.5, vocab_size=129280,
        max_position_embeddings=163840, rope_theta=10000.0, attention_bias=False, tie_word_embeddings=False,
        torch_dtype="bfloat16", bos_token_id=0, eos_token_id=1, num_nextn_predict_layers=0,
        rope_scaling=dict(type="yarn", factor=40, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0,
                          original_max_position_embeddings=4096),
        quantization_config=FP8_BLOCKS)),
}


def shards(tensors):
    """Lists of (name, dtype, shape, bytes), each of about SHARD_BYTES."""
    shard, held = [], 0
    for name, dtype, shape in tensors:
        size = BYTES[dtype] * math.prod(shape)
        if shard and held + size > SHARD_BYTES:
            yield shard
            shard, held = [], 0
        shard.append((name, dtype, shape, size))
        held += size
    yield shard


def write_shard(path, tensors):
    header, at = {}, 0
    for name, dtype, shape, size in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    return at


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("out", type=pathlib.Path)
    arguments = parser.parse_args()
    family, config = MODELS[arguments.model]
    os.makedirs(arguments.out, exist_ok=True)
    (arguments.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    lists = list(shards(family(config)))
    weight_map, total = {}, 0
    for number, tensors in enumerate(lists, 1):
        name = f"model-{number:05}-of-{len(lists):05}.safetensors"
        total += write_shard(arguments.out / name, tensors)
        weight_map.update((tensor[0], name) for tensor in tensors)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (arguments.out / "model.safetensors.index.json").write_text(json.dumps(index) + "\n")
    print(f"{arguments.out}: {len(weight_map)} tensors, {len(lists)} shards, {total / 1e9:.1f} GB apparent")


if __name__ == "__main__":
    main()
