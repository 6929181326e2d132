"""The loader: what is no routed expert's comes decoded by Moracle, experts are opened behind it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

import moracle

from ._experts import MoracleExperts, pool_of_rank
from ._quantization import NAME


@register_model_loader("auto")
class MoracleLoader(DefaultModelLoader):
    """vLLM's own loader wherever the quantization is another one."""

    def _checkpoint(self, model_config: Any) -> moracle.Checkpoint:
        folder, *_ = self._prepare_weights(model_config.model, None, model_config.revision, False, None)
        return moracle.Checkpoint(folder)

    def get_all_weights(self, model_config: Any, model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
        if model_config.quantization != NAME:
            yield from super().get_all_weights(model_config, model)
            return
        if self.counter_before_loading_weights == 0.0:
            self.counter_before_loading_weights = time.perf_counter()
        with self._checkpoint(model_config) as checkpoint, pool_of_rank() as pool:
            dtype = "float32" if model_config.dtype == torch.float32 else "bfloat16"
            for tensor in checkpoint.dense(dtype, pool):
                yield tensor.name, tensor.torch()

    def load_weights(self, model: torch.nn.Module, model_config: Any) -> None:
        if model_config.quantization != NAME:
            super().load_weights(model, model_config)
            return
        # A cut that the checkpoint forbids ends the start here, before a weight is read.
        with self._checkpoint(model_config) as checkpoint:
            pool = pool_of_rank()
            layers = [module for module in model.modules() if isinstance(getattr(module, "quant_method", None), MoracleExperts)]
            for layer in layers:
                layer.quant_method.open(layer, checkpoint, pool)
        super().load_weights(model, model_config)
