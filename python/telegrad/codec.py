"""A codec alone: one array to bytes and back."""
from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_float, c_uint64, c_void_p
from operator import index
from typing import Any, Optional, Tuple

from ._arrays import FLOAT32, HOST, NAMES, tensor_in_order
from ._library import LIBRARY, bytes_in, call, encoded
from .errors import UsageError


def _floats(array: Any, num: int, writes: bool) -> int:
    tensor = tensor_in_order(array, writes)
    if (tensor.dtype, tensor.device, tensor.num_elems) == (FLOAT32, HOST, num):
        return int(tensor.data)
    raise UsageError(f"the codec takes {num} float32 in host memory; the array has "
                     f"{tensor.num_elems} {NAMES[tensor.dtype]}, device {tensor.device}")


class Codec:
    """Encodes float32 arrays of one size, with error feedback. One thread.

    Args:
        spec: as docs/codecs.md, "2bit:0.5", "topk:0.01".
        num_elems: of each array.
        nonfinite: "error", "zero" or "propagate" (MXNet's).

    Raises:
        telegrad.UsageError: a codec that there is not, and those that there are.

    Example::

        codec = telegrad.Codec("2bit:0.5", gradient.size)
        payload, threshold = codec.encode(gradient)
        codec.decode(payload, threshold, out)
    """

    def __init__(self, spec: str, num_elems: int, nonfinite: str = "error") -> None:
        self._handle = c_void_p()
        self._pid = os.getpid()
        try:
            num_elems = index(num_elems)
        except TypeError:
            raise UsageError(f"num_elems={num_elems!r}: an integer is wanted") from None
        self.num_elems = num_elems
        call("codec_create", encoded(spec, "spec"), num_elems, encoded(nonfinite, "nonfinite"),
             byref(self._handle))
        self._buffer = ctypes.create_string_buffer(
            LIBRARY.telegrad_codec_max_bytes(self._handle))

    @property
    def max_bytes(self) -> int:
        """Of a payload."""
        return len(self._buffer)

    def encode(self, grad: Any) -> Tuple[bytes, float]:
        """`grad` [num_elems] float32 to the payload, and the threshold with which that
        is decoded.

        Raises:
            telegrad.NumericFault: NaN or infinities, unless `nonfinite` says otherwise.
            telegrad.UsageError: an array of another size, type or layout.
        """
        size, threshold = c_uint64(), c_float()
        call("codec_encode", self._handle, _floats(grad, self.num_elems, False),
             self._buffer, len(self._buffer), byref(size), byref(threshold))
        return self._buffer.raw[:size.value], threshold.value

    def decode(self, payload: bytes, threshold: float, out: Any) -> Any:
        """Fills `out` [num_elems] float32, and gives it. `payload` may come from anywhere;
        `threshold` is what `encode` gave with it.

        Raises:
            telegrad.Error: bytes that no encoder has written.
        """
        payload = bytes_in("payload", payload)
        try:
            threshold = float(threshold)
        except (TypeError, ValueError):
            raise UsageError(f"threshold={threshold!r}: a number is wanted") from None
        call("codec_decode", self._handle, payload, len(payload), threshold,
             _floats(out, self.num_elems, True))
        return out

    @property
    def residual(self) -> Optional[Any]:
        """What was not sent yet, [num_elems] float32 as a ctypes array over the
        codec's own memory (``numpy.ctypeslib.as_array`` takes it); None: none."""
        found = LIBRARY.telegrad_codec_residual(self._handle)
        if not found:
            return None
        array: Any = (c_float * self.num_elems).from_address(
            ctypes.addressof(found.contents))
        array._codec = self  # the memory lives as long as the array
        return array

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", c_void_p()), c_void_p()
        if handle:
            LIBRARY.telegrad_codec_free(handle)
