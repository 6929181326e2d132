#!/usr/bin/env python3
"""Writes the tiny Step-3.5 checkpoints: family_step3p5.py

transformers has the text model as a part of Step-3.7, with the same configuration class."""
import types

import torch
from transformers.models.step3p7.configuration_step3p7 import Step3p7TextConfig
from transformers.models.step3p7.modeling_step3p7 import Step3p7TextModel

import tiny_checkpoint as tiny

KINDS = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
SHARED = dict(model_type="step3p5", vocab_size=tiny.VOCABULARY, hidden_size=64, num_hidden_layers=4,
              num_attention_heads=4, head_dim=16, intermediate_size=48, moe_intermediate_size=16, share_expert_dim=24,
              sliding_window=20, max_position_embeddings=512, rms_norm_eps=1e-5, moe_router_scaling_factor=3.0)
# As published: lists are longer than the layers, for a draft layer. The limits are so small that they bind.
OLD = SHARED | dict(
    torch_dtype="bfloat16", num_attention_groups=2, moe_num_experts=8, moe_top_k=3, moe_layers_enum="1,2,3,4",
    moe_router_activation="sigmoid", use_moe_router_bias=True, norm_expert_weight=True, need_fp32_gate=False,
    use_head_wise_attn_gate=True, use_qk_norm=True, zero_centered=True, num_nextn_predict_layers=1,
    layer_types=[*KINDS, "sliding_attention"],
    attention_other_setting=dict(attention_type="sliding_attention", num_attention_heads=6, num_attention_groups=2,
                                 head_dim=16),
    rope_theta=[50000.0, 10000.0, 10000.0, 50000.0, 10000.0], partial_rotary_factors=[0.5, 1.0, 1.0, 0.5, 1.0],
    rope_scaling=dict(rope_type="llama3", factor=4.0, original_max_position_embeddings=64, low_freq_factor=1.0,
                      high_freq_factor=32.0),
    yarn_only_types=["full_attention"], swiglu_limits=[0.0, 0.0, 0.25, 0.5, 0.0],
    swiglu_limits_shared=[0.75, 0.0, 0.0, 0.5, 0.0])
# What a configuration of transformers 5 says.
NEW = SHARED | dict(
    dtype="bfloat16", num_key_value_heads=2, n_routed_experts=8, num_experts_per_tok=3, num_sliding_attention_heads=2,
    layer_types=KINDS, mlp_layer_types=["dense", "sparse", "dense", "sparse"], swiglu_limits=[None, 0.25, None, None],
    rope_parameters=dict(full_attention=dict(rope_type="yarn", rope_theta=50000.0, partial_rotary_factor=0.5,
                                             factor=4.0, original_max_position_embeddings=128),
                         sliding_attention=dict(rope_type="default", rope_theta=10000.0)))


class Step(torch.nn.Module):
    """The text model with a head: transformers' own is for images as well."""

    def __init__(self, keys, seed):
        super().__init__()
        known = {key: value for key, value in keys.items() if key not in ("model_type", "torch_dtype", "dtype")}
        self.text = Step3p7TextModel._from_config(Step3p7TextConfig(pad_token_id=0, **known), dtype=torch.float32,
                                                  attn_implementation="eager")
        self.lm_head = torch.nn.Linear(keys["hidden_size"], keys["vocab_size"], bias=False)
        tiny.fill(self.eval(), seed)
        for name, tensor in self.named_parameters():
            if "norm" in name:
                tensor.data = (tensor.data - 1.0).bfloat16().float()  # these have 1 + w
        for index, layer in enumerate(self.text.layers):
            if not keys.get("norm_expert_weight", True) and hasattr(layer.mlp, "gate"):
                layer.mlp.gate.forward = lambda hidden, gate=layer.mlp.gate: plain_weights(gate, hidden)
            if not keys.get("use_rope_layers", [1] * 5)[index]:
                stand_still(layer.self_attn)

    def forward(self, ids, use_cache):
        hidden = self.text(input_ids=ids, use_cache=use_cache).last_hidden_state
        return types.SimpleNamespace(logits=self.lm_head(hidden))


def plain_weights(gate, hidden):
    """norm_expert_weight false, which the class does not know."""
    logits = hidden.reshape(-1, gate.hidden_dim) @ gate.weight.T
    scores = logits.sigmoid()
    chosen = torch.topk(scores + gate.e_score_correction_bias, gate.top_k, dim=-1).indices
    return logits, scores.gather(1, chosen), chosen


def stand_still(attention):
    """use_rope_layers 0, which the class does not know either."""
    turned = attention.forward

    def forward(hidden_states, position_embeddings, **options):
        cos, sin = position_embeddings
        return turned(hidden_states, (torch.ones_like(cos), torch.zeros_like(sin)), **options)

    attention.forward = forward


NAMES = ((".mlp.gate.weight", ".moe.gate.weight"), (".mlp.gate.e_score_correction_bias", ".moe.router_bias"),
         (".mlp.experts.", ".moe.experts."), (".mlp.shared_experts.", ".share_expert."))


def stored(model, root):
    """Names of the published checkpoints, experts one by one."""
    tensors = {}
    for name, tensor in tiny.take_apart(tiny.stored(model)).items():
        for ours, theirs in NAMES:
            name = name.replace(ours, theirs)
        tensors[name.replace("text.", root, 1)] = tensor
    return tensors


def stack(tensors):
    """One tensor for each projection of all experts of a layer."""
    stacks = {}
    for name, tensor in tensors.items():
        if ".moe.experts." in name:
            layer, _, rest = name.partition(".moe.experts.")
            expert, _, part = rest.partition(".")
            stacks.setdefault(f"{layer}.moe.{part}", {})[int(expert)] = tensor
    kept = {name: tensor for name, tensor in tensors.items() if ".moe.experts." not in name}
    return kept | {name: torch.stack([experts[e] for e in sorted(experts)]) for name, experts in stacks.items()}


def lists():
    model = Step(OLD, seed=21)
    tensors = stack(stored(model, "model."))
    tensors["model.layers.4.eh_proj.weight"] = torch.zeros(2, 2)
    tensors["model.layers.1.moe.expert_bias"] = torch.zeros(8)
    tiny.write("step3p5-lists", OLD, tensors, tiny.reference(model, 22))


def parameters():
    """The configuration as transformers writes it, numbers of heads layer by layer."""
    model = Step(NEW, seed=23)
    keys = tiny.config_json(model.text, remove=("num_sliding_attention_heads",))
    tiny.write("step3p5-parameters", dict(model_type="step3p7", text_config=keys),
               stored(model, "model.language_model."), tiny.reference(model, 24))


def switches():
    """Two layers that do not turn their heads, weights not renormalized, layers listed otherwise."""
    keys = OLD | dict(norm_expert_weight=False, use_rope_layers=[1, 0, 1, 0, 1], moe_layers_enum="2, 3")
    model = Step(keys, seed=25)
    tiny.write("step3p5-switches", keys, stored(model, "model."), tiny.reference(model, 26))


if __name__ == "__main__":
    lists()
    parameters()
    switches()
