"""libmoracle by ctypes: its structs, its functions, its errors.

What stands here mirrors include/moracle/moracle.h; a test holds sizes and offsets against the header.
"""

from __future__ import annotations

import ctypes
import json
import operator
import os
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional, TypeVar, Union

__all__ = [
    "EngineOwner",
    "Error",
    "Handle",
    "Json",
    "Model",
    "Owner",
    "Policy",
    "abi_version",
    "call",
    "document",
    "library",
    "version",
]

Json = dict[str, Any]
Model = Union[str, "os.PathLike[str]"]

OK, INVALID, FAILED, NO_MEMORY, INTERRUPTED, END = range(6)
F32, BF16, F16, INT32, INT64 = range(1, 6)
ABI_VERSION = 1


class CError(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("status", ctypes.c_int32),
        ("code", ctypes.c_char_p),
        ("file", ctypes.c_char_p),
        ("where", ctypes.c_char_p),
        ("wanted", ctypes.c_char_p),
        ("found", ctypes.c_char_p),
        ("advice", ctypes.c_char_p),
        ("message", ctypes.c_char_p),
    ]


class Struct(ctypes.Structure):
    """A struct of the library, which begins with its size."""

    def __init__(self, **members: Any) -> None:
        super().__init__(size=ctypes.sizeof(type(self)), **members)


class CPolicy(Struct):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("numerics", ctypes.c_int32),
        ("batch_invariant", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("backend", ctypes.c_char_p),
        ("preferred", ctypes.c_char_p),
    ]


ON_PROGRESS = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)
ON_TEXT = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)


class CExplainOptions(Struct):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("device", ctypes.c_char_p),
        ("policy", ctypes.POINTER(CPolicy)),
    ]


class CPlanOptions(Struct):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("tp", ctypes.c_int32),
        ("ep", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("context", ctypes.c_int64),
        ("device", ctypes.c_char_p),
        ("policy", ctypes.POINTER(CPolicy)),
        ("kv", ctypes.c_char_p),
    ]


class CVerifyOptions(Struct):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("threads", ctypes.c_int32),
        ("tokens", ctypes.c_int64),
        ("layout", ctypes.c_char_p),
        ("policy", ctypes.POINTER(CPolicy)),
        ("on_progress", ON_PROGRESS),
        ("context", ctypes.c_void_p),
        ("device", ctypes.c_char_p),
    ]


class CPoolOptions(Struct):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("threads", ctypes.c_int32),
        ("cpus", ctypes.POINTER(ctypes.c_int32)),
        ("cpu_count", ctypes.c_uint64),
        ("executor", ctypes.c_void_p),
    ]


class CExpertsOptions(Struct):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("tp", ctypes.c_int32),
        ("tp_rank", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("experts", ctypes.POINTER(ctypes.c_int64)),
        ("expert_count", ctypes.c_uint64),
        ("policy", ctypes.POINTER(CPolicy)),
        ("pool", ctypes.c_void_p),
    ]


class CDenseOptions(Struct):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("dtype", ctypes.c_int32),
        ("pool", ctypes.c_void_p),
    ]


class CExpertsInfo(Struct):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("threads", ctypes.c_int32),
        ("layer", ctypes.c_int64),
        ("hidden", ctypes.c_int64),
        ("intermediate", ctypes.c_int64),
        ("experts", ctypes.c_int64),
        ("held", ctypes.c_int64),
        ("top_k", ctypes.c_int64),
        ("bytes", ctypes.c_uint64),
    ]


class CExpertsCall(Struct):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("x_dtype", ctypes.c_int32),
        ("out_dtype", ctypes.c_int32),
        ("ids_dtype", ctypes.c_int32),
        ("weights_dtype", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("tokens", ctypes.c_int64),
        ("top_k", ctypes.c_int64),
        ("x", ctypes.c_void_p),
        ("x_stride", ctypes.c_int64),
        ("ids", ctypes.c_void_p),
        ("ids_stride", ctypes.c_int64),
        ("weights", ctypes.c_void_p),
        ("weights_stride", ctypes.c_int64),
        ("out", ctypes.c_void_p),
        ("out_stride", ctypes.c_int64),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_uint64),
    ]


class CTensor(Struct):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("dtype", ctypes.c_int32),
        ("name", ctypes.c_char_p),
        ("rank", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("dims", ctypes.c_int64 * 4),
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
    ]


class CEngineOptions(Struct):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("threads", ctypes.c_int32),
        ("policy", ctypes.POINTER(CPolicy)),
        ("on_progress", ON_PROGRESS),
        ("context", ctypes.c_void_p),
        ("kv", ctypes.c_char_p),
        ("device", ctypes.c_char_p),
        ("tool_format", ctypes.c_char_p),
        ("device_memory", ctypes.c_uint64),
        ("memory", ctypes.c_uint64),
    ]


