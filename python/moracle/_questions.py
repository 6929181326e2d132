"""Questions about a checkpoint: the documents of the commands of these names."""

from __future__ import annotations

import ctypes
import json
from typing import Any, Callable, Optional

from ._library import (
    ON_PROGRESS,
    CExplainOptions,
    CPlanOptions,
    CVerifyOptions,
    Error,
    Json,
    Model,
    Policy,
    check_callable,
    document,
    encoded,
    integer,
    path_of,
    policy_pointer,
)

__all__ = ["explain", "explain_vllm", "inspect", "plan", "verify"]


def inspect(model: Model) -> Json:
    """What a checkpoint holds, from headers alone: `moracle inspect --json`."""
    return document("moracle_inspect", path_of(model))


def explain(model: Model, device: str = "cpu", policy: Optional[Policy] = None) -> Json:
    """Which kernel serves each layer on a machine, and why the others do not: `moracle explain --json`."""
    options = CExplainOptions(device=encoded(device, "device"), policy=policy_pointer(policy))
    return document("moracle_explain", path_of(model), ctypes.byref(options))


def explain_vllm(request: Json) -> Json:
    """What vLLM's oracle chooses, and each candidate's verdict: a line of `moracle explain --requests`, answered.

    `request`: {"id", "oracle", "platform", "request"}, in vLLM's own names.
    """
    try:
        line = json.dumps(request)
    except (TypeError, ValueError, RecursionError) as error:
        raise Error("argument.type", where="request", wanted="what JSON can hold", found=str(error)) from None
    return document("moracle_explain_vllm", encoded(line, "request"))


def plan(
    model: Model,
    device: str = "cpu",
    *,
    tp: int = 1,
    ep: int = 1,
    context: int = 0,
    policy: Optional[Policy] = None,
    kv: Optional[str] = None,
) -> Json:
    """The memory that one rank takes, and the legal degrees of parallelism: `moracle plan --json`.

    `kv`: the numbers of keys, values and latents: "f32", "bf16" or "int8".
    """
    options = CPlanOptions(
        tp=integer(tp, "tp", 32),
        ep=integer(ep, "ep", 32),
        context=integer(context, "context"),
        device=encoded(device, "device"),
        policy=policy_pointer(policy),
        kv=encoded(kv, "kv"),
    )
    return document("moracle_plan", path_of(model), ctypes.byref(options))


def verify(
    model: Model,
    *,
    tokens: int = 0,
    threads: int = 0,
    layout: Optional[str] = None,
    device: Optional[str] = None,
    policy: Optional[Policy] = None,
    on_progress: Optional[Callable[[int, int], Any]] = None,
) -> Json:
    """Weights checked, and every MoE layer held against the fp32 reference: `moracle verify --json`.

    `device`: "cuda:0" and so on, which computes the experts. What `on_progress` raises ends the work, and is raised
    here.
    """
    check_callable(on_progress, "on_progress")
    raised: list[BaseException] = []

    def progress(_context: Any, done: int, total: int) -> int:
        try:
            if on_progress is not None:
                on_progress(done, total)
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            raised.append(error)
        return int(bool(raised))

    options = CVerifyOptions(
        threads=integer(threads, "threads", 32),
        tokens=integer(tokens, "tokens"),
        layout=encoded(layout, "layout"),
        policy=policy_pointer(policy),
        on_progress=ON_PROGRESS(progress),
        device=encoded(device, "device"),
    )
    try:
        return document("moracle_verify", path_of(model), ctypes.byref(options))
    finally:
        if raised:
            raise raised[0]
