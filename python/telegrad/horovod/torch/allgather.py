"""All ranks get all ranks' tensors, one behind the other."""
from __future__ import annotations

from typing import Any, List, Optional, Sequence

import torch

from ..common.process_sets import ProcessSet, global_process_set
from ..common.submission import of_gradient, start, synchronize
from .allreduce import allreduce, grouped_allreduce
from .wire import wires


def allgather_async(tensor: Any, name: Optional[str] = None,
                    process_set: ProcessSet = global_process_set) -> int:
    """Starts `allgather`; gives a handle for `synchronize`."""
    return start("allgather", wires("allgather", [tensor]), name, process_set)


def grouped_allgather_async(tensors: Sequence[Any], name: Optional[str] = None,
                            process_set: ProcessSet = global_process_set) -> int:
    """Starts `grouped_allgather`; gives a handle."""
    return start("allgather", wires("allgather", tensors), name, process_set, is_group=True)


class _Allgather(torch.autograd.Function):
    """The gradient of a rank's rows is the mean of all ranks' gradients of them."""

    @staticmethod
    def forward(ctx: Any, name: Optional[str], process_set: ProcessSet, is_group: bool,
                *tensors: Any) -> Any:
        handle = start("allgather", wires("allgather", tensors), name, process_set,
                       is_group=is_group)
        ctx.rows = [tensor.shape[0] for tensor in tensors]
        ctx.process_set, ctx.is_group, ctx.name = process_set, is_group, name
        return synchronize(handle)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        given = [gradient.contiguous() for gradient in gradients]
        name, process_set = of_gradient(ctx.name), ctx.process_set
        means = (grouped_allreduce(given, name=name, process_set=process_set)
                 if ctx.is_group else
                 [allreduce(given[0], name=name, process_set=process_set)])
        rows = allgather(torch.tensor([ctx.rows]), of_gradient(ctx.name, "rows"),
                         process_set)
        before = rows[:process_set.rank()].sum(0).tolist()
        return (None, None, None, *(mean.narrow(0, first, num) for mean, first, num in
                                    zip(means, before, ctx.rows)))


def allgather(tensor: Any, name: Optional[str] = None,
              process_set: ProcessSet = global_process_set) -> Any:
    """All ranks' tensors by rank, along the first dimension, in which alone they may differ;
    gradients flow through it."""
    return _Allgather.apply(name, process_set, False, tensor)


def grouped_allgather(tensors: Sequence[Any], name: Optional[str] = None,
                      process_set: ProcessSet = global_process_set) -> List[Any]:
    """`allgather` of several tensors, which are sent together."""
    return list(_Allgather.apply(name, process_set, True, *tensors))
