"""What the generators of Qwen3-Next and Qwen3.5-MoE share."""
import torch

import tiny_checkpoint as tiny


def columns(name, tensor):
    """Of the convolution a sixteenth, so that what it gives is mostly far from zero and SiLU leaves q and k pointing the
    same way. Without that, as with random ones of any sign, many heads give sums that cancel, and the norm that follows
    blows up their rounding: transformers' own fp32 is then 2e-5 from its fp64. What the eight blocks add is halved, so
    that the roundings of kernels in bf16 do not add up to more than in a trained model."""
    if "conv1d" in name:
        return tensor.shape[-1] / 16
    return tensor.shape[-1] * (4 if "o_proj" in name or "out_proj" in name or "down_proj" in name else 1)


def build(config, seed):
    """Zero-centred norms are centred at zero; the gated norm of the delta net is a plain one. Its memory reaches back over
    tens of tokens."""
    model = tiny.build(config, seed, columns=columns)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name and "linear_attn" not in name:
                weight.sub_(1.0)
            elif name.endswith("A_log"):
                weight.sub_(2.0)
            weight.copy_(weight.bfloat16().float())
    return model
