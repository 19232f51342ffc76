"""Where an array lies: of NumPy, torch, or anything with DLPack; and its elements."""
from __future__ import annotations

import ctypes
import sys
from math import prod
from typing import Any, List, Tuple

from ._library import Tensor
from .errors import UsageError

# By telegrad_dtype.
NAMES = ("float32", "float16", "bfloat16", "int32", "int64", "float64", "uint8", "int8",
         "bool")
FLOAT32, FLOAT16, BFLOAT16, INT32 = range(4)
_NUMPY = {"<f4": FLOAT32, "<f2": FLOAT16, "<i4": INT32, "<i8": 4, "<f8": 5, "|u1": 6,
          "|i1": 7, "|b1": 8}
_TORCH = {f"torch.{name}": number for number, name in enumerate(NAMES)}
# (type code, bits) of DLPack.
_DLPACK = {(2, 32): FLOAT32, (2, 16): FLOAT16, (4, 16): BFLOAT16, (0, 32): INT32,
           (0, 64): 4, (2, 64): 5, (1, 8): 6, (0, 8): 7, (6, 8): 8}
_DLPACK_CPU, _DLPACK_CUDA, _DLPACK_CUDA_HOST = 1, 2, 3
HOST = -1


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


def _refusal(array: Any, what: Any, names: Any) -> UsageError:
    return UsageError(f"{type(array).__name__} of {what}: arrays are of "
                      f"{', '.join(names[:-1])} or {names[-1]}; cast it first")


def _dtype(table: Any, key: Any, array: Any) -> int:
    if key in table:
        return int(table[key])
    raise _refusal(array, key, NAMES)


def _is_dense(shape: Tuple[int, ...], strides: Tuple[int, ...]) -> bool:
    """Whether the elements fill their memory without gaps, in whatever order."""
    if 0 in shape:
        return True
    expected = 1
    for stride, size in sorted((t, s) for s, t in zip(shape, strides) if s != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _is_in_order(shape: Tuple[int, ...], strides: Tuple[int, ...]) -> bool:
    """Whether they are dense, and the last index is that of neighbours."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1 and stride != expected:
            return 0 in shape
        expected *= size
    return True


def stream_of(array: Any) -> int:
    """Behind which a tensor of torch is ready; on the host 0."""
    if array.device.type != "cuda":
        return 0
    import torch
    return int(torch.cuda.current_stream(array.device).cuda_stream)


def _of_torch(array: Any) -> Tensor:
    dtype = _dtype(_TORCH, str(array.dtype), array)
    if not _is_dense(tuple(array.shape), tuple(array.stride())):
        raise UsageError("the tensor is a view with gaps: take .contiguous()")
    device = HOST
    if array.device.type == "cuda":
        device = array.device.index or 0
    elif array.device.type != "cpu":
        raise UsageError(f"a tensor on {array.device}: only cpu and cuda can be sent")
    return Tensor(array.data_ptr(), array.numel(), dtype, device, stream_of(array))


def _of_numpy(array: Any, writes: bool) -> Tensor:
    facts = array.__array_interface__
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, numpy.generic):  # its address is of a copy
        raise UsageError("a number of NumPy is no array: take numpy.array of it")
    dtype = _dtype(_NUMPY, facts["typestr"], array)
    pointer, is_read_only = facts["data"]
    if writes and is_read_only:
        raise UsageError("the array for the result is read-only")
    if facts.get("strides") is not None:
        raise UsageError("the array is not contiguous: take numpy.ascontiguousarray")
    size = 1
    for extent in facts["shape"]:
        size *= extent
    return Tensor(pointer, size, dtype, HOST, 0)


def _of_dlpack(array: Any) -> Tensor:
    capsule = array.__dlpack__()
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    # The capsule frees its tensor; the memory is the array's, which lives on.
    found = ctypes.cast(get(capsule, b"dltensor"), ctypes.POINTER(_DLTensor)).contents
    dtype = _dtype(_DLPACK, (found.code, found.bits), array)
    shape = tuple(found.shape[i] for i in range(found.ndim))
    if found.strides and not _is_in_order(
            shape, tuple(found.strides[i] for i in range(found.ndim))):
        raise UsageError("the array is not contiguous, or transposed: take a copy in C's order")
    if found.device_type not in (_DLPACK_CPU, _DLPACK_CUDA, _DLPACK_CUDA_HOST):
        raise UsageError(f"an array on DLPack's device {found.device_type}: only host "
                         "memory and CUDA can be sent")
    device = found.device_id if found.device_type == _DLPACK_CUDA else HOST
    size = 1
    for extent in shape:
        size *= extent
    return Tensor((found.data or 0) + found.byte_offset, size, dtype, device, 0)


def _any_tensor(array: Any, writes: bool = False) -> Tensor:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _of_torch(array)
    if hasattr(array, "__array_interface__"):
        return _of_numpy(array, writes)
    if hasattr(array, "__dlpack__"):
        return _of_dlpack(array)
    raise UsageError(f"{type(array).__name__} is no array of NumPy or torch, and has no "
                     "__dlpack__")


def tensor_of(array: Any, writes: bool = False) -> Tensor:
    """The array as C sees it, of a type that stores take. It must outlive every
    operation on it.

    Raises:
        UsageError: its type, dtype, device or memory layout.
    """
    tensor = _any_tensor(array, writes)
    if tensor.dtype > INT32:
        raise _refusal(array, NAMES[tensor.dtype], NAMES[:INT32 + 1])
    return tensor


def tensors_of(arrays: Any, writes: bool = False) -> Any:
    """A C array of them."""
    return (Tensor * len(arrays))(*[tensor_of(array, writes) for array in arrays])


def copied(array: Any, into: Any = None) -> Any:
    """Contiguous, in memory that only we know: `into`, an earlier copy, where it fits."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        if isinstance(into, torch.Tensor) and (into.shape, into.dtype, into.device) == (
                array.shape, array.dtype, array.device):
            return into.copy_(array.detach())
        return array.detach().clone(memory_format=torch.contiguous_format)
    import numpy
    source = _in_numpy(array)
    if isinstance(into, numpy.ndarray) and (into.shape, into.dtype) == (
            source.shape, source.dtype):
        numpy.copyto(into, source)
        return into
    return numpy.array(source, order="C", copy=True)


