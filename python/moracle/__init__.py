"""Quantized mixture-of-experts models as published: which kernel serves them and why, and running them."""

from ._checkpoint import Checkpoint, DenseTensor, Experts, Pool
from ._engine import Engine, Prompt, Reply, ToolCall
from ._library import Error, Policy, abi_version, version
from ._questions import explain, explain_vllm, inspect, plan, verify
from ._scheduler import Event, Scheduler
from ._server import Server

__version__ = version()

__all__ = [
    "Checkpoint",
    "DenseTensor",
    "Engine",
    "Error",
    "Event",
    "Experts",
    "Policy",
    "Pool",
    "Prompt",
    "Reply",
    "Scheduler",
    "Server",
    "ToolCall",
    "abi_version",
    "explain",
    "explain_vllm",
    "inspect",
    "plan",
    "verify",
    "version",
]
