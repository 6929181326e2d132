"""Rows of numbers of other libraries, read and written where they lie: the buffer protocol, then DLPack."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any, Optional

from ._library import BF16, F16, F32, INT32, INT64, Error

__all__ = ["Rows", "rows_of"]

_SIZES = {F32: 4, BF16: 2, F16: 2, INT32: 4, INT64: 8}
NAMES = {F32: "float32", BF16: "bfloat16", F16: "float16", INT32: "int32", INT64: "int64"}
_BY_NAME = {name: kind for kind, name in NAMES.items()}


class _Buffer(ctypes.Structure):
    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
        ("internal", ctypes.c_void_p),
    ]


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_api = ctypes.pythonapi
_api.PyObject_GetBuffer.argtypes = [ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int]
_api.PyObject_GetBuffer.restype = ctypes.c_int
_api.PyBuffer_Release.argtypes = [ctypes.POINTER(_Buffer)]
_api.PyBuffer_Release.restype = None
_api.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_IsValid.restype = ctypes.c_int
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p

_WRITABLE, _FORMAT, _STRIDES = 0x1, 0x4, 0x18
_FORMATS = {"f": F32, "e": F16, "H": BF16}  # 16 bits without a sign: bfloat16 that a library has no name for
_DLPACK = {(2, 32): F32, (2, 16): F16, (4, 16): BF16, (1, 16): BF16, (0, 32): INT32, (0, 64): INT64}
_READ_ONLY, _COPIED = 1, 2  # flags of DLPack 1
_CPUS = (1, 3, 13)  # memory that the CPU reads: its own, pinned, managed


class _BufferView:
    """A buffer that is held for as long as this object is."""

    def __init__(self, owner: Any, writable: bool) -> None:
        self.view = _Buffer()
        self.held = False
        _api.PyObject_GetBuffer(owner, ctypes.byref(self.view), _FORMAT | _STRIDES | (_WRITABLE if writable else 0))
        self.held = True

    def __del__(self) -> None:
        if self.held:
            _api.PyBuffer_Release(ctypes.byref(self.view))


@dataclass
class Rows:
    """A matrix where it lies; `owner` keeps it there."""

    data: int
    dtype: int
    rows: int
    cols: int
    stride: int  # in elements; 0: side by side
    owner: Any


def _wrong(rule: str, name: str, wanted: str, found: str) -> Error:
    return Error(f"argument.{rule}", where=name, wanted=wanted, found=found)


def _checked(name: str, data: int, dtype: int, shape: list[int], strides: list[int], owner: Any) -> Rows:
    if len(shape) != 2:
        raise _wrong("shape", name, "two dimensions", f"{len(shape)}")
    rows, cols = shape
    beside = strides[1] == 1 or cols <= 1
    if not beside or (rows > 1 and strides[0] < cols):
        raise _wrong("stride", name, "rows whose elements lie side by side, one behind the other", f"strides {strides}")
    return Rows(data, dtype, rows, cols, strides[0] if rows > 1 else 0, owner)


def _from_buffer(value: Any, name: str, writable: bool) -> Rows:
    try:
        held = _BufferView(value, writable)
    except (BufferError, ValueError) as error:
        rule = "readonly" if writable else "buffer"
        raise _wrong(rule, name, "memory that may be written" if writable else "a buffer", str(error)) from None
    view = held.view
    text = (view.format or b"B").decode().lstrip("@=<")
    dtype = _FORMATS.get(text)
    if text in ("i", "l", "q"):
        dtype = {4: INT32, 8: INT64}.get(view.itemsize)
    if dtype is None or view.itemsize != _SIZES[dtype]:
        raise _wrong("dtype", name, "float32, float16, bfloat16 (as uint16), int32 or int64", f"format {text!r}")
    shape = [view.shape[d] for d in range(view.ndim)]
    strides = [view.strides[d] for d in range(view.ndim)]
    if any(stride % view.itemsize for stride in strides):
        raise _wrong("stride", name, "strides of whole elements", f"{strides} bytes")
    return _checked(name, view.buf or 0, dtype, shape, [stride // view.itemsize for stride in strides], held)


def _from_dlpack(value: Any, name: str, writable: bool) -> Rows:
    try:
        kind, number = value.__dlpack_device__()
    except Exception as error:  # noqa: BLE001 - each library raises its own
        raise _wrong("device", name, "memory of the CPU", str(error)) from None
    if int(kind) not in _CPUS:
        raise _wrong("device", name, "memory of the CPU", f"device {int(kind)}:{number}")
    try:
        try:
            capsule = value.__dlpack__(max_version=(1, 0))
        except TypeError:
            capsule = value.__dlpack__()
    except Exception as error:  # noqa: BLE001 - each library raises its own
        raise _wrong("buffer", name, "a tensor that DLPack can hand out", str(error)) from None
    flags = 0
    if _api.PyCapsule_IsValid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_api.PyCapsule_GetPointer(capsule, b"dltensor_versioned"))
        if versioned.major != 1:
            raise _wrong("dlpack", name, "DLPack 1", f"{versioned.major}.{versioned.minor}")
        flags = versioned.flags
        tensor = versioned.tensor
    elif _api.PyCapsule_IsValid(capsule, b"dltensor"):
        tensor = _Tensor.from_address(_api.PyCapsule_GetPointer(capsule, b"dltensor"))
    else:
        raise _wrong("dlpack", name, "a DLPack capsule", type(capsule).__name__)
    if writable and flags & (_READ_ONLY | _COPIED):
        found = "memory that is read-only" if flags & _READ_ONLY else "a copy, which is lost"
        raise _wrong("readonly", name, "memory that may be written", found)
    dtype = _DLPACK.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if dtype is None:
        found = f"type {tensor.code} of {tensor.bits} bits"
        raise _wrong("dtype", name, "float32, float16, bfloat16, int32 or int64", found)
    shape = [tensor.shape[d] for d in range(tensor.ndim)]
    if tensor.strides:
        strides = [tensor.strides[d] for d in range(tensor.ndim)]
    else:
        strides = [1] * tensor.ndim
        for d in range(tensor.ndim - 2, -1, -1):
            strides[d] = strides[d + 1] * shape[d + 1]
    return _checked(name, (tensor.data or 0) + tensor.byte_offset, dtype, shape, strides, (capsule, value))


def _from_torch(value: Any) -> Optional[Rows]:
    """A plain matrix of torch that lies in rows, in a tenth of the time that DLPack takes; all else: None."""
    torch: Any = sys.modules.get("torch")
    if torch is None or type(value) is not torch.Tensor or value.ndim != 2:
        return None
    plain = value.layout is torch.strided and value.device.type == "cpu" and not value.requires_grad and not value.is_neg()
    kind = _BY_NAME.get(str(value.dtype)[6:])  # "torch.float32"
    (rows, cols), (stride, beside) = value.shape, value.stride()
    if not plain or kind is None or (beside != 1 and cols > 1) or (rows > 1 and stride < cols):
        return None
    return Rows(value.data_ptr(), kind, rows, cols, stride if rows > 1 else 0, value)


def rows_of(value: Any, name: str, allowed: tuple[int, ...], *, writable: bool = False) -> Rows:
    """A matrix of numpy, torch, or whatever has a buffer or DLPack."""
    rows = _from_torch(value)
    if rows is not None and rows.dtype in allowed:
        return rows
    try:
        memoryview(value)
        buffer = True
    except (TypeError, ValueError, BufferError):
        buffer = False
    if buffer:
        rows = _from_buffer(value, name, writable)
    elif hasattr(value, "__dlpack__"):
        rows = _from_dlpack(value, name, writable)
    else:
        raise _wrong("type", name, "an object with a buffer or DLPack", type(value).__name__)
    if rows.dtype not in allowed:
        raise _wrong("dtype", name, " or ".join(NAMES[dtype] for dtype in allowed), NAMES[rows.dtype])
    return rows
