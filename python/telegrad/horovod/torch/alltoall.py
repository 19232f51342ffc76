"""Each rank gives each rank some rows of its tensor."""
from __future__ import annotations

from typing import Any, Optional

import torch

from ...errors import UsageError
from ..common.process_sets import ProcessSet, global_process_set, member_of
from ..common.splits import rows_of
from ..common.submission import of_gradient, start, synchronize
from .wire import wires


def alltoall_async(tensor: Any, splits: Any = None, name: Optional[str] = None,
                   process_set: ProcessSet = global_process_set) -> int:
    """Starts `alltoall`; of its handle `synchronize` gives the rows and how many came from
    each rank."""
    member_of(process_set, "alltoall")
    if isinstance(splits, torch.Tensor) and (splits.is_floating_point()
                                             or splits.dtype == torch.bool):
        raise UsageError(f"splits of {splits.dtype}: integers are wanted")
    rows = rows_of(tensor.shape, splits.tolist() if isinstance(splits, torch.Tensor) else
                   splits, process_set.size())
    like = (splits if isinstance(splits, torch.Tensor) else
            torch.empty(0, dtype=torch.int32))
    sent = tensor[:sum(rows)] if tensor.dim() else tensor
    return start("alltoall", wires("alltoall", [sent], like=like), name, process_set,
                 splits=rows)


class _Alltoall(torch.autograd.Function):
    """Gradients go back to where the rows came from."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, splits: Any, name: Optional[str],
                process_set: ProcessSet) -> Any:
        found, received = synchronize(alltoall_async(tensor, splits, name, process_set))
        ctx.process_set, ctx.received, ctx.rows = process_set, received, tensor.shape[0]
        ctx.name = of_gradient(name)
        ctx.mark_non_differentiable(received)
        return found, received

    @staticmethod
    def backward(ctx: Any, gradient: Any, _: Any) -> Any:
        found, _ = synchronize(alltoall_async(gradient.contiguous(), ctx.received, ctx.name,
                                              ctx.process_set))
        if found.shape[0] < ctx.rows:  # rows that went nowhere
            rest = found.new_zeros(ctx.rows - found.shape[0], *found.shape[1:])
            found = torch.cat((found, rest))
        return found, None, None, None


def alltoall(tensor: Any, splits: Any = None, name: Optional[str] = None,
             process_set: ProcessSet = global_process_set) -> Any:
    """The rows that all ranks have for this one, by rank; gradients flow through it.

    Args:
        splits: integers, how many rows each rank gets; None: all as many.

    Returns:
        With `splits` the rows and how many came from each rank, else the rows.

    Raises:
        ValueError: splits that do not add up.
    """
    found, received = _Alltoall.apply(tensor, splits, name, process_set)
    return found if splits is None else (found, received)
