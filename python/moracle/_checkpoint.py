"""One checkpoint, its experts layers, and its other tensors."""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ._arrays import rows_of
from ._library import (
    BF16,
    END,
    F16,
    F32,
    INT32,
    INT64,
    CDenseOptions,
    CExpertsCall,
    CExpertsInfo,
    CExpertsOptions,
    CPoolOptions,
    CTensor,
    Error,
    Handle,
    Json,
    Model,
    Owner,
    Policy,
    call,
    document,
    handle_of,
    integer,
    integers_of,
    path_of,
    policy_pointer,
)

__all__ = ["Checkpoint", "DenseTensor", "Experts", "Pool"]

_FLOATS = (F32, BF16, F16)


class Pool(Owner):
    """Threads that layers share; layers of one pool take turns."""

    def __init__(self, threads: int = 0, cpus: Optional[Sequence[int]] = None) -> None:
        """`threads` 0: one for each of `cpus`, or for each core. Thread i > 0 runs on cpus[i]."""
        options = CPoolOptions(threads=integer(threads, "threads", 32))
        if cpus is not None:
            numbers = integers_of(cpus, "cpus", 32)
            options.cpus = numbers
            options.cpu_count = len(numbers)
        handle = ctypes.c_void_p()
        call("moracle_pool_open", ctypes.byref(options), ctypes.byref(handle))
        self._handle = Handle("pool", handle)


@dataclass(frozen=True)
class DenseTensor:
    """A tensor that is no routed expert's, decoded."""

    name: str
    dtype: str  # "bfloat16" or "float32"
    shape: tuple[int, ...]
    data: bytearray

    def numpy(self) -> Any:
        """As a numpy array; bfloat16 as uint16."""
        numpy = importlib.import_module("numpy")
        kind = numpy.float32 if self.dtype == "float32" else numpy.uint16
        return numpy.frombuffer(self.data, dtype=kind).reshape(self.shape)

    def torch(self) -> Any:
        """As a torch tensor on the same memory."""
        torch = importlib.import_module("torch")
        return torch.frombuffer(self.data, dtype=getattr(torch, self.dtype)).reshape(self.shape)


class Checkpoint(Owner):
    """A model folder, validated from its headers; no weight is read yet."""

    def __init__(self, model: Model, policy: Optional[Policy] = None) -> None:
        handle = ctypes.c_void_p()
        call("moracle_checkpoint_open", path_of(model), policy_pointer(policy), ctypes.byref(handle))
        self._handle = Handle("checkpoint", handle)

    def inspect(self) -> Json:
        """What it holds."""
        return document("moracle_checkpoint_json", self._handle.value)

    def experts(
        self,
        layer: int,
        *,
        tp: int = 1,
        tp_rank: int = 0,
        experts: Optional[Sequence[int]] = None,
        policy: Optional[Policy] = None,
        pool: Optional[Pool] = None,
    ) -> Experts:
        """The routed experts of a layer, packed."""
        return Experts(self, layer, tp=tp, tp_rank=tp_rank, experts=experts, policy=policy, pool=pool)

    def dense(self, dtype: str = "bfloat16", pool: Optional[Pool] = None) -> Iterator[DenseTensor]:
        """All tensors that are no routed expert's, decoded by the pool's threads, one after the other."""
        kinds = {"bfloat16": BF16, "float32": F32}
        if not isinstance(dtype, str) or dtype not in kinds:
            raise Error("argument.dtype", where="dtype", wanted="bfloat16 or float32", found=repr(dtype))
        options = CDenseOptions(dtype=kinds[dtype], pool=handle_of(pool, "pool") if pool is not None else None)
        handle = ctypes.c_void_p()
        call("moracle_dense_open", self._handle.value, ctypes.byref(options), ctypes.byref(handle))
        walk = Handle("dense", handle)
        try:
            while True:
                tensor = CTensor()
                if call("moracle_dense_next", walk.value, ctypes.byref(tensor)) == END:
                    return
                shape = tuple(tensor.dims[: tensor.rank])
                data = bytearray(tensor.bytes)
                if data:
                    ctypes.memmove((ctypes.c_char * len(data)).from_buffer(data), tensor.data, len(data))
                yield DenseTensor((tensor.name or b"").decode(), dtype, shape, data)
        finally:
            walk.close()


