"""What `compression=` takes."""
from __future__ import annotations

from typing import Any, Optional, Tuple

import torch

from ...errors import Unsupported, UsageError
from ..common import settings


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


class Codec:
    """One of Telegrad's codecs, for `DistributedOptimizer`: each rank sums a part of every
    gradient for the others, from codes, with residuals on both ways.

    Args:
        type: "int2", "2bit:0.5", "topk:0.01" or what else docs/codecs.md has.
        rules: codecs of some parameters, by name: "PATTERN=CODEC;...".
        dense_1d: parameters of one dimension (biases, norms) go dense unless a rule says
            otherwise.
        momentum, momentum_rate, normalize: as of `telegrad.torch.State`.
        setting: of `telegrad.Store.set_compression`: threshold, reply, packing, nonfinite,
            min_bytes, warmup_steps, guard.
    """

    def __init__(self, type: str, *, rules: str = "", dense_1d: bool = True,
                 momentum: str = "auto", momentum_rate: Optional[float] = None,
                 normalize: str = "auto", **setting: Any) -> None:
        if type.partition(":")[0] == "auto":
            raise UsageError("compression 'auto': name the codec; telegrad.torch.compress of "
                             "DistributedDataParallel has auto")
        self.type, self.rules, self.dense_1d = type, rules, dense_1d
        self.momentum, self.momentum_rate = momentum, momentum_rate
        self.normalize, self.setting = normalize, setting

    def compress(self, tensor: Any) -> Tuple[Any, Any]:
        """Is refused: a codec keeps what it holds back, of each parameter."""
        raise Unsupported(f"compression {self.type} in an operation of its own: give it to "
                          "hvd.DistributedOptimizer, which knows the parameters")


class _Codecs(type):
    def __getattr__(cls, name: str) -> Codec:
        import telegrad
        if name.partition(":")[0] not in [each["name"] for each in telegrad.codecs()]:
            raise AttributeError(f"Compression.{name}: there are none, fp16, bf16, and codecs "
                                 "as Compression.int2 or Compression.codec('2bit:0.5')")
        return Codec(name)


class Compression(metaclass=_Codecs):
    """None, floats of 16 bits, or a codec of Telegrad's: ``Compression.int2``,
    ``Compression.codec("2bit:0.5", rules="embed=int8")``."""
    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    codec = Codec


def compression_of(given: Any, takes_codec: bool) -> Any:
    """A compressor, of the name of a codec, too; where none is given and one can be, that of
    `telegrad.run` or $TELEGRAD_CODEC."""
    standard = settings.standard_codec()
    if given in (None, Compression.none) and takes_codec and standard:
        return Codec(**standard)
    if given is None:
        return Compression.none
    if isinstance(given, str):
        return getattr(Compression, given) if given in ("none", "fp16", "bf16") else Codec(given)
    return given
