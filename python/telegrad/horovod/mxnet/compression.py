"""What `compression=` takes."""
from __future__ import annotations

from typing import Any, Tuple

from ..common.coded import Codec, Codecs


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


class Compression(metaclass=Codecs):
    """None, floats of 16 bits, or a codec of Telegrad's: ``Compression.int2``,
    ``Compression.codec("2bit:0.5", rules="embed=int8")``."""
    none = NoneCompressor
    fp16 = FP16Compressor
    codec = Codec