def _empty_like(x: Any, rows: int, cols: int, dtype: int) -> Any:
    """Rows for a result, of the library that `x` is of."""
    if hasattr(x, "new_empty"):
        return x.new_empty((rows, cols))
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(x, numpy.ndarray):
        return numpy.empty((rows, cols), dtype=x.dtype)
    if rows == 0:
        return memoryview(b"")
    if dtype == F32:
        return memoryview(bytearray(4 * rows * cols)).cast("f", (rows, cols))
    if dtype == BF16:
        return memoryview(bytearray(2 * rows * cols)).cast("H", (rows, cols))
    raise Error("argument.out", where="out", wanted="rows to write, since a buffer has no float16", found="None")


class Experts(Owner):
    """The routed experts of one layer, or a rank's slice of them."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        layer: int,
        *,
        tp: int = 1,
        tp_rank: int = 0,
        experts: Optional[Sequence[int]] = None,
        policy: Optional[Policy] = None,
        pool: Optional[Pool] = None,
    ) -> None:
        """`experts`: those that this rank holds, by number in the layer. Outputs of all ranks are to be added."""
        options = CExpertsOptions(
            tp=integer(tp, "tp", 32),
            tp_rank=integer(tp_rank, "tp_rank", 32),
            policy=policy_pointer(policy),
            pool=handle_of(pool, "pool") if pool is not None else None,
        )
        if experts is not None:
            held = integers_of(experts, "experts")
            options.experts = held
            options.expert_count = len(held)
        handle = ctypes.c_void_p()
        call(
            "moracle_experts_open",
            handle_of(checkpoint, "checkpoint"),
            integer(layer, "layer"),
            ctypes.byref(options),
            ctypes.byref(handle),
        )
        self._handle = Handle("experts", handle)
        info = CExpertsInfo()
        call("moracle_experts_describe", self._handle.value, ctypes.byref(info))
        self.layer: int = info.layer
        self.hidden: int = info.hidden
        self.intermediate: int = info.intermediate  # as this rank holds it
        self.experts: int = info.experts  # of the layer
        self.held: int = info.held  # of those, by this rank
        self.top_k: int = info.top_k  # of the model
        self.bytes: int = info.bytes
        self.threads: int = info.threads

    def __call__(self, x: Any, ids: Any, weights: Any, out: Any = None) -> Any:
        """out[t] = sum over k of weights[t, k] * expert ids[t, k] (x[t]).

        `x` is [tokens, hidden], `ids` and `weights` are [tokens, top_k]: numpy arrays, torch tensors, or anything with a
        buffer or DLPack, read where it lies. Ids that this rank does not hold, and -1, contribute nothing. `out` is
        written; without it, rows like `x` are made. Returns `out`.
        """
        x_rows = rows_of(x, "x", _FLOATS)
        ids_rows = rows_of(ids, "ids", (INT32, INT64))
        weight_rows = rows_of(weights, "weights", _FLOATS)
        tokens = x_rows.rows
        if out is None:
            out = _empty_like(x, tokens, self.hidden, x_rows.dtype)
            if tokens == 0:
                return out
        out_rows = rows_of(out, "out", _FLOATS, writable=True)
        for name, rows, shape in (
            ("x", x_rows, (tokens, self.hidden)),
            ("out", out_rows, (tokens, self.hidden)),
            ("ids", ids_rows, (tokens, ids_rows.cols)),
            ("weights", weight_rows, (tokens, ids_rows.cols)),
        ):
            if (rows.rows, rows.cols) != shape:
                raise Error("argument.shape", where=name, wanted=f"{list(shape)}", found=f"{[rows.rows, rows.cols]}")
        made = CExpertsCall(
            x_dtype=x_rows.dtype,
            out_dtype=out_rows.dtype,
            ids_dtype=ids_rows.dtype,
            weights_dtype=weight_rows.dtype,
            tokens=tokens,
            top_k=ids_rows.cols,
            x=x_rows.data,
            x_stride=x_rows.stride,
            ids=ids_rows.data,
            ids_stride=ids_rows.stride,
            weights=weight_rows.data,
            weights_stride=weight_rows.stride,
            out=out_rows.data,
            out_stride=out_rows.stride,
        )
        call("moracle_experts_run", self._handle.value, ctypes.byref(made))
        return out

    def decision(self) -> Json:
        """Which kernel serves this layer, and why the others do not."""
        return document("moracle_experts_decision_json", self._handle.value)
