"""A library that imports arrays by DLPack without a GPU; `numpy` does not import those of CUDA."""

import ctypes
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64
from ctypes import c_void_p as pointer
from typing import Any


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", pointer),
        ("device", c_int32 * 2),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", pointer), ("deleter", pointer)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("version", c_uint32 * 2),
        ("context", pointer),
        ("deleter", pointer),
        ("flags", c_uint64),
        ("tensor", Tensor),
    ]


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = pointer, [ctypes.py_object, c_char_p]
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.argtypes = [ctypes.py_object, c_char_p]
# The latter of each are kept by capsules.
NAMES = {
    Managed: (b"dltensor", b"used_dltensor"),
    Versioned: (b"dltensor_versioned", b"used_dltensor_versioned"),
}


class Taken:
    """The tensor of a capsule, which now belongs to its consumer."""

    def __init__(self, capsule: object, kind: type[Managed] | type[Versioned] = Managed) -> None:
        name, used = NAMES[kind]
        self.address = _pointer_of(capsule, name)
        _rename(capsule, used)
        self.managed = kind.from_address(self.address)

    @property
    def told(self) -> dict[str, Any]:
        tensor = self.managed.tensor
        return {
            "data": tensor.data + tensor.byte_offset,
            "device": tuple(tensor.device),
            "type": (tensor.code, tensor.bits, tensor.lanes),
            "shape": tuple(tensor.shape[: tensor.ndim]),
            "strides": tuple(tensor.strides[: tensor.ndim]),
        }

    def free(self) -> None:
        """Without the interpreter lock."""
        ctypes.CFUNCTYPE(None, pointer)(self.managed.deleter)(self.address)

    def free_locked(self) -> None:
        """With the interpreter lock."""
        ctypes.PYFUNCTYPE(None, pointer)(self.managed.deleter)(self.address)

    def free_elsewhere(self) -> None:
        """In a thread that is not known to Python."""
        libc, thread = ctypes.CDLL(None), pointer()
        create = libc.pthread_create
        create.argtypes = [POINTER(pointer), pointer, pointer, pointer]
        assert create(ctypes.byref(thread), None, self.managed.deleter, self.address) == 0
        libc.pthread_join.argtypes = [pointer, pointer]
        assert libc.pthread_join(thread, None) == 0
