"""Reductions of which each rank gets a part."""
from __future__ import annotations

from typing import Any, List, Optional, Sequence

import torch

from ...errors import Unsupported
from ..common.process_sets import ProcessSet, global_process_set
from ..common.submission import Adasum, Average, Sum, of_gradient, start, synchronize
from .allgather import allgather, grouped_allgather
from .compression import Compression
from .wire import wires


def _start(tensors: Sequence[Any], name: Optional[str], op: int, process_set: ProcessSet,
           prescale: float, postscale: float, is_group: bool) -> int:
    if op == Adasum:
        raise Unsupported("reducescatter with op=hvd.Adasum: allreduce has it")
    return start("reducescatter", wires("reducescatter", tensors), name, process_set,
                 is_group=is_group, op=op, prescale=prescale, postscale=postscale)


def reducescatter_async(tensor: Any, name: Optional[str] = None, op: int = Average,
                        process_set: ProcessSet = global_process_set,
                        prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> int:
    """Starts `reducescatter`; gives a handle for `synchronize`."""
    return _start([tensor], name, op, process_set, prescale_factor, postscale_factor, False)


def grouped_reducescatter_async(tensors: Sequence[Any], name: Optional[str] = None,
                                op: int = Average,
                                process_set: ProcessSet = global_process_set,
                                prescale_factor: float = 1.0,
                                postscale_factor: float = 1.0) -> int:
    """Starts `grouped_reducescatter`; gives a handle."""
    return _start(tensors, name, op, process_set, prescale_factor, postscale_factor, True)


class _Reducescatter(torch.autograd.Function):
    """All ranks get the gradients of all parts; those of a sum count for each rank, as
    Horovod has it."""

    @staticmethod
    def forward(ctx: Any, name: Optional[str], op: int, process_set: ProcessSet,
                prescale: float, postscale: float, is_group: bool, *tensors: Any) -> Any:
        ctx.process_set, ctx.is_group, ctx.name = process_set, is_group, of_gradient(name)
        ctx.factor = prescale * postscale * (process_set.size() if op == Sum else 1)
        return synchronize(_start(tensors, name, op, process_set, prescale, postscale,
                                  is_group))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        given = [(gradient * ctx.factor).contiguous() for gradient in gradients]
        found = (grouped_allgather(given, ctx.name, ctx.process_set) if ctx.is_group else
                 [allgather(given[0], ctx.name, ctx.process_set)])
        return (*[None] * 6, *found)


def reducescatter(tensor: Any, name: Optional[str] = None,
                  compression: Any = Compression.none, op: int = Average,
                  process_set: ProcessSet = global_process_set,
                  prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> Any:
    """This rank's rows of the reduction; the first ranks have one more where they do not
    divide. Gradients flow through it. Arguments as of `allreduce`."""
    small, context = compression.compress(tensor)
    return compression.decompress(
        _Reducescatter.apply(name, op, process_set, prescale_factor, postscale_factor, False,
                             small), context)


def grouped_reducescatter(tensors: Sequence[Any], name: Optional[str] = None,
                          compression: Any = Compression.none, op: int = Average,
                          process_set: ProcessSet = global_process_set,
                          prescale_factor: float = 1.0,
                          postscale_factor: float = 1.0) -> List[Any]:
    """`reducescatter` of several tensors, which are sent together."""
    small = [compression.compress(tensor) for tensor in tensors]
    found = _Reducescatter.apply(name, op, process_set, prescale_factor, postscale_factor,
                                 True, *[each for each, _ in small])
    return [compression.decompress(each, context)
            for each, (_, context) in zip(found, small)]
