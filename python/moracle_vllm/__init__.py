"""Moracle's experts inside of vLLM, on CPUs: formats, kernels and decisions of Moracle under vLLM's scheduler and API.

vLLM finds `register` by the entry point "vllm.general_plugins". Quantized mixture-of-experts checkpoints are then taken
without a flag, `VLLM_PLUGINS=` (empty) leaves them to vLLM. vLLM's doors alone are used, nothing of it is patched.
"""

from __future__ import annotations

import logging

from ._names import TESTED, refusal_of

__all__ = ["TESTED", "register"]

_log = logging.getLogger("vllm.moracle")


def register() -> None:
    """Registers quantization and loader. vLLM calls it in each of its processes, and may call it again."""
    import vllm

    refusal = refusal_of(vllm.__version__)
    if refusal:
        _log.warning(refusal)
        return
    from . import _loader, _quantization  # noqa: F401 - they register their classes, once a process
