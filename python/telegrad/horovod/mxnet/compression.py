"""What `compression=` takes."""
from __future__ import annotations

from typing import Any, Tuple

from ...errors import Unsupported


class NoneCompressor:
    """Arrays go as they are."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else tensor.astype(ctx)


class FP16Compressor(NoneCompressor):
    """float32 and float64 go as float16."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        name = getattr(tensor.dtype, "__name__", str(tensor.dtype))
        if name not in ("float32", "float64"):
            return tensor, None
        return tensor.astype("float16", copy=False), tensor.dtype


class _Others(type):
    def __getattr__(cls, name: str) -> Any:
        raise Unsupported(f"Compression.{name} for MXNet: its codecs are those of "
                          "mx.kv.create('telegrad') with set_gradient_compression "
                          "(docs/mxnet.md); here there are none and fp16")


class Compression(metaclass=_Others):
    """None, or floats of 16 bits."""
    none = NoneCompressor
    fp16 = FP16Compressor
