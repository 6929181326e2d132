"""A checkpoint as a model of transformers: its experts stay quantized and are computed by Moracle, all else is torch's."""

from __future__ import annotations

import importlib
import re
from typing import Any, Optional

from ._checkpoint import Checkpoint, Experts, Pool
from ._library import Error, Model, Policy, path_of

__all__ = ["load"]

_NAME = "moracle"
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_EXPERTS = "is_concatenated"  # a member of the modules that dispatch to an implementation of experts


def _forward(module: Any, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
    """What transformers calls in the place of an experts module's own forward."""
    torch = importlib.import_module("torch")
    if hidden_states.requires_grad and torch.is_grad_enabled():
        raise Error("argument.grad", where=_NAME, wanted="torch.no_grad()", found="inputs that want a gradient")
    rows = hidden_states.detach().reshape(-1, hidden_states.shape[-1])
    experts: Experts = module.moracle
    out = experts(rows, top_k_index, top_k_weights.detach(), out=torch.empty_like(rows))
    return out.reshape(hidden_states.shape)


def _without_experts(model_class: Any) -> Any:
    """The class, whose experts modules have no parameters."""

    def begin(self: Any, *arguments: Any, **options: Any) -> None:
        model_class.__init__(self, *arguments, **options)
        for module in self.modules():
            if hasattr(module, _EXPERTS):
                for name in [name for name, _ in module.named_parameters()]:
                    delattr(module, name)
                module._is_hf_initialized = True  # it has nothing that a class could initialize

    return type(model_class.__name__, (model_class,), {"__init__": begin, "__module__": model_class.__module__})


def _config_of(transformers: Any, folder: str) -> Any:
    """The folder's config, which tells of no quantization: what it would do to weights is done."""
    config = transformers.AutoConfig.from_pretrained(folder)
    parts: list[Any] = [config, getattr(config, "text_config", None)]
    for part in parts:
        if getattr(part, "quantization_config", None) is not None:
            del part.quantization_config
    return config


def load(
    model: Model, *, dtype: Any = None, threads: int = 0, policy: Optional[Policy] = None, pool: Optional[Pool] = None
) -> Any:
    """A folder as the model of transformers 5 that its config names, on the CPU and for inference.

    `dtype`, torch.bfloat16 by default, is that of all that is no expert. `threads` compute experts, 0: one for each core;
    `pool` has them where given. Errors: "transformers.architecture" of a class that transformers lacks,
    "transformers.experts" of one whose experts it computes in a way of its own, "transformers.missing" of tensors that the
    class wants and the checkpoint lacks, and those of `Checkpoint`.
    """
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    functions = importlib.import_module("transformers.integrations.moe").ALL_EXPERTS_FUNCTIONS
    functions.register(_NAME, _forward)
    dtype = torch.bfloat16 if dtype is None else dtype
    folder = path_of(model).decode()
    checkpoint = Checkpoint(model, policy)
    config = _config_of(transformers, folder)
    names = list(getattr(config, "architectures", None) or [""])
    model_class = getattr(transformers, names[0], None)
    if model_class is None:
        raise Error("transformers.architecture", "/architectures", file=folder, wanted="a class of transformers", found=names[0])
    threads_of = pool if pool is not None else Pool(threads)
    tensors = checkpoint.dense("float32" if dtype == torch.float32 else "bfloat16", threads_of)
    made, told = _without_experts(model_class).from_pretrained(
        None,
        config=config,
        state_dict={tensor.name: tensor.torch() for tensor in tensors},
        dtype=dtype,
        experts_implementation=_NAME,
        output_loading_info=True,
    )
    if told["missing_keys"]:
        found = ", ".join(sorted(told["missing_keys"])[:4])
        raise Error("transformers.missing", file=folder, wanted="every tensor of " + names[0], found=found + " is missing")
    layers = {name: module for name, module in made.named_modules() if hasattr(module, _EXPERTS)}
    if not layers:
        raise Error("transformers.experts", file=folder, wanted="modules that dispatch experts", found=names[0])
    for name, module in layers.items():
        number = _LAYER.search(name + ".")
        if number is None:
            raise Error("transformers.experts", name, file=folder, wanted="a layer's number in the name", found="none")
        module.moracle = checkpoint.experts(int(number[1]), policy=policy, pool=threads_of)
    return made.eval()
