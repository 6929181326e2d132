"""What the generators of Kimi-Linear and Ling 3 share."""
import torch

import tiny_checkpoint as tiny


def columns(name, tensor):
    """Of the convolution a sixteenth, as in qwen_hybrid.py: norms of what cancels would blow roundings up."""
    return tensor.shape[-1] / 16 if "conv1d" in name else tensor.shape[-1] * (4 if "o_proj" in name else 1)


def build(config, seed):
    """Memories reach back over tens of tokens, and biases of decays are of any sign."""
    model = tiny.build(config, seed, columns=columns)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("A_log"):
                weight.sub_(2.0)
            weight.copy_(weight.bfloat16().float())
    return model
