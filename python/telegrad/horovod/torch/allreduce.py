"""Reductions to which all ranks give a tensor and of which all get the result."""
from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence

import torch

from ...errors import Unsupported
from ..common import world
from ..common.process_sets import ProcessSet, global_process_set
from ..common.submission import Adasum, Average, Sum, average_or, of_gradient, start, synchronize
from .compression import Compression
from .wire import wires


def _start(tensors: Sequence[Any], outs: Sequence[Any], average: Optional[bool],
           name: Optional[str], op: Optional[int], prescale: float, postscale: float,
           process_set: ProcessSet, is_group: bool = False) -> int:
    op = average_or(op, average)
    if op == Adasum:
        if process_set is not global_process_set:
            raise NotImplementedError("Adasum does not support non-global process sets yet.")
        size = world.running().size
        if size & (size - 1):
            raise NotImplementedError("Running Adasum with non-power of 2 ranks is not "
                                      "supported yet.")
    return start("allreduce", wires("allreduce", tensors, outs), name, process_set,
                 is_group=is_group, op=op, prescale=prescale, postscale=postscale)


def allreduce_async(tensor: Any, average: Optional[bool] = None, name: Optional[str] = None,
                    op: Optional[int] = None, prescale_factor: float = 1.0,
                    postscale_factor: float = 1.0,
                    process_set: ProcessSet = global_process_set) -> int:
    """Starts `allreduce`; gives a handle for `synchronize`. Until then the tensor must not
    change."""
    return _start([tensor], [torch.empty_like(tensor)], average, name, op, prescale_factor,
                  postscale_factor, process_set)


def allreduce_async_(tensor: Any, average: Optional[bool] = None, name: Optional[str] = None,
                     op: Optional[int] = None, prescale_factor: float = 1.0,
                     postscale_factor: float = 1.0,
                     process_set: ProcessSet = global_process_set) -> int:
    """The same in place."""
    return _start([tensor], [tensor], average, name, op, prescale_factor, postscale_factor,
                  process_set)


def allreduce_(tensor: Any, average: Optional[bool] = None, name: Optional[str] = None,
               op: Optional[int] = None, prescale_factor: float = 1.0,
               postscale_factor: float = 1.0,
               process_set: ProcessSet = global_process_set) -> Any:
    """`allreduce` in place, without a gradient."""
    return synchronize(allreduce_async_(tensor, average, name, op, prescale_factor,
                                        postscale_factor, process_set))


def grouped_allreduce_async(tensors: Sequence[Any], average: Optional[bool] = None,
                            name: Optional[str] = None, op: Optional[int] = None,
                            prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                            process_set: ProcessSet = global_process_set) -> int:
    """Starts `grouped_allreduce`; gives a handle."""
    return _start(tensors, [torch.empty_like(tensor) for tensor in tensors], average, name,
                  op, prescale_factor, postscale_factor, process_set, True)


def grouped_allreduce_async_(tensors: Sequence[Any], average: Optional[bool] = None,
                             name: Optional[str] = None, op: Optional[int] = None,
                             prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                             process_set: ProcessSet = global_process_set) -> int:
    """The same in place."""
    return _start(tensors, tensors, average, name, op, prescale_factor, postscale_factor,
                  process_set, True)


def grouped_allreduce_(tensors: Sequence[Any], average: Optional[bool] = None,
                       name: Optional[str] = None, op: Optional[int] = None,
                       prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                       process_set: ProcessSet = global_process_set) -> Any:
    """`grouped_allreduce` in place, without gradients."""
    return synchronize(grouped_allreduce_async_(tensors, average, name, op, prescale_factor,
                                                postscale_factor, process_set))


class _Allreduce(torch.autograd.Function):
    """The gradient is reduced as the tensors were."""

    @staticmethod
    def forward(ctx: Any, name: Optional[str], is_group: bool, setting: Any,
                *tensors: Any) -> Any:
        ctx.setting, ctx.is_group, ctx.name = setting, is_group, of_gradient(name)
        outs = [torch.empty_like(tensor) for tensor in tensors]
        average, op, prescale, postscale, process_set = setting
        return synchronize(_start(tensors, outs, average, name, op, prescale, postscale,
                                  process_set, is_group))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        given = [gradient.contiguous() for gradient in gradients]
        found = _Allreduce.apply(ctx.name, ctx.is_group, ctx.setting, *given)
        return (None, None, None, *(found if ctx.is_group else (found,)))


def allreduce(tensor: Any, average: Optional[bool] = None, name: Optional[str] = None,
              compression: Any = Compression.none, op: Optional[int] = None,
              prescale_factor: float = 1.0, postscale_factor: float = 1.0,
              process_set: ProcessSet = global_process_set) -> Any:
    """The reduction of all ranks' tensors of that name; gradients flow through it.

    Args:
        tensor: of one shape and type on all ranks; stays as it is.
        average: is what `op` was once.
        name: that ranks find each other by; None: a number that counts calls.
        compression: `Compression.none`, `fp16` or `bf16`; codecs are for
            `DistributedOptimizer`.
        op: Average, where none is given, Sum, Min, Max, Product, Adasum.
        prescale_factor, postscale_factor: of the tensor, of the result.

    Raises:
        HorovodInternalError: ranks differ in shape, type or op, or one has died: by name.
        ValueError: arguments that cannot be; a name that is under way already.
    """
    small, context = compression.compress(tensor)
    setting = average, op, prescale_factor, postscale_factor, process_set
    return compression.decompress(_Allreduce.apply(name, False, setting, small), context)


def grouped_allreduce(tensors: Sequence[Any], average: Optional[bool] = None,
                      name: Optional[str] = None, compression: Any = Compression.none,
                      op: Optional[int] = None, prescale_factor: float = 1.0,
                      postscale_factor: float = 1.0,
                      process_set: ProcessSet = global_process_set) -> List[Any]:
    """`allreduce` of several tensors, which are sent together."""
    small = [compression.compress(tensor) for tensor in tensors]
    setting = average, op, prescale_factor, postscale_factor, process_set
    found = _Allreduce.apply(name, True, setting, *[each for each, _ in small])
    return [compression.decompress(each, context)
            for each, (_, context) in zip(found, small)]


def sparse_allreduce_async(tensor: Any, name: Optional[str], op: int,
                           process_set: ProcessSet = global_process_set
                           ) -> Callable[[], Any]:
    """Starts the sum or mean of sparse tensors: all ranks' entries are gathered. Gives a
    function that waits for it.

    Raises:
        telegrad.Unsupported: another `op`.
    """
    from .allgather import allgather_async
    if op not in (Average, Sum):
        raise Unsupported("sparse tensors are added or averaged: op=hvd.Sum or hvd.Average, "
                          "or tensor.to_dense()")
    own = tensor.coalesce()
    shown = name or f"sparse.{world.running().next_handle()}"
    indices = allgather_async(own.indices().t().contiguous(), f"{shown}.indices", process_set)
    values = allgather_async(own.values().contiguous(), f"{shown}.values", process_set)

    def wait() -> Any:
        numbers, entries = synchronize(indices), synchronize(values)
        if op == Average:
            entries = entries / process_set.size()
        return torch.sparse_coo_tensor(numbers.t(), entries, tensor.size())

    return wait
