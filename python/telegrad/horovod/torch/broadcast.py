"""All ranks get one rank's tensor."""
from __future__ import annotations

from typing import Any, Optional

import torch

from ..common import world
from ..common.process_sets import ProcessSet, global_process_set
from ..common.submission import of_gradient, start, synchronize
from .allreduce import allreduce
from .wire import wires


def broadcast_async(tensor: Any, root_rank: int, name: Optional[str] = None,
                    process_set: ProcessSet = global_process_set) -> int:
    """Starts `broadcast`; gives a handle for `synchronize`."""
    return start("broadcast", wires("broadcast", [tensor], [torch.empty_like(tensor)]), name,
                 process_set, root=root_rank)


def broadcast_async_(tensor: Any, root_rank: int, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> int:
    """The same in place."""
    return start("broadcast", wires("broadcast", [tensor], [tensor]), name, process_set,
                 root=root_rank)


def broadcast_(tensor: Any, root_rank: int, name: Optional[str] = None,
               process_set: ProcessSet = global_process_set) -> Any:
    """`broadcast` in place, without a gradient."""
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


class _Broadcast(torch.autograd.Function):
    """The gradient is the root's alone: the mean of all ranks'."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, root: int, name: Optional[str],
                process_set: ProcessSet) -> Any:
        ctx.root, ctx.process_set, ctx.name = root, process_set, of_gradient(name)
        return synchronize(broadcast_async(tensor, root, name, process_set))

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        mean = allreduce(gradient.contiguous(), name=ctx.name, process_set=ctx.process_set)
        return mean if world.rank() == ctx.root else mean * 0, None, None, None


def broadcast(tensor: Any, root_rank: int, name: Optional[str] = None,
              process_set: ProcessSet = global_process_set) -> Any:
    """The tensor of rank `root_rank`, which counts all ranks, of a set, too; gradients flow
    through it."""
    return _Broadcast.apply(tensor, root_rank, name, process_set)
