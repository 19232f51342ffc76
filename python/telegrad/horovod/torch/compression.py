"""What `compression=` takes."""
from __future__ import annotations

from typing import Any, Tuple

import torch

from ..common.coded import Codec, Codecs


class Compressor:
    """Makes a tensor smaller, and gives back its type."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        """The tensor to send, and what `decompress` needs."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The result, in the type of what was compressed."""
        return tensor if ctx is None else tensor.type(ctx)


class NoneCompressor(Compressor):
    """Tensors go as they are."""


class FP16Compressor(Compressor):
    """Floats go as float16."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        return (tensor.type(torch.float16) if tensor.is_floating_point() else tensor,
                tensor.dtype)


class BF16Compressor(Compressor):
    """Floats go as bfloat16."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        return (tensor.type(torch.bfloat16) if tensor.is_floating_point() else tensor,
                tensor.dtype)


class Compression(metaclass=Codecs):
    """None, floats of 16 bits, or a codec of Telegrad's: ``Compression.int2``,
    ``Compression.codec("2bit:0.5", rules="embed=int8")``."""
    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    codec = Codec