def in_float32(array: Any) -> Any:
    """The array, or a copy of one of float16."""
    if tensor_of(array).dtype != FLOAT16:
        return array
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return array.detach().float().contiguous()
    return _in_numpy(array).astype("float32")


def num_elems(array: Any) -> int:
    facts = getattr(array, "__array_interface__", None)
    shape = getattr(array, "shape", None) if facts is None else facts["shape"]
    if shape is None and hasattr(array, "__dlpack__"):
        return int(tensor_of(array).num_elems)
    if shape is None:
        raise UsageError(f"{type(array).__name__} is no array")
    return prod(shape)


def is_in_order(array: Any) -> bool:
    """Whether elements lie in memory as they are counted; a transposed tensor's do not,
    and other arrays whose do not are refused by `tensor_of`."""
    torch = sys.modules.get("torch")
    return torch is None or not isinstance(array, torch.Tensor) or (
        bool(array.is_contiguous()))


def tensor_in_order(array: Any, writes: bool = False) -> Tensor:
    """As `tensor_of`, of any type.

    Raises:
        UsageError: another order in memory, too.
    """
    if not is_in_order(array):
        raise UsageError("the tensor's elements lie in another order in memory (as of .t() "
                         "or channels_last): take .contiguous()")
    return _any_tensor(array, writes)


def check_alike(what: str, arrays: List[Any]) -> None:
    """One key has arrays of one size.

    Raises:
        UsageError: the sizes that there are; what is no array.
    """
    try:
        sizes = sorted(set(map(num_elems, arrays)))
    except UsageError as why:
        raise UsageError(f"{what}: {why}") from None
    if len(sizes) > 1:
        raise UsageError(f"{what} with arrays of {' and '.join(map(str, sizes))} elements: "
                         "of one key they are alike")


def added(arrays: List[Any], into: Any = None) -> Any:
    """Their sum, in memory as of `copied`; of 16-bit floats in float32, rounded once."""
    torch = sys.modules.get("torch")
    total = copied(arrays[0], into)
    is_torch = torch is not None and isinstance(total, torch.Tensor)
    size = total.element_size() if is_torch else total.itemsize
    wide = total
    if len(arrays) > 1 and size == 2:
        wide = total.float() if is_torch else total.astype("float32")
    for array in arrays[1:]:
        more = _in_torch(array) if is_torch else _in_numpy(array)
        wide += more.reshape(wide.shape)
    if wide is not total:
        assign(total, wide)
    return total


def _in_torch(array: Any) -> Any:
    import torch
    if not isinstance(array, torch.Tensor) and not hasattr(array, "__array_interface__"):
        return torch.utils.dlpack.from_dlpack(array)
    return torch.as_tensor(array).detach()


def _in_numpy(array: Any) -> Any:
    import numpy
    return (numpy.asarray(array) if hasattr(array, "__array_interface__")
            else numpy.from_dlpack(array))


def assign(to: Any, source: Any) -> None:
    """Copies the elements of one array to another."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(to, torch.Tensor):
        to.detach().copy_(_in_torch(source).reshape(to.shape))
        return
    import numpy
    target = _in_numpy(to)
    numpy.copyto(target, _in_numpy(source).reshape(target.shape), casting="same_kind")