class CGenerateOptions(Struct):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("set", ctypes.c_uint32),
        ("temperature", ctypes.c_double),
        ("top_p", ctypes.c_double),
        ("min_p", ctypes.c_double),
        ("repetition_penalty", ctypes.c_double),
        ("presence_penalty", ctypes.c_double),
        ("frequency_penalty", ctypes.c_double),
        ("top_k", ctypes.c_int64),
        ("max_tokens", ctypes.c_int64),
        ("context", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
        ("ignore_eos", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("stop", ctypes.POINTER(ctypes.c_char_p)),
        ("stop_count", ctypes.c_uint64),
        ("response_format", ctypes.c_char_p),
        ("structured_outputs", ctypes.c_char_p),
        ("tools", ctypes.c_char_p),
        ("max_calls", ctypes.c_int64),
        ("tool_choice", ctypes.c_char_p),
    ]


# Members that CGenerateOptions.set says are given, by its bits.
CHOSEN = {
    "temperature": 1,
    "top_k": 2,
    "top_p": 4,
    "min_p": 8,
    "repetition_penalty": 16,
    "presence_penalty": 32,
    "frequency_penalty": 64,
    "max_tokens": 128,
}


class CSchedulerOptions(Struct):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("share_prefixes", ctypes.c_int32),
        ("no_prefix_reuse", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("context", ctypes.c_int64),
        ("max_running", ctypes.c_int64),
        ("max_queue", ctypes.c_int64),
    ]


class CServerOptions(Struct):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("port", ctypes.c_int32),
        ("listen", ctypes.c_char_p),
        ("names", ctypes.POINTER(ctypes.c_char_p)),
        ("name_count", ctypes.c_uint64),
        ("keys", ctypes.POINTER(ctypes.c_char_p)),
        ("key_count", ctypes.c_uint64),
        ("hosts", ctypes.POINTER(ctypes.c_char_p)),
        ("host_count", ctypes.c_uint64),
        ("origins", ctypes.POINTER(ctypes.c_char_p)),
        ("origin_count", ctypes.c_uint64),
        ("everybody", ctypes.c_int32),
        ("any_model", ctypes.c_int32),
        ("strict", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("drain_s", ctypes.c_double),
        ("scheduler", ctypes.POINTER(CSchedulerOptions)),
    ]


class CRequest(Struct):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("logprobs", ctypes.c_int32),
        ("top_logprobs", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("min_tokens", ctypes.c_int64),
        ("priority", ctypes.c_int64),
        ("options", ctypes.POINTER(CGenerateOptions)),
        ("key", ctypes.c_char_p),
        ("salt", ctypes.c_char_p),
        ("prompt", ctypes.c_char_p),
    ]


class CEvent(Struct):
    _fields_ = [
        ("size", ctypes.c_uint32),
        ("kind", ctypes.c_int32),
        ("request", ctypes.c_uint64),
        ("token", ctypes.c_int32),
        ("has_logprob", ctypes.c_int32),
        ("logprob", ctypes.c_double),
        ("top_ids", ctypes.POINTER(ctypes.c_int32)),
        ("top_logprobs", ctypes.POINTER(ctypes.c_double)),
        ("top_count", ctypes.c_uint64),
        ("text", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("end", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("error", ctypes.POINTER(CError)),
        ("prompt_tokens", ctypes.c_int64),
        ("completion_tokens", ctypes.c_int64),
        ("cached_tokens", ctypes.c_int64),
    ]


ON_EVENT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(CEvent))


class Error(Exception):
    """What went wrong: the rule (`code`), where, what was wanted, what was found, what to do."""

    def __init__(
        self,
        code: str,
        where: str = "",
        *,
        status: int = INVALID,
        file: str = "",
        wanted: str = "",
        found: str = "",
        advice: str = "",
        message: str = "",
    ) -> None:
        text = message or f"{where}: wanted {wanted}, found {found} [{code}]".removeprefix(": ")
        super().__init__(text)
        self.code = code
        self.status = status
        self.file = file
        self.where = where
        self.wanted = wanted
        self.found = found
        self.advice = advice
        self.message = text

    def __reduce__(self) -> tuple[Any, ...]:
        return (_error_of, (self.__dict__.copy(),))


def _error_of(members: dict[str, Any]) -> Error:
    return Error(**members)


_ARGUMENTS: dict[str, list[Any]] = {
    "moracle_inspect": [ctypes.c_char_p],
    "moracle_explain": [ctypes.c_char_p, ctypes.c_void_p],
    "moracle_explain_vllm": [ctypes.c_char_p],
    "moracle_plan": [ctypes.c_char_p, ctypes.c_void_p],
    "moracle_verify": [ctypes.c_char_p, ctypes.c_void_p],
    "moracle_pool_open": [ctypes.c_void_p],
    "moracle_checkpoint_open": [ctypes.c_char_p, ctypes.c_void_p],
    "moracle_checkpoint_json": [ctypes.c_void_p],
    "moracle_experts_open": [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p],
    "moracle_experts_decision_json": [ctypes.c_void_p],
    "moracle_experts_workspace_bytes": [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64],
    "moracle_dense_open": [ctypes.c_void_p, ctypes.c_void_p],
    "moracle_engine_open": [ctypes.c_char_p, ctypes.c_void_p],
    "moracle_engine_json": [ctypes.c_void_p],
    "moracle_scheduler_open": [ctypes.c_void_p, ctypes.c_void_p],
    "moracle_scheduler_step": [ctypes.c_void_p, ON_EVENT, ctypes.c_void_p],
    "moracle_scheduler_cancel": [ctypes.c_void_p, ctypes.c_uint64],
    "moracle_server_open": [ctypes.c_void_p, ctypes.c_void_p],
    "moracle_server_json": [ctypes.c_void_p],
    "moracle_server_wait": [ctypes.c_void_p, ctypes.c_double],
}


def _load() -> ctypes.CDLL:
    own = Path(__file__).parent / "libmoracle.so.0"
    # MORACLE_LIBRARY: a library built elsewhere. Without one beside this file: the system's.
    path = os.environ.get("MORACLE_LIBRARY") or (str(own) if own.exists() else "libmoracle.so.0")
    try:
        loaded = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"libmoracle.so.0 cannot be loaded: {error}") from error
    loaded.moracle_abi_version.restype = ctypes.c_uint32
    loaded.moracle_version.restype = ctypes.c_char_p
    loaded.moracle_error_free.argtypes = [ctypes.POINTER(CError)]
    loaded.moracle_error_free.restype = None
    loaded.moracle_free.argtypes = [ctypes.c_void_p]
    loaded.moracle_free.restype = None
    found = int(loaded.moracle_abi_version())
    if found < ABI_VERSION:
        raise ImportError(f"{path} has version {found} of the interface, wanted {ABI_VERSION} or later")
    for name in ("pool", "checkpoint", "experts", "dense", "engine", "scheduler", "server"):
        close = getattr(loaded, f"moracle_{name}_close")
        close.argtypes = [ctypes.c_void_p]
        close.restype = ctypes.c_int32
    for name, arguments in _ARGUMENTS.items():
        getattr(loaded, name).argtypes = [*arguments, ctypes.c_void_p, ctypes.c_void_p]
    loaded.moracle_server_stop.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return loaded


library = _load()


def version() -> str:
    """The library's version."""
    text: bytes = library.moracle_version()
    return text.decode()


def abi_version() -> int:
    """The version of the library's C interface."""
    return int(library.moracle_abi_version())


def error_of(error: CError) -> Error:
    """A copy of the library's error."""
    names = ("code", "file", "where", "wanted", "found", "advice", "message")
    members = {name: (getattr(error, name) or b"").decode(errors="replace") for name in names}
    return Error(status=int(error.status), **members)


def _take(error: Any) -> Error:
    made = error_of(error.contents)
    library.moracle_error_free(error)
    return made


def call(function: str, *arguments: Any) -> int:
    """Calls a function of the library, its last argument excepted; raises its error. Returns OK or END."""
    error = ctypes.POINTER(CError)()
    status = int(getattr(library, function)(*arguments, ctypes.byref(error)))
    if status in (OK, END):
        return status
    raise _take(error) if error else Error("internal.status", status=status, found=str(status))


def take_text(text: ctypes.c_void_p) -> str:
    """A string of the library, which is freed."""
    try:
        return ctypes.string_at(text.value or 0).decode()
    finally:
        library.moracle_free(text)


def document(function: str, *arguments: Any) -> Json:
    """The JSON document that a function of the library answers with."""
    text = ctypes.c_void_p()
    call(function, *arguments, ctypes.byref(text))
    answer: Json = json.loads(take_text(text))
    return answer


def wrong_type(name: str, wanted: str, value: Any) -> Error:
    """The error of an argument of another type."""
    return Error("argument.type", name, wanted=wanted, found=type(value).__name__)


def items_of(values: Iterable[Any], name: str, wanted: str) -> list[Any]:
    """The items of a list, or of whatever gives them; a text is none."""
    if isinstance(values, (str, bytes, dict)) or not isinstance(values, Iterable):
        raise wrong_type(name, wanted, values)
    return list(values)


def texts_of(values: Iterable[str], name: str) -> Any:
    """An array of texts for the library."""
    texts = items_of(values, name, "a list of texts")
    return (ctypes.c_char_p * len(texts))(*[utf8_without_zero(text, name) for text in texts])


def integers_of(values: Iterable[int], name: str, bits: int = 64) -> Any:
    """An array of whole numbers for the library."""
    kind = ctypes.c_int32 if bits == 32 else ctypes.c_int64
    numbers = [integer(value, name, bits) for value in items_of(values, name, "a list of whole numbers")]
    return (kind * len(numbers))(*numbers)


def utf8(text: str, name: str) -> bytes:
    """The bytes of a text."""
    if not isinstance(text, str):
        raise wrong_type(name, "text", text)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Error("argument.utf8", name, wanted="text that UTF-8 can hold", found=str(error)) from None


def utf8_without_zero(text: str, name: str) -> bytes:
    """The bytes of a text, for where the library takes no zero within it."""
    data = utf8(text, name)
    if b"\0" in data:
        raise Error("argument.zero", name, wanted="text without a zero character", found="one")
    return data


def encoded(text: Optional[str], name: str) -> Optional[bytes]:
    """The same, of an argument that may be missing."""
    return None if text is None else utf8_without_zero(text, name)


def path_of(model: Model) -> bytes:
    """The folder of a model."""
    path = os.fspath(model) if isinstance(model, (str, os.PathLike)) else model
    if not isinstance(path, str):
        raise wrong_type("model", "a path as text", model)
    return utf8_without_zero(path, "model")


def integer(value: int, name: str, bits: int = 64) -> int:
    """A whole number that the library can take."""
    limit = 1 << (bits - 1)
    try:
        number = operator.index(value)
    except TypeError:
        raise wrong_type(name, "a whole number", value) from None
    if not -limit <= number < limit:
        raise Error("argument.range", name, wanted=f"{-limit} to {limit - 1}", found=str(number))
    return number


def real(value: float, name: str) -> float:
    """A number of any kind, but no text."""
    if isinstance(value, (str, bytes)):
        raise wrong_type(name, "a number", value)
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise wrong_type(name, "a number", value) from None


def flag(value: bool, name: str) -> int:
    """True or False, as the library takes it."""
    if not isinstance(value, int) or value not in (0, 1):
        raise wrong_type(name, "True or False", value)
    return int(value)


def check_callable(value: Optional[Callable[..., Any]], name: str) -> None:
    """Before a call that would end with what the callback raises."""
    if value is not None and not callable(value):
        raise wrong_type(name, "a function", value)


def scheduler_options(
    context: int, max_running: int, max_queue: int, reuse_prefixes: bool, share_prefixes: bool
) -> CSchedulerOptions:
    """As Scheduler and Server take them."""
    return CSchedulerOptions(
        context=integer(context, "context"),
        max_running=integer(max_running, "max_running"),
        max_queue=integer(max_queue, "max_queue"),
        no_prefix_reuse=1 - flag(reuse_prefixes, "reuse_prefixes"),
        share_prefixes=flag(share_prefixes, "share_prefixes"),
    )


@dataclass(frozen=True)
class Policy:
    """How kernels are chosen."""

    fast: bool = False  # kernels may quantize activations further than published
    batch_invariant: bool = False  # only kernels that sum in one order for every batch
    backend: Optional[str] = None  # must serve, or the call fails and says why
    preferred: Optional[str] = None  # may fall back, with a warning

    def as_struct(self) -> CPolicy:
        return CPolicy(
            numerics=flag(self.fast, "fast"),
            batch_invariant=flag(self.batch_invariant, "batch_invariant"),
            backend=encoded(self.backend, "backend"),
            preferred=encoded(self.preferred, "preferred"),
        )


def policy_pointer(policy: Optional[Policy]) -> Any:
    if policy is None:
        return None
    if not isinstance(policy, Policy):
        raise wrong_type("policy", "a Policy", policy)
    return ctypes.pointer(policy.as_struct())


class Handle:
    """A handle of the library, closed with its owner, or before."""

    def __init__(self, kind: str, handle: ctypes.c_void_p) -> None:
        self._value = handle.value
        self._close: Callable[[], Any] = weakref.finalize(
            self, getattr(library, f"moracle_{kind}_close"), handle.value
        )

    @property
    def value(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._value)

    def close(self) -> None:
        self._close()


_Self = TypeVar("_Self", bound="Owner")


class Owner:
    """What has a handle, and may be the object of a `with`."""

    _handle: Handle

    def close(self) -> None:
        """Later calls are errors; what was made of it stays open. A second time does nothing."""
        self._handle.close()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class EngineOwner(Owner):
    """What has the handle of an engine, which servers are opened on."""


def handle_of(owner: Owner, name: str) -> ctypes.c_void_p:
    """The handle of an argument; of which kind it has to be, the library looks."""
    if not isinstance(owner, Owner):
        raise wrong_type(name, "an object of moracle", owner)
    return owner._handle.value  # pyright: ignore[reportPrivateUsage] - of this module
