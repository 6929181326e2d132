"""A producer of DLPack tensors, as torch is one: for bfloat16, of which numpy has none."""

import ctypes

_api = ctypes.pythonapi
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_api.PyCapsule_New.restype = ctypes.py_object


class _Managed(ctypes.Structure):
    """DLManagedTensorVersioned of DLPack 1, whose last member alone is also a DLTensor."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


READ_ONLY, COPIED = 1, 2  # flags of DLPack 1


class DlpackTensor:
    """A matrix over `data`, a writable buffer; strides in elements, None: side by side."""

    def __init__(self, data, shape, code, bits, *, strides=None, offset=0, versioned=True, major=1, flags=0):
        self.data = data
        self.versioned = versioned
        address = ctypes.addressof(ctypes.c_char.from_buffer(data))
        self.dims = (ctypes.c_int64 * len(shape))(*shape)
        self.steps = (ctypes.c_int64 * len(shape))(*strides) if strides else None
        self.tensor = _Managed(
            major=major,
            flags=flags,
            data=address,
            device_type=1,
            ndim=len(shape),
            code=code,
            bits=bits,
            lanes=1,
            shape=ctypes.addressof(self.dims),
            strides=ctypes.addressof(self.steps) if self.steps else None,
            byte_offset=offset,
        )

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **named):
        if not self.versioned:
            if named:
                raise TypeError("an older producer takes no max_version")
            return _api.PyCapsule_New(ctypes.addressof(self.tensor) + _Managed.data.offset, b"dltensor", None)
        return _api.PyCapsule_New(ctypes.addressof(self.tensor), b"dltensor_versioned", None)
