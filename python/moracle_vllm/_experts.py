"""The routed experts of one layer, or a rank's share of them, as a method of vLLM's RoutedExperts."""

from __future__ import annotations

import os
import re
from typing import Any, Optional

import torch
from vllm.logger import init_logger
from vllm.model_executor.layers.fused_moe.fused_moe_method_base import FusedMoEMethodBase

import moracle

from ._names import layer_of

logger = init_logger("vllm.moracle")

_BINDINGS = ("KMP_AFFINITY", "GOMP_CPU_AFFINITY", "OMP_PLACES")
_opened: list[moracle.Experts] = []  # an operation of torch takes a number, by which it finds the layer here


def bound_cpus() -> Optional[list[int]]:
    """The CPUs to which vLLM has bound the OpenMP threads of this rank, or None where it binds none."""
    for name in _BINDINGS:
        cpus = [int(number) for number in re.findall(r"\d+", os.environ.get(name, ""))]
        if cpus:
            return cpus
    return None


def pool_of_rank() -> moracle.Pool:
    """Threads on the CPUs of this rank; they and OpenMP's take turns."""
    return moracle.Pool(threads=torch.get_num_threads(), cpus=bound_cpus())


def _run(x: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor, number: int) -> torch.Tensor:
    return _opened[number](x, ids, weights, out=torch.empty_like(x))


def _shape(x: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor, number: int) -> torch.Tensor:
    return torch.empty_like(x)


# Kept: the operation goes with it. By the decorator custom_op a call takes 30 microseconds more.
_operations = torch.library.Library("moracle", "FRAGMENT")
_operations.define("experts(Tensor x, Tensor weights, Tensor ids, int number) -> Tensor")
_operations.impl("experts", _run, "CPU")
torch.library.register_fake("moracle::experts", _shape, lib=_operations)


class MoracleExperts(FusedMoEMethodBase):
    """Has no parameter: the loader opens what this rank holds from the checkpoint, one pass over its files."""

    def __init__(self, moe: Any, prefix: str) -> None:
        super().__init__(moe)
        self.layer = layer_of(prefix)
        self.number = -1
        if not moe.is_act_and_mul:
            raise NotImplementedError(f"moracle: {prefix}: experts without a gate are vLLM's to serve")
        if getattr(moe, "is_lora_enabled", False):
            raise NotImplementedError(f"moracle: {prefix}: LoRA of experts is vLLM's to serve (--quantization)")

    def create_weights(self, layer: torch.nn.Module, *weight_args: Any, **extra_weight_attrs: Any) -> None:
        if layer.apply_router_weight_on_input:
            raise NotImplementedError("moracle: router weights on inputs of experts are vLLM's to serve (--quantization)")

    def get_fused_moe_quant_config(self, layer: torch.nn.Module) -> None:
        return None

    def open(self, layer: torch.nn.Module, checkpoint: moracle.Checkpoint, pool: moracle.Pool) -> None:
        """Packs this rank's experts: whole ones by vLLM's map under EP, else its share of each one's width."""
        ranks = self.moe.moe_parallel_config
        slots = layer.expert_map_manager.expert_map if ranks.use_ep else None  # by expert; -1: another rank's
        local = None if slots is None else [expert for expert, slot in enumerate(slots.tolist()) if slot >= 0]
        tp, rank = (1, 0) if ranks.use_ep else (ranks.tp_size, ranks.tp_rank)
        experts = checkpoint.experts(self.layer, tp=tp, tp_rank=rank, experts=local, pool=pool)
        self.number = len(_opened)
        _opened.append(experts)
        decision = experts.decision()
        logger.info("layer %d: %s serves %d of %d experts, %.1f MB", self.layer, decision.get("backend"), experts.held,
                    experts.experts, experts.bytes / 1e6)

    def apply(
        self,
        layer: torch.nn.Module,
        x: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        shared_experts: Any = None,
        shared_experts_input: Any = None,
    ) -> torch.Tensor:
        return torch.ops.moracle.experts(x, topk_weights, topk_ids, self.number)
