"""NDArrays as the library takes them."""
from __future__ import annotations

import ctypes
from typing import Any, List, Optional, Sequence

import mxnet  # type: ignore[import-not-found]
import numpy

from ...errors import UsageError
from ...mxnet import View
from ..common.submission import Wire


class _View(View):
    typestrs = {name: numpy.dtype(name).str for name in (
        "float32", "float16", "float64", "uint8", "int8", "int32", "int64", "bool")}


def _memory_of(array: Any) -> Any:
    """Its own where that is the host's, else a copy."""
    if array.stype != "default":
        raise UsageError(f"an NDArray of {array.stype}: tostype('default') first")
    if array.context.device_type in ("cpu", "cpu_pinned"):
        return numpy.asarray(_View(array))
    return array.asnumpy()


class _Array(Wire):
    """
    Args:
        out: for the result, where its size is known; may be `array`.
        gives_rows: of an alltoall, whether the result has what each rank sent beside it.
    """

    def __init__(self, array: Any, out: Optional[Any], gives_rows: bool = False) -> None:
        self._array, self._gives_rows = array, gives_rows
        self._out: Any = out
        self.sent = _memory_of(array)
        self.shape = list(self.sent.shape)
        if out is not None:
            self.got = self.sent if out is array else _memory_of(out)

    def finish(self) -> Any:
        if self._out.context.device_type not in ("cpu", "cpu_pinned"):
            self._out[:] = self.got
        return self._out

    def made(self, rows: List[int], pointer: int, elems: int) -> Any:
        found = numpy.empty((sum(rows), *self.shape[1:]), self.sent.dtype)
        if elems:
            ctypes.memmove(found.ctypes.data, pointer, found.nbytes)
        with mxnet.autograd.pause():
            array = mxnet.nd.array(found, ctx=self._array.context, dtype=found.dtype)
            if not self._gives_rows:
                return array
            return array, mxnet.nd.array(rows, dtype="int32")


def wires(arrays: Sequence[Any], outs: Optional[Sequence[Any]] = None,
          gives_rows: bool = False) -> List[Wire]:
    """Of each, when what MXNet has queued for it is done.

    Args:
        outs: for results of a size that is known; None: the library makes them.
    """
    return [_Array(array, None if outs is None else outs[i], gives_rows)
            for i, array in enumerate(arrays)]
