"""The quantization "moracle": experts are Moracle's, linears are vLLM's own on weights that Moracle has decoded."""

from __future__ import annotations

import os
from typing import Any, Optional

import torch
from vllm.logger import init_logger
from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts
from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod
from vllm.model_executor.layers.quantization import register_quantization_config
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig, QuantizeMethodBase
from vllm.platforms import current_platform

import moracle

from ._experts import MoracleExperts

logger = init_logger("vllm.moracle")

NAME = "moracle"


def _experts_of(config: Any) -> int:
    """How many routed experts a layer has, by the config of transformers; 0 of dense models."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    names = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    return max((int(getattr(text, name, 0) or 0) for name in names), default=0)


@register_quantization_config(NAME)
class MoracleConfig(QuantizationConfig):
    """What the checkpoint's quantization_config says is Moracle's to read, from the folder."""

    def get_name(self) -> str:
        return NAME

    def get_supported_act_dtypes(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16, torch.float32]

    @classmethod
    def get_min_capability(cls) -> int:
        return -1

    @staticmethod
    def get_config_filenames() -> list[str]:
        return []

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> MoracleConfig:
        return cls()

    @classmethod
    def override_quantization_method(
        cls, hf_quant_cfg: dict[str, Any], user_quant: Optional[str], hf_config: Any = None
    ) -> Optional[str]:
        """Quantized experts on a CPU are taken, whoever published them, unless the user names another method. A folder
        that Moracle does not open is left to vLLM, with its error in the log."""
        if user_quant not in (None, NAME) or not current_platform.is_cpu():
            return None
        if _experts_of(hf_config) == 0:
            return None
        folder = getattr(hf_config, "_name_or_path", "")
        if user_quant is None and os.path.isdir(folder):
            try:
                moracle.inspect(folder)
            except moracle.Error as error:
                logger.warning("moracle leaves %s to vLLM: %s", folder, error)
                return None
        return NAME

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Optional[QuantizeMethodBase]:
        if isinstance(layer, RoutedExperts):
            return MoracleExperts(layer.moe_config, prefix)
        return UnquantizedLinearMethod() if isinstance(layer, LinearBase) else None
